"""Benchmarks of the topology audit: speed compared with the published scans, and growth.

All run on one core, on partitions placed at random, which is the hardest case: nearly every topic
is its own group, and most pairs of groups overlap. Twelve partitions per topic, three replicas.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import TypeVar

from trimtab.audit.faults import FaultScan, ranked
from trimtab.audit.groups import max_groups, overlaps_by_broker
from trimtab.audit.layout import layout_of
from trimtab.audit.loads import TopicLoad
from trimtab.audit.scenarios import scenarios
from trimtab.audit.topology import AuditOptions, audit
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.load import Unit
from trimtab.testing.placements import random_placement
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating
from trimtab_lab.reference_scans.topology import dpo, dpo2, get_max_groups, node_lists

_T = TypeVar("_T")
SEED = 7
PARTITIONS = 12
NO_PAIRS = AuditOptions(pairs=0, up_to=0)
REPEATS = 5
"""How often ours runs per run of the rival: one run is too short to be timed exactly."""


def full_audit(context: BenchContext, rows: int, runs: int) -> Sides:
    """The audit without pairs and failures, compared with all three scans; `rows` are topics."""
    snapshot = _placed(context, rows, _dense(rows))
    rates = _rates(snapshot)
    spent: dict[str, list[float]] = {"groups": [], "pairs": [], "by_broker": []}

    def rival() -> None:
        nodes = node_lists(snapshot)
        groups = _timed(spent["groups"], lambda: get_max_groups(nodes))
        _timed(spent["pairs"], lambda: dpo(groups, nodes))
        _timed(spent["by_broker"], lambda: dpo2(groups, nodes, _ids(snapshot)))

    context.say("the scans take some seconds per run")
    ours, theirs = alternating(
        lambda: _again(lambda: audit(snapshot, rates, NO_PAIRS)), rival, runs=runs
    )
    return Sides(
        ours=_each(ours),
        rival=theirs,
        settings={
            **_size(snapshot),
            "ours_does": "groups, groups by broker, number of pairs, components, uneven and "
            "stacked topics, drift, loads by two policies, the least possible peak; no pair is "
            "listed",
            "rival_does": "Algorithms 1, 2 with the common brokers, and 3; every pair is listed",
            "rival_s": {name: _short(median(of)) for name, of in spent.items()},
            "guide_s": 0.5,
        },
    )


def same_audit(context: BenchContext, rows: int, runs: int) -> Sides:
    """Only groups and groups by broker, on both sides; neither side looks at pairs."""
    snapshot = _placed(context, rows, _dense(rows))

    def ours() -> None:
        overlaps_by_broker(max_groups(layout_of(snapshot)))

    def rival() -> None:
        nodes = node_lists(snapshot)
        dpo2(get_max_groups(nodes), nodes, _ids(snapshot))

    return _against(lambda: _again(ours), rival, runs, snapshot)


def all_faults(context: BenchContext, rows: int, runs: int) -> Sides:
    """All single-broker failures, ranked, compared with running the three scans for each failure.

    The scans run for one failure per run; their time is multiplied by the number of failures.
    """
    snapshot = _placed(context, rows, _dense(rows))
    ids, rates = _ids(snapshot), _rates(snapshot)
    dead = iter([ids[at * len(ids) // runs] for at in range(runs)])

    def ours() -> None:
        ranked(FaultScan(layout_of(snapshot), rates), scenarios(ids).kept)

    def rival() -> None:
        nodes = node_lists(snapshot, dead=frozenset({next(dead)}))
        groups = get_max_groups(nodes)
        dpo(groups, nodes)
        dpo2(groups, nodes, ids)

    context.say("the scans run for one failure per run")
    ours()  # warm-up
    mine, theirs = alternating(ours, rival, runs=runs, warm_up=False)
    return Sides(
        ours=mine,
        rival=tuple(seconds * len(ids) for seconds in theirs),
        settings={
            **_size(snapshot),
            "faults": len(ids),
            "rival_ran": f"one failure in each of {runs} runs, its time × {len(ids)}",
            "ours_does": "new leaders, what goes offline, pairs of topics that come and go, "
            "contested brokers, uneven topics, loads by two policies, for all; the least possible "
            "peak for the worst ten",
            "rival_does": "Algorithms 1, 2 with the common brokers, and 3; every pair is listed",
            "guide_s": 2.0,
        },
    )


def many_groups(context: BenchContext, rows: int, runs: int) -> Sides:
    """The groups of a large cluster, compared with Algorithm 1; both get the leaders as input."""
    snapshot = _placed(context, rows, _sparse(rows))
    spent: dict[str, list[float]] = {"ours": [], "rival": []}
    layout = _timed(spent["ours"], lambda: layout_of(snapshot))
    nodes = _timed(spent["rival"], lambda: node_lists(snapshot))
    sides = _against(
        lambda: _again(lambda: max_groups(layout)), lambda: get_max_groups(nodes), runs, snapshot
    )
    before = {"who_leads_what_before_s": {side: _short(s) for side, (s,) in spent.items()}}
    return replace(sides, settings={**sides.settings, **before})


def growth(context: BenchContext, rows: int, runs: int) -> Sides:
    """Time per partition of the audit at full size, compared with a fifth of the topics."""
    fewer = max(2, rows // 5)
    large = _placed(context, rows, _sparse(rows))
    small = _placed(context, fewer, _dense(fewer))

    def of(snapshot: ClusterSnapshot) -> Callable[[], object]:
        rates = _rates(snapshot)
        return lambda: _again(lambda: audit(snapshot, rates, NO_PAIRS))

    ours, rival = alternating(of(large), of(small), runs=runs)
    micros = [
        tuple(1e6 * s / len(snapshot.partitions) for s in _each(seconds))
        for snapshot, seconds in ((large, ours), (small, rival))
    ]
    return Sides(
        ours=micros[0],
        rival=micros[1],
        settings={
            "large": {**_size(large), "audit_s": _short(median(_each(ours)))},
            "small": {**_size(small), "audit_s": _short(median(_each(rival)))},
            "guide_s": {"large": 3.0, "small": 0.5},
            "seed": SEED,
        },
    )


# ---------------------------------------------------------------- clusters and clocks


def _dense(topics: int) -> int:
    """Number of brokers for a number of topics: 100 for 2 000."""
    return max(4, topics // 20)


def _sparse(topics: int) -> int:
    """The same for large clusters: 300 brokers for 10 000 topics."""
    return max(4, topics * 3 // 100)


def _placed(context: BenchContext, topics: int, brokers: int) -> ClusterSnapshot:
    context.say(f"placing {topics} topics on {brokers} brokers")
    return random_placement(topics=topics, brokers=brokers, partitions=PARTITIONS, seed=SEED)


def _rates(snapshot: ClusterSnapshot) -> TopicLoad:
    rng = random.Random(SEED)
    return TopicLoad(
        by_topic={name: rng.lognormvariate(10, 1) for name in snapshot.topics}, unit=Unit.BYTES_S
    )


def _ids(snapshot: ClusterSnapshot) -> list[int]:
    return [broker.id for broker in snapshot.brokers]


def _against(
    ours: Callable[[], object], rival: Callable[[], object], runs: int, snapshot: ClusterSnapshot
) -> Sides:
    mine, theirs = alternating(ours, rival, runs=runs)
    return Sides(ours=_each(mine), rival=theirs, settings=_size(snapshot))


def _again(act: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        act()


def _each(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(s / REPEATS for s in seconds)


def _timed(spent: list[float], act: Callable[[], _T]) -> _T:
    began = time.perf_counter()
    found = act()
    spent.append(time.perf_counter() - began)
    return found


def _size(snapshot: ClusterSnapshot) -> dict[str, int]:
    return {
        "topics": len(snapshot.topics),
        "partitions": len(snapshot.partitions),
        "brokers": len(snapshot.brokers),
    }


def _short(value: float) -> float:
    return float(f"{value:.3g}")
