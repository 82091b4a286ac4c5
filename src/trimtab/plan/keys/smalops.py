"""SMALOPS: hot keys are placed by two choices, then moved until no partition is overloaded.

Promise  Deterministic in integers, whatever the order of the input; at most one move per key.
         Rebalancing never raises the balancing error, and every balance move lowers it; going
         home and placing may raise it. With `load` hot, records of other keys are not looked at,
         so the total load may become less even than before.
Cost     O(k log k + k log m) for k keys on m partitions.
Paper    Bhattacharya & Wood: `cool_below` threshold, `initial` two-choices, `load` hot and no test
         of moves is the paper's method; by default keys cool down at half the threshold.

>>> keys = tuple(KeyCount(key=k, count=40, partition=0) for k in (b"a", b"b"))
>>> counts = KeyCounts(
...     partitions=2, window_s=10, threshold=10, keys=keys, partition_totals=(90, 10)
... )
>>> decision = smalops(counts, SmalopsOptions(initial=InitialPlace.HOME))
>>> [(m.key, m.source, m.target, str(m.reason)) for m in decision.moves], decision.routes
([(b'a', 0, 1, 'balance')], {b'a': 1, b'b': 0})
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.plan import KeyReason
from trimtab.plan.keys.draft import Draft
from trimtab.plan.keys.greedy import Accepts, GreedyStep, rebalanced
from trimtab.plan.keys.planner import (
    FIRST_PLAN,
    BalancedLoad,
    CoolBelow,
    InitialPlace,
    KeyContext,
    KeyDecision,
    KeyOptions,
    KeyPlanner,
)
from trimtab.plan.keys.tracking import TrackedKeys, tracked_keys
from trimtab.plan.keys.two_choices import two_choices
from trimtab.plan.keys.worth import worth_test


@dataclass(frozen=True, slots=True, kw_only=True)
class SmalopsOptions(KeyOptions):
    """Options of `smalops`."""

    initial: Annotated[
        InitialPlace,
        "Where a key goes that has become hot: to the less loaded of two partitions, or it stays.",
    ] = InitialPlace.TWO_CHOICES
    load: Annotated[
        BalancedLoad, "The load that is made even: records of hot keys, or all records."
    ] = BalancedLoad.HOT

    @property
    def balances(self) -> BalancedLoad:
        """The load that the planner makes even."""
        return self.load


PAPER_MODE = SmalopsOptions(cool_below=CoolBelow.THRESHOLD)
"""The options of the paper."""


def smalops(
    counts: KeyCounts,
    options: SmalopsOptions = SmalopsOptions(),  # noqa: B008 - frozen
    context: KeyContext = FIRST_PLAN,
) -> KeyDecision:
    """Decides which keys move."""
    tracked = tracked_keys(counts, options)
    draft = Draft(counts, tracked, context, load=options.load, max_moves=options.max_moves)
    if counts.partitions > 1:
        accepts = worth_test(options, draft.totals, counts.window_s)
        _send_home(draft, tracked)
        _place(draft, tracked, options, context, accepts)
        _rebalance(draft, tracked, accepts)
    return draft.decision()


def _send_home(draft: Draft, tracked: TrackedKeys) -> None:
    """Takes cooled keys out of the routing table; one that is away from home moves there."""
    for key, home in tracked.cooled:
        if not draft.may_move(key, home):
            draft.routes[key.key] = key.partition
            continue
        numbers = {"upper": key.most, "threshold": tracked.threshold}
        draft.add(key, home, KeyReason.COOL, numbers)
        draft.shift_total(key.count, key.partition, home)


def _place(
    draft: Draft,
    tracked: TrackedKeys,
    options: SmalopsOptions,
    context: KeyContext,
    accepts: Accepts | None,
) -> None:
    """Places the keys that have become hot, the largest first."""
    loads, m = draft.loads, len(draft.loads)
    hot_only = loads is not draft.totals
    if options.initial is InitialPlace.HOME:
        for key in tracked.fresh:
            draft.routes[key.key] = key.partition
            if hot_only:
                loads[key.partition] += key.count
        return
    for key in sorted(tracked.fresh, key=lambda k: (-k.count, k.key)):
        source, count = key.partition, key.count
        a, b = two_choices(key.key, plan_number=context.plan_number, partitions=m)
        own = 0 if hot_only else count  # of the total load, which still has it at its partition
        load_a, load_b = loads[a] - own * (a == source), loads[b] - own * (b == source)
        target = a if (load_a, a) < (load_b, b) else b
        step = GreedyStep(key, source, target, loads[source] + count - own, loads[target])
        if (
            target == source
            or not draft.may_move(key, target)
            or not (accepts is None or accepts(step))
        ):
            target = source
        else:
            numbers = {"choice_a": a, "choice_b": b, "load_a": load_a, "load_b": load_b}
            draft.add(key, target, KeyReason.PLACE, numbers)
            draft.shift_total(count, source, target)
        if hot_only:
            loads[target] += count
        draft.routes[key.key] = target


def _rebalance(draft: Draft, tracked: TrackedKeys, accepts: Accepts | None) -> None:
    """Moves keys away from overloaded partitions."""
    keys: dict[int, list[KeyCount]] = defaultdict(list)
    for key in tracked.tracked:
        keys[draft.routes[key.key]].append(key)
    total = sum(draft.loads)

    def is_allowed(step: GreedyStep) -> bool:
        return draft.may_move(step.key, step.target) and (accepts is None or accepts(step))

    for step in rebalanced(draft.loads, keys, is_allowed):
        key = step.key
        if draft.loads is not draft.totals:
            draft.shift_total(key.count, step.source, step.target)
        draft.routes[key.key] = step.target
        numbers = {"load_from": step.load_from, "load_to": step.load_to, "total": total}
        if step.source != key.partition:
            numbers["placed"] = step.source
        draft.add(key, step.target, KeyReason.BALANCE, numbers)


SMALOPS = KeyPlanner(
    name="smalops",
    rule=smalops,
    options=SmalopsOptions(),
    uses=frozenset({"plan_number", "busy"}),
)
