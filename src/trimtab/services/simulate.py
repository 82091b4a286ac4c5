"""Runs packing planners on generated or recorded streams of loads, without a broker."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trimtab.errors import ConfigError
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Loads, LoadStep, Unit
from trimtab.model.scalars import tidy
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner, PlannerKind
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.simulate.fluid import FluidWorld
    from trimtab.simulate.packing import PackingRun
    from trimtab.simulate.replay import History, ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWalk:
    """A bounded random walk of each partition's load, as in Landau et al."""

    topic: str = "stream"
    seed: int = 0
    partitions: int = 200
    iterations: int = 500
    delta: float = 5.0
    capacity: float = 100.0
    start: Literal["uniform"] | float = "uniform"
    cap: Literal["capacity"] | float | None = "capacity"
    integer: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The recorded load to replay, and the consumers that read it.

    `service_rate`, `window_s` and `interval_s` have defaults that depend on the rest: 6/5 of the
    capacity, the most common window, and one window.
    """

    history: Path
    capacity: float
    unit: Unit = Unit.BYTES_S
    topics: Collection[str] = ()
    group: str | None = None
    service_rate: float | None = None
    window_s: float | None = None
    interval_s: float | None = None
    sla_s: float = 5.0
    block_s: float = 1.0
    startup_s: float = 0.0
    step_s: float = 0.1


def simulate_planners(
    stream: Path,
    planners: Sequence[PackingPlanner],
    context: PackingContext,
    *,
    dead: Sequence[str] = (),
    listener: ProgressListener = NO_LISTENER,
) -> list[PackingRun]:
    """Runs each planner over the stream; `dead` are consumers that fail, as `STEP:N`."""
    from trimtab.simulate.packing import simulate
    from trimtab.simulate.tables import read_stream

    loads, warnings = read_stream(stream)
    for line in warnings:
        listener.warning(line)
    _check(loads, planners, origin=str(stream), listener=listener)
    gone = _dead(dead, len(loads.steps))
    total = len(loads.steps) * len(planners)
    runs: list[PackingRun] = []
    for place, planner in enumerate(planners):
        done = place * len(loads.steps)

        def on_step(k: int, name: str = planner.name, done: int = done) -> None:
            listener.progress(name, done + k, total)

        runs.append(simulate(loads, planner, context, dead=gone, on_step=on_step))
    return runs


def walk_loads(walk: RandomWalk) -> Loads:
    """The loads of a random walk, step by step; equal walks give equal loads."""
    from trimtab.workload.rate_streams import landau_stream

    try:
        rows = landau_stream(
            seed=walk.seed,
            partitions=walk.partitions,
            iterations=walk.iterations,
            delta=walk.delta,
            capacity=walk.capacity,
            start=walk.start,
            cap=walk.cap,
            integer=walk.integer,
        ).tolist()
    except ValueError as error:
        raise ConfigError(f"Invalid stream: {error}.") from error
    names = [TopicPartition(walk.topic, number) for number in range(walk.partitions)]
    steps = tuple(LoadStep(loads=dict(zip(names, row, strict=True))) for row in rows)
    return Loads(capacity=tidy(walk.capacity), steps=steps)


def replay_planners(
    request: ReplayRequest,
    planners: Sequence[PackingPlanner],
    context: PackingContext,
    *,
    listener: ProgressListener = NO_LISTENER,
) -> tuple[History, list[ReplayResult]]:
    """The recorded load, and how each planner would have performed on it."""
    from trimtab.simulate.replay import history_of, replay
    from trimtab.simulate.tables import read_history

    rates, lags = read_history(request.history)
    past = history_of(
        rates,
        lags,
        unit=request.unit,
        topics=frozenset(request.topics) or None,
        group=request.group,
        window_s=request.window_s,
    )
    for line in past.notes:
        listener.warning(line)
    limits, world = _consumers(request, past)
    found = []
    for place, planner in enumerate(planners):

        def on_step(k: int, of: int, name: str = planner.name, place: int = place) -> None:
            listener.progress(name, 100 * place + 100 * k // of, 100 * len(planners))

        found.append(
            replay(
                past,
                planner,
                context,
                limits=limits,
                world=world,
                sla_s=request.sla_s,
                on_step=on_step,
            )
        )
    return past, found


def _consumers(request: ReplayRequest, past: History) -> tuple[GroupLimits, FluidWorld]:
    """The capacities that planners use, and the simulated consumers."""
    from trimtab.simulate.consumers import CAPACITY_RATIO
    from trimtab.simulate.fluid import FluidWorld

    rate, interval_s = request.service_rate, request.interval_s
    try:
        return GroupLimits(capacity=request.capacity, unit=request.unit), FluidWorld(
            service_rate=request.capacity / CAPACITY_RATIO if rate is None else rate,
            step_s=request.step_s,
            decision_interval_s=past.window_s if interval_s is None else interval_s,
            block_s=request.block_s,
            startup_s=request.startup_s,
        )
    except ValueError as error:
        raise ConfigError(f"Invalid simulation: {error}.") from error


def _check(
    loads: Loads,
    planners: Sequence[PackingPlanner],
    *,
    origin: str,
    listener: ProgressListener,
) -> None:
    """Rejects a stream that planners cannot use; warns of a doubtful one."""
    for k, step in enumerate(loads.steps):
        if not math.isfinite(sum(step.loads.values())):
            raise ConfigError(
                f"{origin}: steps[{k}]: the sum of the loads is too large for a number."
            )
    for planner in planners:
        if planner.kind is PlannerKind.LATENCY and loads.unit is not Unit.RECORDS_S:
            listener.warning(
                f"{planner.name} compares loads in {loads.unit} with lags, which are records"
            )


def _dead(given: Sequence[str], steps: int) -> Mapping[int, frozenset[int]]:
    """Parses `STEP:N`."""
    gone: dict[int, frozenset[int]] = {}
    for text in given:
        step, _, consumer = text.partition(":")
        if not (step.isdecimal() and consumer.isdecimal() and int(step) < steps):
            raise ConfigError(
                f"--dead takes STEP:N such as 3:0, with a step below {steps}, not {text!r}."
            )
        gone[int(step)] = gone.get(int(step), frozenset()) | {int(consumer)}
    return gone
