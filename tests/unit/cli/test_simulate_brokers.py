"""`trimtab simulate brokers`, from options to what is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.cli.main import run

QUICK = ("--arrivals", "500", "--seeds", "2", "--utilisation", "0.5", "--dispatchers", "1")
SNAPSHOT: dict[str, Any] = {
    "v": 1,
    "brokers": [{"id": 7, "capacity": 2.0}, {"id": 42}],
    "partitions": [
        {"topic": "A", "partition": 0, "leader": 7, "replicas": [7], "isr": [7]},
        {"topic": "A", "partition": 1, "leader": 42, "replicas": [42], "isr": [42]},
        {"topic": "B", "partition": 0, "leader": -1, "replicas": [7], "isr": []},
        {"topic": "__own", "partition": 0, "leader": 42, "replicas": [42], "isr": [42]},
        {"topic": "trimtab.rates", "partition": 0, "leader": 7, "replicas": [7], "isr": [7]},
    ],
}


@pytest.fixture
def brokers(tmp_path, monkeypatch, capsys):
    """Runs the verb in a folder of its own; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def command(*options):
        code = run(["simulate", "brokers", *options])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_it_prints_waits_beside_theory(brokers):
    code, out, _ = brokers(*QUICK, "--brokers", "2", "--policies", "random,jsq,least-work")

    assert code == 0
    assert "2 brokers, 0.5 busy" in out
    assert all(policy in out for policy in ("random", "jsq", "least-work"))


def test_the_json_is_the_same_each_time_and_in_the_file(brokers, tmp_path):
    options = (*QUICK, "--policies", "jiq,sqf", "--json")
    code, first, _ = brokers(*options, "-o", "out.json")
    _, second, _ = brokers(*options)

    assert code == 0
    assert first == second == (tmp_path / "out.json").read_text()
    value = json.loads(first)
    assert value["arrivals"] == 500
    assert [cell["policy"] for cell in value["cells"]] == ["jiq", "sqf"]
    assert set(value["cells"][0]) >= {"mean_wait", "half_width", "p95", "p99", "closed_form"}


def test_another_seed_gives_other_waits(brokers):
    one, other = (
        json.loads(brokers(*QUICK, "--policies", "random", "--json", "--seed", seed)[1])
        for seed in ("0", "5")
    )

    assert one["cells"][0]["mean_wait"] != other["cells"][0]["mean_wait"]


def test_a_topology_may_be_a_snapshot_file(brokers, tmp_path):
    (tmp_path / "snapshot.json").write_text(json.dumps(SNAPSHOT))

    code, out, err = brokers(*QUICK, "--policies", "node", "--topology", "snapshot.json", "--json")

    value = json.loads(out)
    assert code == 0
    assert value["brokers"] == {"7": 2.0, "42": 1.0}
    assert list(value["leaders"]) == ["A"]
    assert value["cells"][0]["shares"] == pytest.approx({"7": 0.5, "42": 0.5}, abs=0.01)
    assert "topic B has no leader" in err


def test_on_an_uneven_topic_default_overloads_a_broker(brokers):
    code, out, _ = brokers(
        *QUICK, "--utilisation", "0.9", "--topology", "U2", "--policies", "default,node", "--json"
    )

    default, node = json.loads(out)["cells"]
    assert code == 0
    assert default["overloaded"] == [2]
    assert default["mean_wait"] is None
    assert node["overloaded"] == []


def test_brokers_that_are_nearly_full_are_not_overloaded_by_chance(brokers):
    full = ("--utilisation", "0.99", "--brokers", "10", "--policies", "random,jsq", "--json")

    code, out, _ = brokers(*QUICK, *full)

    cells = json.loads(out)["cells"]
    assert code == 0
    assert max(max(cell["offered"].values()) for cell in cells) > 1
    assert [cell["overloaded"] for cell in cells] == [[], []]


def test_speeds_rates_foreign_load_and_a_slow_while_are_taken(brokers):
    code, out, _ = brokers(
        *QUICK,
        *("--topology", "6.4", "--policies", "weighted-node,least-work", "--json"),
        *("--speeds", "1,2,1", "--rate", "A:2", "--foreign", "3:0.2", "--slow", "1:0:0.4:0.5"),
    )

    assert code == 0
    assert json.loads(out)["brokers"] == {"1": 1.0, "2": 2.0, "3": 1.0}


@pytest.mark.parametrize("name", ["waits.svg", "waits.png"])
def test_a_picture_is_drawn_where_asked(brokers, tmp_path, name):
    code, _, err = brokers(*QUICK, "--policies", "random,jiq", "--plot", name)

    assert code == 0
    assert (tmp_path / name).stat().st_size > 1000
    assert name in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--utilisation", "1"), "must be below 1"),
        (("--utilisation", "0.5,1.2"), "values between 0 and 1"),
        (("--utilisation", "0"), "greater than 0"),
        (("--utilisation", "half"), "takes numbers"),
        (("--utilisation", ","), "needs at least one"),
        (("--dispatchers", "0"), "integers of at least 1"),
        (("--policies", ""), "needs at least one"),
        (("--service", "normal"), "exponential or constant"),
        (("--speeds", "1,1"), "for each of 10 brokers"),
        (("--brokers", "2", "--speeds", "1,0"), "number above 0"),
        (("--topology", "U2", "--brokers", "2"), "Give one of them"),
        (("--topology", "U3"), "B2, U2, 6.4"),
        (("--rate", "A:1"), "takes TOPIC:X"),
        (("--foreign", "11:0.5"), "takes BROKER:X"),
        (("--foreign", "1:1"), "below 1"),
        (("--brokers", "2", "--foreign", "1:0.9", "--foreign", "2:0.9"), "foreign load alone"),
        (("--slow", "1:0.5"), "BROKER:SPEED:FROM:TO"),
        (("--slow", "1:0.5:0.6:0.4"), "BROKER:SPEED:FROM:TO"),
        (("--slow", "99:0.5:0.4:0.6"), "BROKER:SPEED:FROM:TO"),
        (("--refresh", "0"), "0 is not greater than 0"),
        (("--plot", "waits.pdf"), ".svg or .png"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_a_reason(brokers, options, says):
    code, out, err = brokers("--arrivals", "500", "--seeds", "1", *options)

    assert code == 2
    assert out == ""
    assert says in err


def test_an_unknown_policy_is_refused_with_the_nearest(brokers):
    code, _, err = brokers("--policies", "jsqq")

    assert code == 4
    assert 'Did you mean "jsq"?' in err


def test_a_file_without_leaders_is_refused(brokers, tmp_path):
    dark = {**SNAPSHOT, "partitions": [SNAPSHOT["partitions"][2]]}
    (tmp_path / "snapshot.json").write_text(json.dumps(dark))

    code, _, err = brokers("--topology", "snapshot.json")

    assert code == 2
    assert "No partition has a leader in snapshot.json" in err
