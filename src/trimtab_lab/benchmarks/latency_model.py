"""Landau's latency model: the closed form compared with computing every sample.

Both sides start from loads and assignments and return the same figures: how many samples are above
0, and the percentiles of those. Assignments are made by `mwf` on Landau's stream for latencies: 32
partitions, steps of up to 5 % of the capacity of 100; a sample is a unit of load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.consumers import CAPACITY_RATIO, REBALANCE_S, landau
from trimtab.simulate.packing import simulate
from trimtab.workload.rate_streams import LANDAU_ITERATION_S, landau_stream
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second

SEED = 7
CAPACITY = 100
DELTA = 5
PARTITIONS = 32
PERCENTS = (50.0, 90.0, 99.0)
PLANNER = "mwf"

Figures = tuple[float, ...]
"""The number of samples above 0, and their percentiles."""

_Floats = NDArray[np.float64]


def latency_model(_: BenchContext, rows: int, runs: int) -> Sides:
    """Measures samples per second on about `rows` samples."""
    loads, assignments = packed_for(rows)
    named, owners = dictionaries(loads), owners_of(assignments)
    samples = landau(named, assignments, capacity=CAPACITY).ramps.samples
    seconds = alternating(
        lambda: in_closed_form(named, assignments), lambda: sampled(loads, owners), runs=runs
    )
    return rows_per_second(
        samples,
        seconds,
        samples=samples,
        guide_samples_s=4_000_000,
        partitions=PARTITIONS,
        iterations=len(loads) - 1,
        delta=DELTA,
        planner=PLANNER,
        percentiles=list(PERCENTS),
        seed=SEED,
    )


def packed_for(samples: int) -> tuple[NDArray[np.int64], list[Assignment]]:
    """The loads of a stream with about this many samples, and the assignments for each step."""
    each = LANDAU_ITERATION_S * CAPACITY / 2 * PARTITIONS
    loads = landau_stream(
        seed=SEED,
        partitions=PARTITIONS,
        iterations=max(1, round(samples / each)),
        delta=DELTA,
        capacity=CAPACITY,
        integer=True,
    )
    steps = tuple(LoadStep(loads=row) for row in dictionaries(loads))
    run = simulate(Loads(capacity=CAPACITY, steps=steps), PLANNERS[Layer.CONSUMERS][PLANNER])
    return loads, [step.assignment for step in run.steps]


def dictionaries(loads: NDArray[np.int64]) -> list[dict[TopicPartition, float]]:
    """The loads of each iteration by partition."""
    return [dict(zip(_names(), row, strict=True)) for row in loads.tolist()]


def owners_of(assignments: Sequence[Assignment]) -> NDArray[np.int64]:
    """The consumer of each partition, one row per iteration."""
    return np.array([[a[p] for p in _names()] for a in assignments], dtype=np.int64)


def in_closed_form(
    loads: Sequence[dict[TopicPartition, float]], assignments: Sequence[Assignment]
) -> Figures:
    """Ours."""
    ramps = landau(loads, assignments, capacity=CAPACITY).ramps
    return (float(ramps.positive), *(ramps.percentile(percent) for percent in PERCENTS))


def sampled(loads: NDArray[np.int64], owners: NDArray[np.int64]) -> Figures:
    """The rival: arrays of queues over consumers, and every sample computed as a number."""
    consumers = int(owners.max()) + 1
    waits = np.zeros(consumers)
    made: list[_Floats] = []
    for k in range(1, len(loads)):
        kept = owners[k] == owners[k - 1]
        fixed, moving = (
            np.bincount(owners[k], weights=loads[k] * part, minlength=consumers).astype(np.float64)
            for part in (kept, ~kept)
        )
        samples, waits = _iteration(fixed, moving, waits)
        made += samples
    everything = np.concatenate(made)
    positive = everything[everything > 0]
    return (float(positive.size), *np.percentile(positive, PERCENTS).tolist())


def _iteration(fixed: _Floats, moving: _Floats, waits: _Floats) -> tuple[list[_Floats], _Floats]:
    """The samples of one iteration, and the remaining wait of each fixed queue after it."""
    rate, length = CAPACITY / CAPACITY_RATIO, LANDAU_ITERATION_S
    reads_fixed = np.where(moving > 0, np.minimum(rate, fixed), rate)
    reads = rate - reads_fixed
    samples, carried = [], np.zeros_like(waits)
    for c in np.flatnonzero(fixed):
        slope = 1 / reads_fixed[c] - 1 / fixed[c]
        samples.append(np.maximum(slope * np.arange(int(length * fixed[c])) + waits[c], 0.0))
        carried[c] = max(slope * length * fixed[c] + waits[c], 0.0)
    for c in np.flatnonzero(moving):
        served = reads[c] > 0
        slope = (1 / reads[c] if served else 0.0) - 1 / moving[c]
        start = REBALANCE_S if served else length
        samples.append(np.maximum(slope * np.arange(int(length * moving[c])) + start, 0.0))
        carried[c] += max(length * moving[c] - reads[c] * (length - REBALANCE_S), 0.0) / rate
    return samples, carried


def _names() -> list[TopicPartition]:
    return [TopicPartition("stream", number) for number in range(PARTITIONS)]
