"""Cost of a partitioner per keyless record, compared with kafka-python's built-in one.

Each partition has a different leader, which is the most expensive case for partitioners that look
at brokers; weights are known for all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import Granularity, RoutingOptions
from trimtab.plan.records.registry import OURS, partitioner_of
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating

SEED = 6
RECORD_BYTES = 100
TOPIC = "stream"


def choose_3(context: BenchContext, rows: int, runs: int) -> Sides:
    """With 3 partitions; `rows` is the number of records."""
    return choose(context, rows, runs, partitions=3)


def choose_12(context: BenchContext, rows: int, runs: int) -> Sides:
    """With 12 partitions; `rows` is the number of records."""
    return choose(context, rows, runs, partitions=12)


def choose(context: BenchContext, rows: int, runs: int, *, partitions: int) -> Sides:
    """Microseconds per record: the slowest of our partitioners and kafka-python's default."""
    from trimtab_lab.benchmarks.kafka.own_partitioner import asked

    leaders = {partition: partition + 1 for partition in range(partitions)}
    rival = asked(TOPIC, leaders, b"v" * RECORD_BYTES)
    spent: dict[tuple[Granularity, str], Sides] = {}
    for granularity in Granularity:
        for name in OURS:
            context.say(f"{name} per {granularity}, {partitions} partitions")
            ours = partial(_asked(name, granularity, leaders), rows)
            seconds = alternating(ours, partial(rival, rows), runs=runs)
            each = [tuple(1e6 * s / rows for s in side) for side in seconds]
            spent[granularity, name] = Sides(ours=each[0], rival=each[1])

    def cost(granularity: Granularity) -> dict[str, float]:
        return {name: float(f"{median(spent[granularity, name].ours):.3g}") for name in OURS}

    dearest = max(OURS, key=lambda name: median(spent[Granularity.PER_RECORD, name].ours))
    shown = spent[Granularity.PER_RECORD, dearest]
    return Sides(
        ours=shown.ours,
        rival=shown.rival,
        settings={
            "partitions": partitions,
            "brokers": partitions,
            "record_bytes": RECORD_BYTES,
            "dearest": dearest,
            "per_record_us": cost(Granularity.PER_RECORD),
            "per_batch_us": cost(Granularity.PER_BATCH),
            "seed": SEED,
        },
    )


def _asked(
    name: str, granularity: Granularity, leaders: Mapping[int, int]
) -> Callable[[int], None]:
    snapshot = LeaderSnapshot({TOPIC: leaders})
    weights = {broker: 1.0 / broker for broker in leaders.values()}
    options = RoutingOptions(granularity=granularity, seed=SEED, weights=lambda: weights)
    partition = partitioner_of(name, options).partition

    def ask(records: int) -> None:
        for _ in range(records):
            partition(TOPIC, None, RECORD_BYTES, snapshot)

    return ask
