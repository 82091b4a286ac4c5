"""A plan for the keys of a topic: what a planner decided, with reasons, forecast, bound and cost.

Every figure is computed from the counts and the moves; the planner itself returns only these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.errors import PlanningError
from trimtab.measure.counters import Count, Coverage, Share
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.plan import (
    KeyCost,
    KeyInverse,
    KeyMove,
    KeyPlan,
    KeyState,
    Layer,
    Scope,
)
from trimtab.model.plan_codec import keys_snapshot_id
from trimtab.model.scalars import tidy
from trimtab.plan.keys.bounds import balancing_error, imbalance, least_peak, relative
from trimtab.plan.keys.planner import FIRST_PLAN, BalancedLoad, KeyContext, KeyPlanner
from trimtab.plan.keys.registry import KEY_PLANNERS
from trimtab.plan.keys.tracking import TrackedKeys, tracked_keys
from trimtab.plan.planner import planner_named


def plan_keys(
    counts: KeyCounts,
    *,
    planner: str | KeyPlanner,
    made_ts: int,
    topic: str | None = None,
    context: KeyContext = FIRST_PLAN,
) -> KeyPlan:
    """Plans which partition each hot key goes to; a topic with one partition is refused.

    `planner` is a name, or a planner with options (`KeyPlanner.with_options`).
    """
    if isinstance(planner, str):
        planner = planner_named(KEY_PLANNERS, planner, Layer.KEYS)
    if counts.partitions < 2:
        raise PlanningError(
            "The topic has only one partition: its keys cannot go anywhere else.",
            hint="Plan for a topic with at least two partitions.",
        )
    tracked = tracked_keys(counts, planner.options)
    decision = planner(counts, context)
    totals = counts.partition_totals
    after = moved_totals(totals, decision.moves)
    keys = tracked.tracked + tuple(key for key, _ in tracked.cooled)
    least = relative(least_peak(totals, keys), totals)
    reached = imbalance(after)
    return KeyPlan(
        layer=Layer.KEYS,
        planner=planner.name,
        params=_params(counts, tracked, planner, context, decision.skipped),
        seed=0,
        made_ts=made_ts,
        snapshot=keys_snapshot_id(counts.partitions, {m.key: m.source for m in decision.moves}),
        scope=Scope(group=None, topics=() if topic is None else (topic,)),
        moves=decision.moves,
        before=_state(planner, totals, hot_loads(tracked.tracked, counts.partitions)),
        after=_state(planner, after, hot_loads(tracked.tracked, counts.partitions, decision.moves)),
        bound=float(least),
        gap=max(0.0, float(reached / least - 1)),
        cost=KeyCost(moves=len(decision.moves), count=sum(m.count for m in decision.moves)),
        inverse=tuple(
            KeyInverse(key=m.key, source=m.target, target=m.source)
            for m in reversed(decision.moves)
        ),
    )


def moved_totals(totals: Iterable[int], moves: Iterable[KeyMove]) -> list[int]:
    """All records by partition after the moves."""
    after = list(totals)
    for move in moves:
        after[move.source] -= move.count
        after[move.target] += move.count
    return after


def hot_loads(
    keys: Iterable[KeyCount], partitions: int, moves: Iterable[KeyMove] = ()
) -> list[int]:
    """The records of these keys by partition, after the moves."""
    target = {move.key: move.target for move in moves}
    loads = [0] * partitions
    for key in keys:
        loads[target.get(key.key, key.partition)] += key.count
    return loads


def _state(planner: KeyPlanner, totals: Iterable[int], hot: list[int]) -> KeyState:
    """The figures of a plan; the error is that of the load which the planner makes even."""
    every = list(totals)
    balanced = hot if planner.options.balances is BalancedLoad.HOT else every
    return KeyState(e_lb=float(balancing_error(balanced)), imbalance=float(imbalance(every)))


def _params(
    counts: KeyCounts,
    tracked: TrackedKeys,
    planner: KeyPlanner,
    context: KeyContext,
    skipped: int,
) -> Mapping[str, Any]:
    params: dict[str, Any] = {
        "partitions": counts.partitions,
        "window_s": tidy(counts.window_s),
        "threshold": tracked.threshold,
        "load": str(planner.options.balances),
    }
    if "plan_number" in planner.uses:
        params["plan_number"] = context.plan_number
    if skipped:
        params["skipped"] = skipped
    changed = {name: _plain(value) for name, value in sorted(planner.changed_options.items())}
    if "threshold" in changed:
        changed["threshold_form"] = changed.pop("threshold")
    return params | changed


def _plain(value: Any) -> Any:
    match value:
        case Count(records):
            return f"count:{records}"
        case Share(share):
            return f"share:{share:g}"
        case Coverage(share):
            return f"coverage:{share:g}"
        case float():
            return tidy(value)
        case _:
            return value
