"""Trim: the total load of partitions is made even with as few moves of keys as possible.

Why      Hash imbalance comes from a few large keys; all others can stay at home, untracked.
Promise  No partition ends above the busiest before. Nothing moves while the busiest partition is
         within the dead band: `noise` standard deviations of a count (√mean), or `tolerance` of
         the mean if that is more. Only keys away from home are in the routing table. Integers
         only, whatever the order of the input; at most one move per key.
How      While the busiest is above the band, `Relief` moves single large keys. Then cooled keys
         go home, where that leaves no partition above the busiest, so that it undoes no relief.
Cost     O(k log k + moves · log k) for k keys.
Paper    Ours, an alternative to Bhattacharya & Wood.

>>> keys = tuple(KeyCount(key=k, count=c, partition=0) for k, c in ((b"a", 900), (b"b", 300)))
>>> counts = KeyCounts(
...     partitions=2, window_s=10, threshold=10, keys=keys, partition_totals=(1700, 1100)
... )
>>> decision = trim(counts)
>>> [(m.key, m.source, m.target) for m in decision.moves], decision.routes
([(b'b', 0, 1)], {b'b': 1})
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import homes
from trimtab.model.plan import KeyReason
from trimtab.plan.keys.draft import Draft
from trimtab.plan.keys.greedy import Accepts
from trimtab.plan.keys.planner import (
    FIRST_PLAN,
    BalancedLoad,
    KeyContext,
    KeyDecision,
    KeyOptions,
    KeyPlanner,
)
from trimtab.plan.keys.relief import DeadBand, Relief
from trimtab.plan.keys.tracking import TrackedKeys, tracked_keys
from trimtab.plan.keys.worth import worth_test


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimKeysOptions(KeyOptions):
    """Options of `trim` for keys."""

    noise: Annotated[int, "Dead band of trim, in standard deviations of a partition's count."] = 5
    tolerance: Annotated[
        float, "Dead band of trim, at least this share of a partition's mean load."
    ] = 0.01


def trim(
    counts: KeyCounts,
    options: TrimKeysOptions = TrimKeysOptions(),  # noqa: B008 - frozen
    context: KeyContext = FIRST_PLAN,
) -> KeyDecision:
    """Decides which keys move."""
    tracked = tracked_keys(counts, options)
    draft = Draft(counts, tracked, context, load=BalancedLoad.TOTAL, max_moves=options.max_moves)
    at_home = _homes(tracked, counts.partitions)
    allowed = 0
    if counts.partitions > 1:
        allowed = _relieve(draft, counts, tracked, at_home, options)
    allowed = max(allowed, *draft.totals)
    _send_home(draft, tracked, highest=min(allowed, max(counts.partition_totals)))
    for key in tracked.known:
        if draft.routes[key.key] == at_home[key.key]:
            del draft.routes[key.key]
    return draft.decision()


def _homes(tracked: TrackedKeys, partitions: int) -> dict[bytes, int]:
    """The home of each tracked key; one that is not routed is there."""
    known = [key.key for key in tracked.known]
    found = dict(zip(known, homes(known, partitions).tolist(), strict=True)) if known else {}
    return found | {key.key: key.partition for key in tracked.fresh}


def _relieve(
    draft: Draft,
    counts: KeyCounts,
    tracked: TrackedKeys,
    at_home: dict[bytes, int],
    options: TrimKeysOptions,
) -> int:
    """Moves keys until the busiest partition is near the mean; returns how high it may be then."""
    keys: dict[int, list[KeyCount]] = defaultdict(list)
    for key in tracked.tracked:
        if key.key not in draft.busy:
            keys[key.partition].append(key)
    band = DeadBand(options.noise, Fraction(str(options.tolerance)))
    relief = Relief(draft.totals, keys, at_home, band)

    def accepts(loads: Sequence[int]) -> Accepts | None:
        return worth_test(options, loads, counts.window_s)

    for step, partitions, total in relief.steps(most=options.max_moves, accepts=accepts):
        numbers = {
            "load_from": step.load_from,
            "load_to": step.load_to,
            "total": total,
            "partitions": partitions,
        }
        draft.add(step.key, step.target, KeyReason.BALANCE, numbers)
        draft.shift_total(step.key.count, step.source, step.target)
        draft.routes[step.key.key] = step.target
    return relief.ceiling


def _send_home(draft: Draft, tracked: TrackedKeys, *, highest: int) -> None:
    """Moves cooled keys home, except where that would make a partition the busiest."""
    for key, home in tracked.cooled:
        load = draft.totals[home]
        is_harmless = home == key.partition or load + key.count <= highest
        if not (is_harmless and draft.may_move(key, home)):
            draft.routes[key.key] = key.partition
            continue
        numbers = {"upper": key.most, "threshold": tracked.threshold, "load_to": load}
        draft.add(key, home, KeyReason.COOL, numbers)
        draft.shift_total(key.count, key.partition, home)


TRIM = KeyPlanner(name="trim", rule=trim, options=TrimKeysOptions(), uses=frozenset({"busy"}))
