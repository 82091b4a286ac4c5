"""`trimtab audit`: from a file or a live cluster, with its levels and exit codes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.main import run
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition
from trimtab.model.codec import dumps, loads_to, measurement_to, snapshot_to
from trimtab.model.load import Loads, LoadStep, Measurement, PartitionLoad, Source, Unit
from trimtab.testing.fakes import FakeAdmin
from trimtab.testing.placements import led, placement

EVEN = placement({"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}, racks={1: "a", 2: "a", 3: "b"})
UNEVEN = led({"A": {1: 1, 2: 2}, "B": {2: 1, 3: 1}})


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests plays a part, and no cluster may be asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "CONFIG"):
        monkeypatch.delenv(f"TRIMTAB_{name}", raising=False)

    def refuse(_to: object) -> None:
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr(Cluster, "admin", refuse)


def written(snapshot: ClusterSnapshot, name: str = "snapshot.json") -> str:
    Path(name).write_text(dumps(snapshot_to(snapshot)), encoding="utf-8")
    return name


def audited(
    capsys: pytest.CaptureFixture[str], snapshot: ClusterSnapshot, *options: str
) -> tuple[int, Any]:
    """Exit code and document of an audit of a snapshot file."""
    code = run(["audit", "--snapshot", written(snapshot), "--json", *options])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """A cluster in memory: orders on brokers 1 and 2, and Kafka's own topic."""
    seen = placement(
        {"orders": [[1, 2], [2, 1]], "__consumer_offsets": [[1]], "trimtab.rates": [[2]]}
    )
    admin = FakeAdmin(brokers=seen.brokers, partitions=seen.partitions)

    @contextmanager
    def admin_to(_to: object) -> Iterator[FakeAdmin]:
        yield admin

    monkeypatch.setattr(Cluster, "admin", admin_to)
    monkeypatch.setenv("TRIMTAB_BOOTSTRAP_SERVER", "live:9092")
    return admin


def test_a_snapshot_is_audited_without_asking_any_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run(["audit", "--snapshot", written(UNEVEN)])

    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert "3 brokers, 2 topics in 2 groups, 5 partitions" in said.out
    assert "Failures, the worst first" in said.out


def test_json_is_one_document_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        assert run(["audit", "--snapshot", written(UNEVEN), "--json", "-o", "audit.json"]) == 0
        texts.append(capsys.readouterr().out)

    assert texts[0] == texts[1]
    found = json.loads(texts[0])
    assert found == json.loads(Path("audit.json").read_text(encoding="utf-8"))
    assert found["overlaps_by_broker"] == {"2": [0, 1]}
    assert [f["dead"] for f in found["faults"]] == [[2], [3], [1]]


