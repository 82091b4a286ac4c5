"""The simulation services for packing planners."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.services.listening import Told
from tests.unit.simulate.recorded import warehouse
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps, loads_to
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import PackingContext
from trimtab.plan.registry import planner_of
from trimtab.services.simulate import (
    RandomWalk,
    ReplayRequest,
    replay_planners,
    simulate_planners,
    walk_loads,
)

MWF, BFD = planner_of(Layer.CONSUMERS, "mwf"), planner_of(Layer.CONSUMERS, "bfd")
WALK = RandomWalk(partitions=4, iterations=2, seed=3)


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    file = tmp_path / "stream.json"
    file.write_text(dumps(loads_to(walk_loads(WALK))))
    return file


def test_equal_walks_give_equal_loads() -> None:
    made = walk_loads(WALK)

    assert made == walk_loads(WALK)
    assert (len(made.steps), len(made.steps[0].loads)) == (3, 4)


def test_a_walk_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match="Invalid stream"):
        walk_loads(RandomWalk(partitions=4, start=7.0))


def test_each_planner_runs_over_the_whole_stream(stream: Path) -> None:
    told = Told()

    runs = simulate_planners(stream, [MWF, BFD], PackingContext(), listener=told)

    assert [(run.planner, len(run.steps)) for run in runs] == [("mwf", 3), ("bfd", 3)]
    assert told.steps[-1] == ("bfd", 6, 6)


@pytest.mark.parametrize("dead", ["3:0", "x:0", "1"])
def test_a_consumer_dies_at_a_step_that_exists(stream: Path, dead: str) -> None:
    simulate_planners(stream, [MWF], PackingContext(), dead=["1:0"])

    with pytest.raises(ConfigError, match="--dead takes STEP:N"):
        simulate_planners(stream, [MWF], PackingContext(), dead=[dead])


def test_a_planner_that_needs_records_warns_of_bytes(stream: Path) -> None:
    told = Told()

    latency = planner_of(Layer.CONSUMERS, "ll-ffd")
    simulate_planners(stream, [latency], PackingContext(sla_s=5.0), listener=told)

    assert ["ll-ffd compares loads in bytes/s" in line for line in told.warnings] == [True]


def test_a_history_is_replayed(tmp_path: Path) -> None:
    told = Told()
    request = ReplayRequest(history=warehouse(tmp_path / "w"), capacity=8.0)

    past, [found] = replay_planners(request, [MWF], PackingContext(), listener=told)

    assert (past.window_s, len(past.names)) == (30, 1)
    assert found.planner == "mwf"
    assert found.replica_minutes == pytest.approx(0.5)
    assert {(name, total) for name, _, total in told.steps} == {("mwf", 100)}


def test_consumers_that_cannot_be_simulated_are_refused(tmp_path: Path) -> None:
    request = ReplayRequest(history=warehouse(tmp_path / "w"), capacity=8.0, step_s=60.0)

    with pytest.raises(ConfigError, match="Invalid simulation"):
        replay_planners(request, [MWF], PackingContext())
