import json
import signal
from concurrent.futures import Future
from contextlib import nullcontext

import pytest

from tests.unit.report.report_values import SETTINGS, STATES, history, measurement, plan
from trimtab.audit.topology import audit
from trimtab.cli.main import run
from trimtab.model.codec import measurement_to, read_loads
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.model.plan_codec import plan_id, plan_to, read_plan
from trimtab.plan.keys.plan import plan_keys
from trimtab.plan.registry import planner_of
from trimtab.services.plan_keys import PlannedKeys
from trimtab.settings import load_settings
from trimtab.testing.placements import placement
from trimtab_lab.demo import steps
from trimtab_lab.demo.outcome import DemoOutcome, Loop, loop_summary, write
from trimtab_lab.demo.script import Script

LOOP = Loop(
    rate_s=150.0,
    duration_s=30.0,
    sla_s=5.0,
    figures={
        "records": 4500,
        "sla_share": 0.9991,
        "p99_s": 1.234,
        "replica_minutes": 0.95,
        "most_replicas": 2,
        "handover": {"moves": 5, "p50_s": 0.2, "p90_s": 0.41, "max_s": 0.5},
        "blocked": {"moves": 5, "p50_s": None, "p90_s": None, "max_s": None},
        "order_findings": 0,
        "changes": [[-9.0, "scale_up", 0, 1, "nobody reads"], [8.25, "scale_up", 1, 2, "overload"]],
    },
)

COUNTS = KeyCounts(
    partitions=2,
    window_s=10,
    threshold=10,
    keys=(KeyCount(key=b"heavy", count=900, partition=0),),
    partition_totals=(5000, 1000),
)
PLANNED_KEYS = PlannedKeys(
    plan=plan_keys(COUNTS, planner=planner_of(Layer.KEYS, "trim"), made_ts=1, topic="orders"),
    counts=COUNTS,
)
PLACED = placement({"orders": [[1, 2], [2, 1]]})


def outcome():
    found = measurement()
    return DemoOutcome(
        measurement=found,
        states=STATES,
        stored_ratio=1.2,
        history=history(),
        loads=found.loads(Unit.RECORDS_S),
        plan=plan(found),
        hot_keys=PLANNED_KEYS,
        loop=LOOP,
        facts=SETTINGS,
        placed=PLACED,
        audit=audit(PLACED),
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def told(monkeypatch, home):
    """Replaces the demo by its result; keeps what it was called with."""
    asked: dict[str, object] = {}

    def run_demo(script, settings, audience, *, folder, keep, verbose):
        asked.update(script=script, folder=folder, keep=keep, verbose=verbose)
        audience.step(3, "Skewed load")
        with audience.bar("sending (s)") as move:
            move(1, 30, "10 records acknowledged")
        return outcome(), write(outcome(), folder)

    monkeypatch.setattr(steps, "run_demo", run_demo)
    return asked


def test_the_tables_go_to_stdout_and_the_steps_to_stderr(told, home, capsys):
    assert run(["demo", "--rate", "500", "--partitions", "8", "--seed", "3"]) == 0

    out, err = capsys.readouterr()
    assert "Rates" in out
    assert "Heavy keys" in out
    assert "Lag" in out
    assert "Consumers" in out
    assert "[3/7] Skewed load" in err
    assert f"Report: {home / 'reports' / 'demo' / 'report.html'}" in err
    assert told["script"] == Script(rate_s=500, partitions=8, seed=3)
    assert told["keep"] is False


def test_json_is_one_document_with_report_measurement_plan_and_loop(told, tmp_path, capsys):
    assert run(["demo", "--json", "-o", str(tmp_path / "there")]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found == {
        "v": 1,
        "report": str(tmp_path / "there" / "report.html"),
        "measurement": measurement_to(measurement()),
        "plan": plan_to(plan()),
        "keys_plan": plan_to(PLANNED_KEYS.plan),
        "loop": LOOP.figures,
    }


def test_the_files_are_what_the_other_verbs_take(told, tmp_path):
    run(["demo", "-o", str(tmp_path)])

    assert read_loads(tmp_path / "measurement.json")[0] == measurement()
    assert read_plan(tmp_path / "plan.json")[0] == plan()
    assert read_plan(tmp_path / "keys-plan.json")[0] == PLANNED_KEYS.plan
    report = (tmp_path / "report.html").read_text()
    assert "Plan for hot keys" in report
    assert plan_id(PLANNED_KEYS.plan) in report
    assert plan_to(plan())["id"] in (tmp_path / "report.html").read_text()


def test_the_commands_to_try_next_work(told, home, capsys):
    run(["demo"])
    said = capsys.readouterr().err.splitlines()
    commands = [line.split()[1:] for line in said if line.startswith("  trimtab ")]

    codes = [run(command) for command in commands if command[0] in ("apply", "plan")]

    assert codes == [0, 0, 0]


def test_a_kept_cluster_is_named_with_how_to_end_it(told, capsys):
    run(["demo", "--keep"])

    assert "trimtab cluster down --name demo" in capsys.readouterr().err
    assert told["keep"] is True


def test_too_short_a_load_is_refused(told, capsys):
    assert run(["demo", "--duration", "5s"]) == 2

    assert "--duration must be at least 10s, not 5s." in capsys.readouterr().err
    assert told == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_with_130_and_the_old_handlers(number, monkeypatch, home):
    before = signal.getsignal(number)
    monkeypatch.setattr(steps, "run_demo", lambda *_, **__: signal.raise_signal(number))

    assert run(["demo"]) == 130

    assert signal.getsignal(number) is before


# ---------------------------------------------------------------- nothing stays behind


class _Cluster:
    """Keeps what is done to it, in the place of a real cluster."""

    bootstrap_servers = "127.0.0.1:1"

    def __init__(self, *_, **__):
        self.done = []

    def up(self):
        self.done.append("up")
        return self

    def down(self):
        self.done.append("down")


@pytest.fixture
def cluster(monkeypatch):
    made = _Cluster()

    session: Future[None] = Future()
    monkeypatch.setattr(steps, "LocalCluster", lambda *_, **__: made)
    monkeypatch.setattr(steps, "_starting_spark", lambda *_, **__: nullcontext(session))
    for jars in ("broker_jars", "connector_jars"):
        monkeypatch.setattr(steps, jars, lambda **_: ())
    return made


class _Silent:
    def step(self, number, title):
        pass

    def say(self, line):
        pass

    def warn(self, line):
        pass

    def bar(self, title):
        return nullcontext(lambda *_: None)


def play_with(monkeypatch, ending):
    def run_steps(*_):
        if isinstance(ending, BaseException):
            raise ending
        return ending

    monkeypatch.setattr(steps, "run_steps", run_steps)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), RuntimeError("broken")])