@pytest.mark.parametrize(
    ("snapshot", "level", "code"),
    [
        (led({f"t{n}": {1: 1} for n in range(18)} | {"x": {2: 1}, "y": {3: 1}}), "warning", 1),
        (EVEN, "note", 0),
        (UNEVEN, "never", 0),
        (UNEVEN, "error", 0),
        (UNEVEN, "warning", 1),
        (UNEVEN, "note", 1),
        (placement({"A": [[], [1]]}), "error", 1),
    ],
)
def test_the_exit_code_is_one_from_the_level_asked_for(
    snapshot: ClusterSnapshot, level: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, document = audited(capsys, snapshot, "--fail-on", level)

    assert (found, "findings" in document) == (code, True)


def test_findings_are_told_after_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--snapshot", written(UNEVEN), "--fail-on", "warning"]) == 1

    said = capsys.readouterr()
    assert "Findings" in said.out
    assert "one_failure_offline, stacked" in said.err


def test_by_default_findings_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(capsys, placement({"A": [[]]}, brokers=[1]))[0] == 0


def test_pairs_racks_and_domains_fail_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--faults", "2", "--domains", "racks", "--domain", "1,2,3")

    _, found = audited(capsys, EVEN, *options)

    dead = {tuple(f["dead"]): f["what"] for f in found["faults"]}
    assert dead == {
        (1,): None,
        (2,): None,
        (3,): "rack b",
        (1, 2): "rack a",
        (1, 3): None,
        (2, 3): None,
        (1, 2, 3): "domain 1,2,3",
    }
    assert audited(capsys, EVEN, "--faults", "0")[1]["faults"] == []


def test_more_failures_than_asked_for_are_drawn_from_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, found = audited(capsys, EVEN, "--faults", "2", "--max-scenarios", "4", "--seed", "3")

    assert found["fault_scan"] == {"scanned": 4, "of": 6, "seed": 3}
    assert [f["kind"] for f in found["findings"]] == ["sampled"]


def test_pairs_and_failures_are_listed_up_to_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = audited(capsys, UNEVEN, "--pairs", "0", "--worst", "1")

    assert (found["pairs"], found["pairs_total"], len(found["faults"])) == ([], 1, 1)


def test_in_sync_replicas_that_writes_need_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(capsys, EVEN, "--min-insync", "2")[1]["findings"] == []

    _, found = audited(capsys, EVEN, "--min-insync", "3")

    assert [f["below_min_insync"] for f in found["faults"]] == [3, 3, 3]


def test_a_file_is_audited_without_topics_of_kafka_and_our_own_unless_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = placement({"A": [[1]], "__own": [[1]], "trimtab.rates": [[1]], "blue.rates": [[1]]})

    def topics(*options: str) -> list[str]:
        return [t for g in audited(capsys, snapshot, *options)[1]["groups"] for t in g["topics"]]

    assert topics() == ["A", "blue.rates"]
    assert topics("--internal") == ["A", "__own", "blue.rates", "trimtab.rates"]
    assert topics("--topic", "trimtab.rates") == ["trimtab.rates"]
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", "blue.")
    assert topics() == ["A", "trimtab.rates"]


def test_a_broker_that_a_file_shows_as_dead_is_taken_as_down_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dead = placement({"A": [[1, 3], [2, 3]], "B": [[3, 1]]}, brokers=[4], out_of_sync=[3])

    assert run(["audit", "--snapshot", written(dead), "--topic", "A", "--json"]) == 0

    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "taken as down because none of their replicas is in sync: 3\n" in said.err
    assert (found["idle_brokers"], found["silent_brokers"]) == ([4], [3])
    assert sorted(f["dead"] for f in found["faults"]) == [[1], [2], [4]]
    assert found["loads"]["mean"] == 1 / 3


def test_a_file_says_which_brokers_are_alive(capsys: pytest.CaptureFixture[str]) -> None:
    # Nothing of broker 4 is in sync, and it lives; broker 2 is dead and still named as a leader.
    placed = placement({"A": [[1, 3], [2, 1], [3, 4]], "B": [[1, 4]]}, out_of_sync=[4])
    alive = {1: True, 2: False, 3: True, 4: True}
    told = replace(
        placed, brokers=tuple(replace(broker, alive=alive[broker.id]) for broker in placed.brokers)
    )

    assert run(["audit", "--snapshot", written(told), "--json"]) == 0

    said = capsys.readouterr()
    found = json.loads(said.out)
    assert said.err == ""
    assert found["leaders_per_broker"] == {"1": 3, "2": 0, "3": 1, "4": 0}
    assert sorted(f["dead"] for f in found["faults"]) == [[1], [3], [4]]
    assert found["carried"]["mean"] == 4 / 3
    assert {f["kind"] for f in found["findings"]} >= {"down", "silent_brokers"}


def test_a_dead_broker_is_the_same_in_a_file_as_in_the_cluster(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = placement(
        {"orders": [[1, 3], [2, 1], [3]]}, out_of_sync=[3], leaders={"orders": [1, 2, -1]}
    )
    live.brokers, live.silent = list(dead.brokers), {BrokerId(3)}
    live.partitions = {p.name: p for p in dead.partitions}
    live.settings = {"orders": {"min.insync.replicas": "1"}}

    assert run(["audit", "--json"]) == 0
    cluster = json.loads(capsys.readouterr().out)
    _, file = audited(capsys, dead)

    assert {**cluster, "cluster": None} == file


# ---------------------------------------------------------------- rates


def measured(**rates: list[float | None]) -> str:
    """A measurement file with the rates of each topic's partitions; None is a gap."""
    value = Measurement(
        cluster=None,
        from_ts=0,
        to_ts=1,
        window_s=1,
        rejects=0,
        partitions=tuple(
            PartitionLoad(
                topic=topic,
                partition=number,
                bytes_s=100.0 if rate is None else rate,
                records_s=1.0,
                source=Source.LOG_DIRS,
                complete=rate is not None,
            )
            for topic, of in rates.items()
            for number, rate in enumerate(of)
        ),
    )
    Path("measured.json").write_text(dumps(measurement_to(value)), encoding="utf-8")
    return "measured.json"


def test_loads_come_from_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    file = measured(A=[2.0, 2.0, 2.0], B=[3.0, 3.0])

    _, found = audited(capsys, UNEVEN, "--loads", file)

    assert found["loads"]["unit"] == "bytes/s"
    assert found["loads"]["default"]["by_broker"] == {"1": 2.0, "2": 7.0, "3": 3.0}
    assert found["loads"]["measured"]["by_broker"] == {"1": 2.0, "2": 7.0, "3": 3.0}
    assert found["loads"]["least"]["peak"] == 4.0
    _, found = audited(capsys, UNEVEN, "--loads", file, "--unit", "records/s")
    assert found["loads"]["mean"] == 5 / 3


def test_a_topic_measured_in_part_is_left_out_unless_gaps_are_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = measured(A=[2.0, None, 2.0], B=[3.0, 3.0])

    _, found = audited(capsys, UNEVEN, "--loads", file)
    assert (found["loads"]["unmeasured"], found["loads"]["measured_in_part"]) == (["A"], ["A"])
    assert found["loads"]["default"]["by_broker"]["2"] == 3.0
    assert "unmeasured" in [f["kind"] for f in found["findings"]]

    assert run(["audit", "--snapshot", "snapshot.json", "--loads", file]) == 0
    assert "1 of 5 rates have gaps or too short a span" in capsys.readouterr().err
    _, found = audited(capsys, UNEVEN, "--loads", file, "--allow-incomplete")
    assert found["loads"]["unmeasured"] == []


def test_loads_come_from_a_loads_file_too(capsys: pytest.CaptureFixture[str]) -> None:
    steps = tuple(
        LoadStep(loads={TopicPartition("B", n): rate for n in range(2)}) for rate in (1.0, 4.0)
    )
    file = Loads(capacity=9, unit=Unit.RECORDS_S, steps=steps)
    Path("loads.json").write_text(dumps(loads_to(file)), encoding="utf-8")

    _, found = audited(capsys, UNEVEN, "--loads", "loads.json", "--step", "1")

    assert (found["loads"]["unit"], found["loads"]["default"]["peak"]) == ("records/s", 4.0)
    for wrong in ((), ("--step", "2"), ("--step", "0", "--unit", "bytes/s")):
        assert audited(capsys, UNEVEN, "--loads", "loads.json", *wrong)[0] == 2


def test_rates_need_no_capacity_of_a_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"A": {"0": 2.0, "1": 2.0, "2": 2.0}, "B": {"0": 3.0, "1": 3.0}}
    Path("loads.json").write_text(json.dumps({"v": 1, "steps": [{"loads": rates}]}))

    code, found = audited(capsys, UNEVEN, "--loads", "loads.json")

    assert code == 0
    assert found["carried"]["by_broker"] == {"1": 2.0, "2": 7.0, "3": 3.0}


def test_a_broker_that_carries_nearly_everything_fails_the_audit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = measured(A=[9e6, 5e5, 5e5])

    code, found = audited(capsys, EVEN, "--loads", file, "--fail-on", "warning")

    assert (code, [f["kind"] for f in found["findings"]]) == (1, ["peak"])
    assert found["carried"]["peak_to_mean"] == pytest.approx(2.7)
    assert found["carried"]["hottest"] == {"topic": "A", "partition": 0, "load": 9e6}
    after = {tuple(f["dead"]): f["peak_to_mean"] for f in found["faults"]}
    assert after == pytest.approx({(1,): 1.9, (2,): 1.8, (3,): 1.9})
    code, _ = audited(capsys, EVEN, "--loads", file, "--fail-on", "note", "--wanted-peak", "2.7")
    assert code == 0


def test_a_topic_that_is_level_as_measured_passes(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = placement({"A": [[1, 2], [2, 1], [2, 1], [2, 1]]})

    code, _ = audited(
        capsys, snapshot, "--loads", measured(A=[3.0, 1.0, 1.0, 1.0]), "--fail-on", "note"
    )

    assert code == 0


def test_rates_of_another_cluster_are_said(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(measured(orders=[1.0, 1.0]))
    assert run(["audit", "--loads", str(file)]) == 0
    assert "was measured on" not in capsys.readouterr().err  # it does not say where

    value = json.loads(file.read_text(encoding="utf-8")) | {"cluster": "other"}
    file.write_text(json.dumps(value), encoding="utf-8")
    assert run(["audit", "--loads", str(file)]) == 0
    assert "was measured on cluster other, but fake is audited" in capsys.readouterr().err


def test_rates_beyond_all_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = audited(capsys, UNEVEN, "--loads", measured(A=[1e308, 1e308, 1e308]))

    assert code == 2
    assert "too large for a number" in said


def test_the_least_of_rates_gives_a_page_too(capsys: pytest.CaptureFixture[str]) -> None:
    file = measured(A=[5e-324, 0.0, 0.0], B=[0.0, 0.0])

    assert audited(capsys, UNEVEN, "--loads", file, "--report", "audit.html")[0] == 0


def test_rates_of_other_topics_only_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--snapshot", written(UNEVEN), "--loads", measured(other=[1.0])]) == 0

    assert "has no rate of any audited topic" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("age_s", "options", "said"),
    [
        (7200, [], "were measured 2 h ago, longer than 15 min"),
        (7200, ["--max-age", "3h"], None),
        (60, [], None),
        (-8000, [], "the measurement is dated 2 h in the future: check the clocks"),
    ],
)
def test_an_old_measurement_is_said(
    age_s: int, options: list[str], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(measured(A=[1e6, 1e6, 1e6]))
    made = json.loads(file.read_text(encoding="utf-8"))
    to_ts = time.time_ns() // 1000 - age_s * 1_000_000
    file.write_text(json.dumps({**made, "to_ts": to_ts, "from_ts": to_ts - 60_000_000}))
    words = ["audit", "--snapshot", written(EVEN), "--loads", str(file), *options]

    assert run([*words, "--fail-on", "note"]) == 0

    err = capsys.readouterr().err
    assert err == "" if said is None else said in err


@pytest.mark.parametrize(
    ("rates", "options", "said"),
    [
        (
            {"A": [1.0] * 3, "gone": [7.0]},
            (),
            "1 partitions that the cluster does not have, 70% of its load",
        ),
        ({"A": [1.0] * 4}, ("--topic", "A"), "25% of its load: A-3"),
        ({"A": [1.0] * 3, "gone": [7.0]}, ("--topic", "A"), ""),
        ({"A": [1.0] * 3, "__consumer_offsets": [7.0]}, (), ""),
    ],
)
def test_rates_of_partitions_that_are_not_here_are_said(
    rates: dict[str, list[float | None]],
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["audit", "--snapshot", written(EVEN), "--loads", measured(**rates), *options]) == 0

    err = " ".join(capsys.readouterr().err.split())
    assert said in err if said else "does not have" not in err


def test_a_trickle_fails_no_audit_where_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = audited(capsys, EVEN, "--loads", measured(A=[900.0, 0.0, 0.0]))
    assert [(f["kind"], f["level"]) for f in found["findings"]] == [("peak", "note")]

    Path("loads.json").write_text(
        '{"v":1,"steps":[{"loads":{"A":{"0":900,"1":0,"2":0}}}]}', encoding="utf-8"
    )
    _, found = audited(capsys, EVEN, "--loads", "loads.json")  # perhaps in MB/s
    assert [(f["kind"], f["level"]) for f in found["findings"]] == [("peak", "warning")]


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--bootstrap-server", "x:1"], "not both"),
        (["--topic", "nobody"], 'has no topic "nobody"'),
        (["--domain", "1,9"], "the cluster has no broker 9"),
        (["--domain", "a"], "takes broker ids such as 1,2,3"),
        (["--unit", "bytes/s"], "require --loads"),
        (["--max-age", "1h"], "require --loads"),
        (["--loads", "missing.json"], "missing.json"),
        (["--faults", "3"], "--faults"),
        (["--fail-on", "sometimes"], "--fail-on"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "--snapshot", written(EVEN), *options]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_broken_snapshot_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = snapshot_to(UNEVEN)
    value["partitions"][0]["replicas"] = [1, 77]
    Path("broken.json").write_text(dumps(value), encoding="utf-8")

    assert run(["audit", "--snapshot", "broken.json"]) == 2
    assert capsys.readouterr().err == (
        "error: broken.json: partitions[0].replicas[1]: broker 77 is not in the list of brokers\n"
    )


# ---------------------------------------------------------------- a live cluster


def test_a_live_cluster_is_audited_without_topics_of_kafka_and_our_own(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    for heavy in ("log_dirs", "offsets", "groups", "committed", "topic_settings", "eligible"):
        live.before[heavy] = lambda heavy=heavy: asked.append(heavy)  # type: ignore[misc]

    assert run(["audit", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [g["topics"] for g in found["groups"]] == [["orders"]]
    assert (found["cluster"], asked) == ("fake", [])


def test_internal_topics_are_audited_when_asked_for_or_named(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = []
    for options in (["--internal"], ["--topic", "__consumer_offsets"]):
        assert run(["audit", "--json", *options]) == 0
        groups = json.loads(capsys.readouterr().out)["groups"]
        topics.append(sorted(topic for group in groups for topic in group["topics"]))

    assert topics == [["__consumer_offsets", "orders", "trimtab.rates"], ["__consumer_offsets"]]
    assert run(["audit", "--topic", "nobody"]) == 2


def test_what_writes_need_is_each_topics_own_setting(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    live.settings["orders"]["min.insync.replicas"] = "2"

    assert run(["audit", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [f["below_min_insync"] for f in found["faults"]] == [2, 2]
    assert run(["audit", "--json", "--min-insync", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"][0]["below_min_insync"] == 0


def test_a_broker_that_is_down_is_known_to_be_so_and_eligible_leaders_are_asked_for(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    # Broker 3 is down; 2 is behind, and eligible where 1 is the last one in sync.
    one, two, three = map(BrokerId, (1, 2, 3))
    live.brokers = list(placement({}, brokers=[1, 2, 3]).brokers)
    live.silent = {three}
    live.partitions = {
        name: replace(p, leader=one, replicas=(one, three, two), isr=(one,), elr=(two, three))
        for name, p in live.partitions.items()
    }

    assert run(["audit", "--json", "--topic", "orders"]) == 0

    found = json.loads(capsys.readouterr().out)
    leaders = {tuple(f["dead"]): f["leaders"] for f in found["faults"]}
    assert leaders == {(1,): {"orders": {"0": 2, "1": 2}}, (2,): {}}
    assert (found["idle_brokers"], found["silent_brokers"]) == ([2], [2, 3])


# ---------------------------------------------------------------- leader moves

LEFT = placement({f"t{n}": [[1, 2, 3]] for n in range(9)})


def test_leader_moves_are_written_for_kafkas_own_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--snapshot", written(LEFT), "--kafka-json", "to move.json"]) == 0

    said = capsys.readouterr().out.splitlines()
    at = said.index("To move leaders: to move.json contains 6 leader moves; then run")
    assert said[at + 1 :] == [
        "kafka-reassign-partitions.sh --bootstrap-server HOST:PORT "
        "--reassignment-json-file 'to move.json' --execute",
        "kafka-leader-election.sh --bootstrap-server HOST:PORT "
        "--election-type preferred --path-to-json-file 'to move.json'",
    ]
    file = json.loads(Path("to move.json").read_text(encoding="utf-8"))
    assert file["version"] == 1
    assert {tuple(p["replicas"]) for p in file["partitions"]} == {(2, 1, 3), (3, 1, 2)}
    assert audited(capsys, LEFT)[1]["leader_moves"] == file["partitions"]


def test_after_an_outage_the_preferred_leaders_are_elected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lists = [[1, 2], [2, 3], [3, 1]] * 4
    drifted = placement({"A": lists}, leaders={"A": [1, 2, 1] * 4})

    assert run(["audit", "--snapshot", written(drifted)]) == 0

    said = capsys.readouterr().out
    assert "kafka-leader-election.sh" in said.splitlines()[-1]
    assert "kafka-reassign-partitions.sh" not in said


def test_where_no_leader_move_helps_the_file_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--snapshot", written(EVEN), "--kafka-json", "moves.json"]) == 0

    said = capsys.readouterr()
    assert "No leader move would help: moves.json contains no moves." in said.err
    assert "To move leaders" not in said.out
    assert json.loads(Path("moves.json").read_text()) == {"version": 1, "partitions": []}


def test_the_commands_name_the_cluster_that_was_asked(
    live: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    live.brokers = list(LEFT.brokers)
    live.partitions = {p.name: p for p in LEFT.partitions}
    live.settings = {topic: {"min.insync.replicas": "1"} for topic in LEFT.topics}

    assert run(["audit", "--bootstrap-server", "b1:9092,b2:9092"]) == 0

    assert "--bootstrap-server b1:9092,b2:9092 " in capsys.readouterr().out.splitlines()[-1]


# ---------------------------------------------------------------- the page


def test_the_report_is_one_page_with_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--snapshot", written(UNEVEN), "--report", "audit.html"]) == 0

    page = Path("audit.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "audit.html" in capsys.readouterr().err
