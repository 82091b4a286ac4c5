"""`trimtab plan keys` on files: what it prints and writes, and what it refuses in one line."""

import json
from typing import Any

import pytest

from tests.unit.plan.keys.test_situation import heavy, measurement, partition
from trimtab.cli.main import run
from trimtab.model.codec import measurement_to
from trimtab.model.plan import KeyPlan
from trimtab.model.plan_codec import read_plan

COUNTS: dict[str, Any] = {
    "v": 1,
    "partitions": 2,
    "window_s": 10,
    "threshold": 100,
    "keys": [
        {"key": "a", "count": 900, "partition": 0},
        {"key": "b", "count": 300, "partition": 0},
    ],
    "partition_totals": [1700, 1100],
}
MEASURED = measurement_to(
    measurement(
        [partition(0, 1700.0), partition(1, 1100.0)],
        [heavy(b"a", 900, 900 / 2800, 0), heavy(b"b", 300, 300 / 2800, 0)],
    )
)


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path, monkeypatch):
    """No setting of the person who runs the tests plays a part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "CONFIG"):
        monkeypatch.delenv(f"TRIMTAB_{name}", raising=False)


@pytest.fixture
def plan(tmp_path, capsys):
    """Runs `trimtab plan keys` on a file; returns exit code, stdout, stderr."""

    def command(content, *options, what="--counts"):
        path = tmp_path / "file.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        code = run(["plan", "keys", what, str(path), *options])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_partitions_and_moves_are_printed_with_reasons_and_the_bound(plan):
    code, out, err = plan(COUNTS, "--topic", "orders")

    assert (code, err) == (0, "")
    assert "for keys of orders by trim" in out
    assert "imbalance  1.214 → 1" in out
    assert "no plan can do better" in out
    assert "1700 → 1400" in out
    assert "balance: partition 0 had 1700, 1 had 1100" in out


def test_the_plan_and_a_report_are_written(plan, tmp_path):
    code, out, _ = plan(COUNTS, "--json", "-o", "plan.json", "--report", "plan.html")

    assert code == 0
    written, warnings = read_plan(tmp_path / "plan.json")
    assert isinstance(written, KeyPlan)
    assert warnings == []
    assert json.loads(out)["id"] == json.loads((tmp_path / "plan.json").read_text())["id"]
    page = (tmp_path / "plan.html").read_text()
    assert 'aria-label="load of each partition, before and after"' in page


def test_a_measurement_is_planned(plan):
    code, out, err = plan(MEASURED, "--json", what="--loads")

    assert code == 0
    assert [move["key"] for move in json.loads(out)["moves"]] == ["b"]
    assert "all keys are at their home partitions" in err
    assert "were measured" in err


def test_options_go_to_the_planner_that_reads_them(plan):
    code, out, _ = plan(
        COUNTS,
        "--json",
        *("--planner", "smalops", "--initial", "home", "--load", "total"),
        *("--cool-below", "threshold", "--threshold", "count:200", "--max-moves", "4"),
        *("--worth", "delay", "--service", "2ms", "--state-cost", "1ms", "--plan-number", "3"),
    )

    assert code == 0
    made = json.loads(out)
    assert made["params"] == {
        "partitions": 2,
        "window_s": 10,
        "threshold": 200,
        "load": "total",
        "plan_number": 3,
        "cool_below": "threshold",
        "initial": "home",
        "max_moves": 4,
        "service_s": 0.002,
        "state_s": 0.001,
        "worth": "delay",
        "threshold_form": "count:200",
    }


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--initial", "home"], 2, "--initial is not supported by trim."),
        (["--plan-number", "1"], 2, "--plan-number is not supported by trim."),
        (["--planner", "smalops", "--noise", "3"], 2, "--noise is not supported by smalops."),
        (["--planner", "mwf"], 4, 'There is no planner "mwf" for keys'),
        (["--threshold", "often"], 2, "Invalid threshold 'often'."),
        (["--threshold", "coverage:0.9"], 3, "The tracked keys cover only 1200 records"),
        (["--worth", "eq4"], 2, "Give a service time above 0 (--service)."),
        (["--planner", "smalops", "--plan-number", str(2**64)], 2, "'--plan-number'"),
        (["--service", "1ms"], 2, "--service is only used to test moves."),
        (["--max-age", "1m"], 2, "--max-age is for a measurement"),
        (["--since", "1m"], 2, "--since is for a topic that is measured now"),
    ],
)
def test_options_that_do_not_fit_are_refused(plan, options, code, message):
    found, out, err = plan(COUNTS, *options)

    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"partitions": 1, "partition_totals": [2800]}, 4, "only one partition"),
        ({"keys": [{"key": "a", "count": -1, "partition": 0}]}, 2, "keys[0].count"),
        ({"keys": [{"key": "a", "count": 1, "partition": 5}]}, 2, "the partitions are 0 to 1"),
        ({"partition_totals": [1000, 1100]}, 2, "have 1200 records, but its total is 1000"),
        ({"partition_totals": [1700]}, 2, "partition_totals has 1 numbers for 2 partitions"),
        ({"keys": [{"key": "a", "count": 1, "partition": 0}] * 2}, 2, "listed twice"),
        (
            {"keys": [{"key": "a", "count": 900, "upper": 1200, "partition": 0}]},
            3,
            "A threshold of 100 records is not above the error bound of 300",
        ),
    ],
)
def test_bad_counts_are_refused_in_one_line(plan, change, code, message):
    found, out, err = plan(COUNTS | change)

    assert (found, out) == (code, "")
    assert message in err.splitlines()[0]
    assert len(err.splitlines()) <= 2  # the error, and a hint


def test_a_file_of_another_kind_or_none_at_all_is_refused(plan, capsys):
    loads = {"v": 1, "capacity": 1, "steps": [{"loads": {"orders": {"0": 1}}}]}

    assert plan(loads, what="--loads")[0] == 2
    assert run(["plan", "keys"]) == 2
    assert "There is nothing to plan for." in capsys.readouterr().err
    assert plan(COUNTS, "--loads", "file.json")[0] == 2


def test_apply_and_evaluate_say_that_keys_are_not_carried_out_yet(plan, capsys):
    plan(COUNTS, "-o", "plan.json")

    assert run(["apply", "plan.json"]) == 0
    out, err = capsys.readouterr()
    assert "for keys by trim" in out
    assert "Plans for keys cannot be carried out by this release: keys are moved by a " in err
    assert run(["apply", "plan.json", "--execute", "--bootstrap-server", "localhost:1"]) == 2
    assert "Plans for keys cannot be carried out by this release" in capsys.readouterr().err
    assert run(["apply", "plan.json", "--rollback"]) == 2
    assert "Plans for keys cannot be carried out by this release" in capsys.readouterr().err
    assert run(["evaluate", "plan", "plan.json", "--bootstrap-server", "localhost:1"]) == 2
    assert "Plans for keys cannot be evaluated by this release." in capsys.readouterr().err
