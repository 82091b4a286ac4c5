"""Cells of the packing experiments: the figures of one planner on one stream.

Promise  Pure: equal parameters give equal figures, except for the planner's time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab.evaluate.latency import Ramps
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Loads, LoadStep
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import FirstBin, SortOrder
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    PackingContext,
    PackingPlanner,
    PlannerOptions,
)
from trimtab.plan.registry import PLANNERS, configured
from trimtab.simulate.consumers import kafka_default, landau
from trimtab.simulate.packing import PackingRun, simulate, summary
from trimtab.workload.rate_streams import landau_stream

CAPACITY = 100
CAPACITY_RATIO = 100 / 133
"""The ratio used for the published latencies; the paper's own rule of 5/6 gives others."""

Parameters = Mapping[str, Any]

KAFKA = "kd"
"""Kafka's own assignment, with each number of consumers."""

LATENCY_EDGES_S = tuple(0.01 * 10 ** (k / 10) for k in range(61))
"""From 10 ms to 10 000 s, ten per decade."""


def packed(parameters: Parameters) -> dict[str, Any]:
    """Consumers and Rscore of every iteration, and the means of everything."""
    run = _run(parameters)
    return {
        **{name: _tidy(value) for name, value in summary(run).items()},
        "consumers": [step.consumers for step in run.steps],
        "rscore": [_tidy(step.rscore) for step in run.steps],
    }


def delayed(parameters: Parameters) -> dict[str, Any]:
    """How long bytes wait: for a planner, or for Kafka's assignment with n consumers."""
    stream = _stream(parameters)
    if parameters["planner"] != KAFKA:
        run = _run(parameters)
        mean = summary(run)["mean_consumers"]
        found = _latency(stream, [step.assignment for step in run.steps])
        return {"mean_consumers": _tidy(mean), **found}
    names = list(stream.steps[0].loads)
    counts = range(max(1, len(names) // 3), len(names) + 1)
    return {str(n): _latency(stream, [kafka_default(names, n)] * len(stream.steps)) for n in counts}


def _run(parameters: Parameters) -> PackingRun:
    conditions = {
        "seed": parameters["seed"],
        "order": SortOrder.SHUFFLE,
        "nf_first_bin": FirstBin(parameters.get("nf_first_bin", FirstBin.ZERO)),
        "slack": parameters.get("slack", 0.0),
    }
    (planner,), context = configured(
        [PLANNERS[Layer.CONSUMERS][parameters["planner"]]], conditions, optional=conditions
    )
    if "members" in planner.uses:
        planner = replace(planner, rule=partial(_as_many_as_bfd, planner))
    return simulate(_stream(parameters), planner, context)


def _as_many_as_bfd(
    planner: PackingPlanner,
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions | None = None,
    /,
) -> Assignment:
    """Assigns to a group of the size that `bfd` needs, as a perfect autoscaler would provide."""
    bfd = PLANNERS[Layer.CONSUMERS]["bfd"]
    members = len(bfd(loads, Assignment(), limits).consumers)
    return planner(loads, current, limits, replace(context, members=members))


def _stream(parameters: Parameters) -> Loads:
    start = parameters["start"]
    rows = landau_stream(
        seed=parameters["seed"],
        partitions=parameters["partitions"],
        iterations=parameters["iterations"],
        delta=parameters["delta"],
        capacity=CAPACITY,
        start="uniform" if start == "uniform" else float(start),
        integer=True,
    ).tolist()
    names = [TopicPartition("stream", number) for number in range(parameters["partitions"])]
    steps = tuple(LoadStep(loads=dict(zip(names, row, strict=True))) for row in rows)
    return Loads(capacity=CAPACITY, steps=steps)


def _latency(stream: Loads, assignments: list[Assignment]) -> dict[str, Any]:
    loads = [step.loads for step in stream.steps]
    found = landau(loads, assignments, capacity=CAPACITY, capacity_ratio=CAPACITY_RATIO)
    ramps = found.ramps
    return {
        "samples": ramps.samples,
        "positive": ramps.positive,
        "starved": found.starved,
        "max_s": _tidy(ramps.maximum),
        **{f"p{p}_s": _percentile(ramps, p) for p in (5, 25, 50, 75, 90, 95, 99)},
        "at_most": [ramps.at_most(edge) for edge in LATENCY_EDGES_S],
    }


def _percentile(ramps: Ramps, percent: float) -> float | None:
    found = ramps.percentile(percent)
    return None if math.isnan(found) else _tidy(found)


def _tidy(value: float) -> float:
    return float(f"{value:.9g}")
