"""What a decision of the controller costs that finds nothing to do, by the number of partitions.

From the records of `trimtab.rates`, as Kafka delivers them, to the record of the decision. Half of
the partitions are in one topic, whose rates are split; the others are in topics of 50. Each
consumer has 100 partitions, and all of them are full, so that the planner cannot do with fewer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapreplace
from random import Random
from statistics import median

from trimtab.apply.consumers.controller_state import GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps, rates_records, rates_to
from trimtab.model.control import Action
from trimtab.model.control_codec import decision_to
from trimtab.model.load import PartitionLoad, Source, Unit
from trimtab.model.plan import Layer
from trimtab.model.rates_reader import Keyed, RatesReader
from trimtab.plan.registry import PLANNERS
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating

SEED = 7
GROUP = "readers"
PER_TOPIC, PER_CONSUMER = 50, 100
FULL = 0.999
MICROS = 1_000_000
NOW_TS = 1_000 * MICROS
SHARES = (50, 5, 1)
"""The sizes that are measured are the full one divided by these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A group to decide about, and the records of rates of one sample."""

    records: tuple[Keyed, ...]
    earlier: NewestRates
    view: GroupView
    goals: DecisionGoals

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the group."""
        return frozenset(p.topic for p in self.view.partitions)

    def read(self) -> NewestRates:
        """The newest rates, from the records."""
        complete, _ = RatesReader(origin="rates", topics=self.topics).read(self.records)
        return self.earlier.updated(*complete)

    def decide(self, measured: NewestRates) -> str:
        """The record of the decision."""
        found = verdict(self.view, measured, self.goals, ts=NOW_TS)
        if found is None or found.decision.action is not Action.NONE:
            raise AssertionError("there is something to do for the controller")
        return dumps(decision_to(found.decision))

    def whole(self) -> str:
        """The record of the decision, from the records of rates."""
        return self.decide(self.read())

    def sums(self) -> dict[int, float]:
        """The load of each consumer, in plain Python."""
        owners, carried = self.view.assignment.owners, dict[int, float]()
        for _, value in self.records:
            found = json.loads(value)
            for number, rate in found["partitions"].items():
                consumer = owners[TopicPartition(found["topic"], int(number))]
                carried[consumer] = carried.get(consumer, 0.0) + rate["bytes_s"]
        return carried


def decide_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    """Time per partition, at full size on both sides; `rows` is the number of partitions."""
    scenes = {n: scene(n) for n in (max(PER_CONSUMER, rows // share) for share in SHARES)}
    spent: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    steps: dict[int, dict[str, float]] = {}
    for n, of in scenes.items():
        context.say(f"decisions about {n} partitions")
        spent[n] = alternating(of.whole, of.sums, runs=runs)
        steps[n] = _steps(of)
    largest = spent[max(scenes)]
    return Sides(
        ours=tuple(1e6 * s / max(scenes) for s in largest[0]),
        rival=tuple(1e6 * s / max(scenes) for s in largest[1]),
        settings={
            "us_per_partition": {str(n): _short(1e6 * median(s[0]) / n) for n, s in spent.items()},
            "rivals_us": {str(n): _short(1e6 * median(s[1]) / n) for n, s in spent.items()},
            "seconds": {str(n): _short(median(s[0])) for n, s in spent.items()},
            "steps_s": {str(n): found for n, found in steps.items()},
            "guide_s": {"10000": 0.5},
            "per_consumer": PER_CONSUMER,
            "seed": SEED,
        },
    )


def _steps(of: Scene) -> dict[str, float]:
    """Seconds of reading and of deciding, measured once."""
    start = time.perf_counter()
    measured = of.read()
    middle = time.perf_counter()
    of.decide(measured)
    return {"read": _short(middle - start), "decide": _short(time.perf_counter() - middle)}


def scene(partitions: int) -> Scene:
    """A group of so many partitions that is as it should be."""
    rng = Random(SEED)
    half = partitions // 2
    names = [TopicPartition("large", n) for n in range(half)] + [
        TopicPartition(f"small-{n // PER_TOPIC}", n % PER_TOPIC) for n in range(partitions - half)
    ]
    loads = {p: round(rng.lognormvariate(0, 1) * 1000, 3) for p in names}
    consumers = max(1, partitions // PER_CONSUMER)
    current = _levelled(loads, consumers)
    before, now = (_records(loads, ts) for ts in (NOW_TS - 2 * MICROS, NOW_TS - MICROS))
    earlier, _ = RatesReader(origin="rates").read(before)
    return Scene(
        records=now,
        earlier=NewestRates().updated(*earlier),
        view=GroupView(
            now=0.0,
            quiet_s=60.0,
            since_scaling_s=600.0,
            since_decision_s=60.0,
            assignment=current,
            consumers=frozenset(current.consumers),
            partitions=frozenset(names),
            orphans=frozenset(),
            max_bytes_s={},
            max_records_s={},
        ),
        goals=DecisionGoals(
            group=GROUP,
            planner=PLANNERS[Layer.CONSUMERS]["trim"],
            unit=Unit.BYTES_S,
            capacity=max(current.loads(loads).values()) / FULL,
        ),
    )


def _levelled(loads: Mapping[TopicPartition, float], consumers: int) -> Assignment:
    """The biggest first, each to the consumer with the least load."""
    owners: dict[TopicPartition, int] = {}
    carried = [(0.0, consumer) for consumer in range(consumers)]
    for partition in sorted(loads, key=lambda p: (-loads[p], p)):
        load, consumer = carried[0]
        owners[partition] = consumer
        heapreplace(carried, (load + loads[partition], consumer))
    return Assignment(owners)


def _records(loads: Mapping[TopicPartition, float], ts: int) -> tuple[Keyed, ...]:
    by_topic: dict[str, list[PartitionLoad]] = {}
    for name, load in loads.items():
        by_topic.setdefault(name.topic, []).append(
            PartitionLoad(
                topic=name.topic,
                partition=name.partition,
                bytes_s=load,
                records_s=load / 100,
                source=Source.LOG_DIRS,
                end_offset=ts // 1000,
                lag={GROUP: 12, "others": 0},
            )
        )
    start = ts - 30 * MICROS
    return tuple(
        (topic.encode(), dumps(record).encode())
        for topic, mine in by_topic.items()
        for record in rates_records(rates_to(topic, mine, ts=ts, window_start=start, window_end=ts))
    )


def _short(x: float) -> float:
    return float(f"{x:.3g}")
