import json
from contextlib import contextmanager
from typing import Any

import pytest

from trimtab.cli.main import run
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.model.codec import measurement_to
from trimtab.model.load import Measurement, PartitionLoad, Source
from trimtab.model.plan_codec import read_plan
from trimtab.testing.fakes import FakeAdmin

LOADS: dict[str, Any] = {
    "v": 1,
    "capacity": 100,
    "assignment": {"orders": {"0": 0, "1": 0}},
    "steps": [{"loads": {"orders": {"0": 60, "1": 50}, "pay": {"0": 10}}}],
}


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path, monkeypatch):
    """No setting of the person who runs the tests plays a part, and no cluster may be asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRIMTAB_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("TRIMTAB_COMMAND_CONFIG", raising=False)
    monkeypatch.delenv("TRIMTAB_CONFIG", raising=False)

    def refuse(settings):
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr(Cluster, "admin", refuse)


@pytest.fixture
def plan(tmp_path, capsys):
    """Runs `trimtab plan consumers` on a file; returns exit code, stdout, stderr."""

    def command(content, *options):
        path = tmp_path / "loads.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        code = run(["plan", "consumers", "--loads", str(path), *options])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def measured(number, bytes_s=10.0, topic="orders", complete=True):
    return PartitionLoad(
        topic=topic,
        partition=number,
        bytes_s=bytes_s,
        records_s=1.0,
        source=Source.LOG_DIRS,
        complete=complete,
    )


def measurement(*partitions):
    value = Measurement(
        cluster=None, from_ts=0, to_ts=1, window_s=1, rejects=0, partitions=partitions
    )
    return measurement_to(value)


@pytest.fixture
def live(monkeypatch):
    """A cluster in memory: orders has three partitions, and group g reads them with two members."""
    one = (BrokerId(1),)
    places = [
        Replicas(topic="orders", partition=n, leader=one[0], replicas=one, isr=one)
        for n in range(3)
    ]
    members = tuple(
        Member(
            member_id=name,
            client_id="",
            host="",
            partitions=frozenset(TopicPartition("orders", n) for n in numbers),
        )
        for name, numbers in (("zoe", (0, 1)), ("amy", (2,)))
    )
    admin = FakeAdmin(
        brokers=[Broker(id=one[0])],
        partitions=places,
        groups=[Group(name="g", state="STABLE", members=members)],
    )

    @contextmanager
    def admin_of(settings):
        yield admin

    monkeypatch.setattr(Cluster, "admin", admin_of)
    monkeypatch.setenv("TRIMTAB_BOOTSTRAP_SERVER", "live:9092")
    return admin


def test_a_plan_from_a_loads_file_is_shown_without_asking_any_cluster(plan):
    code, out, err = plan(LOADS, "--group", "g")
    assert (code, err) == (0, "")
    assert "by trim for group g" in out
    assert "orders-1" in out


def test_json_is_one_document_and_nothing_else(plan):
    code, out, _ = plan(LOADS, "--json", "--planner", "bfd")
    assert code == 0
    assert (json.loads(out)["kind"], json.loads(out)["planner"]) == ("plan", "bfd")


def test_the_plan_is_written_to_a_file_and_shown_all_the_same(plan, tmp_path):
    path = tmp_path / "plan.json"
    code, out, _ = plan(LOADS, "-o", str(path), "--group", "g")
    assert code == 0
    assert "Consumers" in out
    written, warnings = read_plan(path)
    assert (written.scope.group, warnings) == ("g", [])
    assert not [p.name for p in path.parent.iterdir() if "part" in p.name]


def test_the_plan_is_also_written_as_a_page_with_the_load_of_each_consumer(plan, tmp_path):
    code, out, err = plan(LOADS, "--report", str(tmp_path / "plan.html"))

    assert (code, "Plan" in out) == (0, True)
    assert "plan.html" in err
    html = (tmp_path / "plan.html").read_text()
    assert "load of each consumer, before and after" in html
    assert "orders-0" in html or "orders-1" in html


def test_a_page_in_a_missing_folder_is_refused_before_planning(plan, tmp_path):
    code, _, err = plan(LOADS, "--report", str(tmp_path / "no" / "plan.html"))

    assert code == 2
    assert "mkdir -p" in err


def test_equal_input_gives_an_equal_id(plan):
    ids = {json.loads(plan(LOADS, "--json")[1])["id"] for _ in range(2)}
    assert len(ids) == 1


@pytest.mark.parametrize("planner", ["trim", "exact"])
def test_a_time_limit_is_taken_by_planners_that_search(plan, planner):
    code, out, err = plan(LOADS, "--json", "--planner", planner, "--time-limit", "20s")
    assert code == 0, err
    assert json.loads(out)["params"]["time_limit_s"] == 20


def test_only_the_topics_asked_for_are_planned(plan):
    _, out, _ = plan(LOADS, "--json", "--topic", "pay")
    assert json.loads(out)["assignment"] == {"pay": {"0": 0}}


def test_the_capacity_of_the_command_line_wins(plan):
    _, out, _ = plan(LOADS, "--json", "--capacity", "110", "--topic", "orders")
    found = json.loads(out)
    assert (found["params"], found["moves"]) == ({"capacity": 110}, [])


def test_the_partitions_of_a_dead_consumer_are_orphans(plan):
    _, out, err = plan(LOADS, "--json", "--dead", "0", "--dead", "9")
    found = json.loads(out)
    assert {m["reason"] for m in found["moves"]} == {"orphan", "arrival"}
    assert found["cost"]["orphan_load"] == 110
    assert "--dead 9: that consumer reads nothing" in err


def test_warnings_go_to_stderr(plan):
    code, out, err = plan({**LOADS, "capacty": 1}, "--json")
    assert code == 0
    json.loads(out)
    assert 'field "capacty" is unknown' in err.replace("\n", " ")


def test_an_assignment_that_no_load_belongs_to_is_named(plan, tmp_path):
    code, _, err = plan({**LOADS, "assignment": {"order": {"0": 0}, "orders": {"0": 0}}})
    assert code == 0
    path = tmp_path / "loads.json"
    assert err == f"{path} assigns order-0 but gives no load: left out of the plan.\n"


def test_a_step_without_loads_is_warned_of(plan):
    code, _, err = plan({**LOADS, "assignment": {}, "steps": [{"loads": {}}]})
    assert code == 0
    assert err == "warning: there are no loads: the plan is empty\n"


def test_a_bad_file_gets_one_line_and_exit_code_2(plan, tmp_path):
    code, out, err = plan('{"v":1,"capacity":')
    assert (code, out) == (2, "")
    where = f"{tmp_path / 'loads.json'}: line 1 column 19"
    assert err == f"error: {where}: the JSON ends too early (truncated?)\n"


def test_an_unknown_planner_has_exit_code_4(plan):
    code, _, err = plan(LOADS, "--planner", "mfw")
    assert code == 4
    assert ", bfd, " in err
    assert 'Did you mean "mwf"?' in err


def test_a_file_with_several_steps_needs_one_to_be_named(plan):
    many = {**LOADS, "steps": LOADS["steps"] * 3}
    code, _, err = plan(many)
    assert code == 2
    assert "3 step" in err
    assert "--step" in err
    assert plan(many, "--step", "2")[0] == 0
    assert plan(many, "--step", "3")[0] == 2


def test_a_measurement_needs_a_capacity(plan):
    code, _, err = plan(measurement(measured(0)))
    assert code == 2
    assert "--capacity" in err


def test_a_measurement_has_no_steps(plan):
    assert plan(measurement(measured(0)), "--capacity", "9", "--step", "0")[0] == 2


def test_a_measurement_without_a_group_plans_all_partitions_as_new(plan):
    code, out, err = plan(measurement(measured(0)), "--capacity", "100", "--json")
    assert code == 0
    assert json.loads(out)["moves"][0]["reason"] == "arrival"
    assert "every partition is planned as a new one" in err


def test_unknown_rates_are_refused_with_exit_code_3(plan):
    unknown = measurement(measured(0, bytes_s=None))
    code, out, err = plan(unknown, "--capacity", "100", "--allow-incomplete")
    assert (code, out) == (3, "")
    assert "orders-0" in err


def test_doubtful_loads_are_warned_of_on_stderr_and_planned_with(plan):
    thin = measurement(measured(0, bytes_s=0.0), measured(1, bytes_s=0.0, complete=False))
    code, out, err = plan(thin, "--capacity", "100", "--json")
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert code == 0
    assert json.loads(out)["moves"]
    told = zip(("all loads are 0", "ago", "orders-1 is incomplete"), warnings, strict=True)
    assert all(word in line for word, line in told)
    _, _, quiet = plan(thin, "--capacity", "100", "--allow-incomplete")
    assert [line for line in quiet.splitlines() if "warning" in line] == warnings[:2]


def test_loads_are_taken_in_the_unit_asked_for(plan):
    _, out, _ = plan(measurement(measured(0)), "--capacity", "9", "--unit", "records/s", "--json")
    found = json.loads(out)
    assert (found["params"]["unit"], found["moves"][0]["load"]) == ("records/s", 1)


def test_with_a_measurement_the_live_group_says_who_reads_what(plan, live):
    three = measurement(*map(measured, range(3)), measured(0, topic="unread"))
    code, out, _ = plan(three, "--capacity", "15", "--group", "g", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["scope"] == {"group": "g", "topics": ["orders"]}
    assert [(m["partition"], m["from"], m["reason"]) for m in found["moves"]] == [
        (0, 0, "overload")
    ]


def test_loads_of_another_cluster_are_said(plan, live):
    three = measurement(*map(measured, range(3)))
    _, _, unsaid = plan(three, "--capacity", "15", "--group", "g")
    code, _, err = plan({**three, "cluster": "other"}, "--capacity", "15", "--group", "g")
    assert code == 0
    assert "was measured on cluster other, not on fake" in " ".join(err.split())
    assert "was measured on" not in unsaid


def test_a_live_partition_that_was_not_measured_is_refused(plan, live):
    two = measurement(measured(0), measured(1))
    code, _, err = plan(two, "--capacity", "100", "--group", "g")
    assert code == 3
    assert "orders-2" in err


def test_a_loads_file_with_a_bootstrap_server_is_planned_for_the_live_group(plan, live):
    loads = {"v": 1, "capacity": 15, "steps": [{"loads": {"orders": {"0": 9, "1": 9, "2": 9}}}]}
    _, out, _ = plan(loads, "--group", "g", "--bootstrap-server", "h:1", "--json")
    assert json.loads(out)["before"]["consumers"] == 2


def test_a_group_that_reads_nothing_needs_topics(plan, live):
    three = measurement(*map(measured, range(3)))
    code, _, err = plan(three, "--capacity", "15", "--group", "absent")
    assert code == 2
    assert 'Group "absent" reads no topic' in err
    assert plan(three, "--capacity", "15", "--group", "absent", "--topic", "orders")[0] == 0


def test_a_topic_that_the_cluster_does_not_have_is_refused(plan, live):
    both = measurement(measured(0, topic="gone"))
    code, _, err = plan(both, "--capacity", "15", "--group", "g", "--topic", "gone")
    assert code == 2
    assert 'no topic "gone"' in err