def test_however_it_ends_the_cluster_is_gone(ending, cluster, monkeypatch, tmp_path):
    play_with(monkeypatch, ending)

    with pytest.raises(type(ending)):
        steps.run_demo(Script(), load_settings(), _Silent(), folder=tmp_path)

    assert cluster.done == ["up", "down"]


@pytest.mark.parametrize(("keep", "done"), [(False, ["up", "down"]), (True, ["up"])])
def test_only_a_cluster_to_be_kept_stays(keep, done, cluster, monkeypatch, tmp_path):
    play_with(monkeypatch, outcome())

    steps.run_demo(Script(), load_settings(), _Silent(), folder=tmp_path, keep=keep)

    assert cluster.done == done


def test_cleaning_up_is_not_disturbed_by_another_interrupt(cluster, monkeypatch, tmp_path):
    play_with(monkeypatch, KeyboardInterrupt())
    down = cluster.down

    def impatient():
        signal.raise_signal(signal.SIGINT)
        down()

    monkeypatch.setattr(cluster, "down", impatient)

    with pytest.raises(KeyboardInterrupt):
        steps.run_demo(Script(), load_settings(), _Silent(), folder=tmp_path)

    assert cluster.done == ["up", "down"]


def test_the_group_has_something_to_spare_in_all():
    script = Script()

    assert script.pace_s * script.consumers == pytest.approx(script.rate_s * (1 + script.spare))


def test_the_loop_is_told_in_figures_and_changes():
    told = loop_summary(LOOP)

    assert told.sent == "up to 150 records/s for 30 s"
    assert [(f.value, f.name) for f in told.figures] == [
        ("99.9%", "within 5 s"),
        ("0.9", "replica-minutes"),
        ("5", "hand-overs"),
        ("0", "lost or reordered records"),
    ]
    assert told.figures[2].beside == "blocked p90 0.41 s"
    assert [tuple(change) for change in told.changes] == [
        ("0.0 s", "0 → 1", "nobody reads"),
        ("8.2 s", "1 → 2", "overload"),
    ]
    assert "<h2>Control loop</h2>" in outcome().page()
