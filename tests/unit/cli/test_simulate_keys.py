"""`trimtab simulate keys`, from options to what is printed."""

from __future__ import annotations

import json

import pytest

from trimtab.cli.main import run
from trimtab.simulate.keys.registry import key_policies

QUICK = (
    *("--rate", "2000", "--duration", "4s", "--window", "1s", "--service-time", "2ms"),
    *("--keys", "1000", "--threshold", "20", "--partitions", "5"),
)


@pytest.fixture
def keys(tmp_path, monkeypatch, capsys):
    """Runs the verb in a folder of its own; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def command(*options):
        code = run(["simulate", "keys", *options])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_it_prints_delays_and_costs_of_each_policy(keys):
    code, out, _ = keys(*QUICK, "--policies", "hash, trim,pkg", "--shards", "3")

    assert code == 0
    for word in ("hash", "trim", "pkg", "p99.9", "within SLA", "tracked", "order within a key"):
        assert word in out
    assert "8,104 records in 4 windows of 1 s; partitions are 80.0% busy" in out
    assert "A lossy counter needs" in out
    assert "Imbalance between gateway shards" in out


def test_the_json_is_the_same_each_time_and_in_the_file(keys, tmp_path):
    options = (*QUICK, "--policies", "all", "--json", "--sla", "10ms")
    code, first, _ = keys(*options, "-o", "out.json")
    _, second, _ = keys(*options)

    assert code == 0
    assert first == second == (tmp_path / "out.json").read_text()
    value = json.loads(first)
    assert value["sla_s"] == 0.01
    assert [one["policy"] for one in value["policies"]] == list(key_policies())
    assert set(value["policies"][0]["delays"]) >= {"p50", "p90", "p99", "p99.9", "within_sla"}
    assert [window["records"] for window in value["arrivals"]] == [2011, 1993, 2062, 2038]
    assert len(value["policies"][0]["windows"]) == 4
    assert len(value["policies"][0]["minutes"]) == 1


def test_another_seed_gives_other_records(keys):
    _, one, _ = keys(*QUICK, "--policies", "hash", "--json")
    _, other, _ = keys(*QUICK, "--policies", "hash", "--json", "--seed", "1")

    assert json.loads(one)["records"] != json.loads(other)["records"]


def test_a_report_is_written(keys, tmp_path):
    code, _, err = keys(*QUICK, "--policies", "hash,gedik", "--no-sketch", "--report", "k.html")

    assert code == 0
    assert "k.html" in err
    page = (tmp_path / "k.html").read_text()
    assert page.count("<svg") == 3
    assert "three windows" in page, "what was chosen for gedik"


def test_a_run_of_one_window_is_doubtful(keys):
    code, out, err = keys(*QUICK, "--duration", "1s")

    assert code == 0
    assert "no policy has decided anything" in err
    assert "hash" in out


def test_too_much_load_is_doubtful(keys):
    code, _, err = keys(*QUICK, "--rate", "4000")

    assert code == 0
    assert "faster than all partitions together can serve them (160%)" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policies", "hash,smalop"), 'There is no policy "smalop"'),
        (("--policies", "smalop"), 'Did you mean "smalops"?'),
        (("--policies", ","), "--policies needs at least one policy"),
        (("--threshold", "0.5"), "Invalid threshold '0.5'"),
        (("--threshold", "share:2"), "a share must be above 0 and at most 1"),
        (("--partitions", "1"), "greater than or equal to 2"),
        (("--partitions", "70000"), "partitions must be between 2 and 65536"),
        (("--service-time", "0"), "must be greater than 0"),
        (("--service-time", "fast"), "invalid duration 'fast'"),
        (("--rate", "-3"), "is not greater than 0"),
        (("--rate", "nan"), "is not a finite number"),
        (("--rate", "1e12"), "records are too many to simulate"),
        (("--duration", "0"), "must be greater than 0"),
        (("--smooth", "2"), "smooth must be above 0 and at most 1"),
    ],
)
def test_wrong_options_are_named(keys, options, message):
    code, out, err = keys(*QUICK, *options)

    assert code == 2
    assert out == ""
    assert message in err
