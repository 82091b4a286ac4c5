"""The flags of `trimtab steer`, and how it shows what it sees."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from trimtab.apply.records.kafka import steering as door
from trimtab.apply.records.kafka.steering import SteeringReport, SteeringStep
from trimtab.apply.records.steering import BrokerVerdict, Observation, WeightReason
from trimtab.cli import steer
from trimtab.cli.main import run
from trimtab.model.weights import Weights

BASE = ["steer", "--bootstrap-server", "broker:9092"]
TOLD = SteeringStep(
    weights=Weights(ts=7, valid_s=10, weights={1: 1.0, 2: 0.05}),
    verdicts={
        1: BrokerVerdict(
            weight=1.0, why=WeightReason.WELL, reason="as good as the best", slowness=1.0
        ),
        2: BrokerVerdict(
            weight=0.05,
            why=WeightReason.SLOW,
            reason="3.8 × as slow as the best",
            slowness=3.8,
            latency_s=0.04,
        ),
    },
    seen={1: Observation(), 2: Observation(bytes_s=1e6, records_s=10.0)},
    changed=True,
    published=True,
)


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path, monkeypatch):
    """No setting of the person who runs the tests plays a part."""
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "CONFIG", "TOPIC_PREFIX"):
        monkeypatch.delenv(f"TRIMTAB_{name}", raising=False)


@pytest.fixture
def opened(monkeypatch):
    """What would have been opened, instead of a cluster; it tells of two looks."""
    seen: list[dict[str, object]] = []

    @contextmanager
    def open_steering(cluster, **asked):
        seen.append({"cluster": cluster, **asked})

        class Steering:
            def run(self, stop, *, for_s=None):
                seen[-1]["for_s"] = for_s
                asked["on_step"](TOLD)
                asked["on_step"](SteeringStep(weights=TOLD.weights, verdicts=TOLD.verdicts))
                return SteeringReport(steps=2, changes=1, published=1, weights={1: 1.0, 2: 0.05})

        yield Steering()

    monkeypatch.setattr(door, "open_steering", open_steering)
    return seen


def test_without_execute_nothing_is_published(opened, capsys):
    assert run(BASE) == 0

    assert opened[0]["execute"] is False
    assert "Dry run" in capsys.readouterr().err


def test_the_flags_say_how_often_how_long_and_for_what_prefix(opened, monkeypatch):
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", "tt.")
    assert run([*BASE, "--execute", "--interval", "400ms", "--valid", "6s", "--for", "1m"]) == 0

    asked = opened[0]
    assert (asked["execute"], asked["interval_s"], asked["valid_s"], asked["for_s"]) == (
        *(True, 0.4, 6.0, 60.0),
    )
    assert asked["cluster"].topics.weights == "tt.weights"


def test_off_a_terminal_each_change_is_a_line_with_its_reason(opened, capsys):
    run(BASE)

    assert capsys.readouterr().out.splitlines() == [
        "1: 1.00  2: 0.05 (3.8 × as slow as the best)",
        "2 updates, 1 changes, 1 records published",
    ]


SLOW = replace(
    TOLD.verdicts[2], reason="slow by its load before: kept below 0.35 for 27 s", latency_s=0.1234
)
BUSY = Observation(bytes_s=12_340_000, records_s=1e4, requests_s=(0.0523,))


@pytest.mark.parametrize(
    ("width", "bytes_s", "table"), [(80, 12_340_000, True), (80, 1.2e15, False), (40, 1e6, False)]
)
def test_on_a_terminal_no_name_and_no_figure_is_cut(opened, monkeypatch, width, bytes_s, table):
    shown = io.StringIO()
    screen = Console(file=shown, force_terminal=True, width=width, highlight=False)
    monkeypatch.setattr(steer, "talk", screen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    told = replace(
        TOLD,
        verdicts={**TOLD.verdicts, 2: SLOW},
        seen={1: Observation(), 2: replace(BUSY, bytes_s=bytes_s)},
    )

    with steer._shown(as_json=False) as show:
        show(told)

    out = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    words = re.findall(r"[^\s│()]+", out)
    assert set(SLOW.reason.split()) <= set(words)
    assert ("123.4" in words) is table
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width


def test_json_is_a_line_for_each_change_and_one_in_all(opened, capsys):
    run([*BASE, "--json"])

    change, report = map(json.loads, capsys.readouterr().out.splitlines())
    assert change["weights"] == {"1": 1.0, "2": 0.05}
    assert change["valid_s"] == 10
    assert change["brokers"]["2"] == {
        "weight": 0.05,
        "why": "slow",
        "reason": "3.8 × as slow as the best",
        "slowness": 3.8,
        "probe_p90_s": 0.04,
        "bytes_s": 1000000.0,
        "records_s": 10.0,
    }
    assert report == {"steps": 2, "changes": 1, "published": 1, "weights": {"1": 1.0, "2": 0.05}}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--interval", "10ms"], "too short"),
        (["--interval", "2s", "--valid", "5s"], "expire between two updates"),
    ],
)
def test_intervals_that_cannot_work_are_refused(opened, capsys, flags, complaint):
    assert run([*BASE, *flags]) == 2

    assert complaint in capsys.readouterr().err
    assert opened == []
