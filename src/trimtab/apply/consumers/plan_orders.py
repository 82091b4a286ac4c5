"""Ordered plans: whether a controller can carry them out, and the decisions about them.

Promise  Pure. A plan is carried out only for the partitions and owners that it was made for. One
         that an earlier controller started continues only if every partition is with its old
         consumer or with the plan's. Topics outside the plan's scope are not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from trimtab.apply.consumers.controller_state import PlanOrdered
from trimtab.apply.freshness import check_fresh
from trimtab.errors import PlanOutdated
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan import ConsumerPlan

_HOLD = "hold_until_ts"
_MICROS = 1_000_000


def unfit(
    order: PlanOrdered,
    partitions: Collection[TopicPartition],
    held: Assignment,
    *,
    most: int | None = None,
) -> str:
    """Why a plan cannot be carried out for this group now; empty if it can."""
    plan = order.plan
    if plan is None:
        return order.refused or f"plan {order.plan_id} is not known"
    there = {p for p in partitions if p.topic in plan.scope.topics}
    mine = Assignment({p: c for p, c in held.items() if p in there})
    wanted = len(target_of(plan, held).consumers)
    if most is not None and wanted > most:
        return f"it needs {wanted} consumers, but --max-consumers is {most}"
    if order.step is None:
        try:
            check_fresh(plan, there, mine)
        except PlanOutdated as error:
            return error.message
        return ""
    if there != plan.assignment.keys():
        return "partitions were added or deleted since it was started"
    previous = plan.previous
    strange = sorted(
        partition
        for partition, target in plan.assignment.items()
        if mine.get(partition) not in {None, previous.get(partition), target}
    )
    return f"since it was started, {strange[0]} got another owner" if strange else ""


def target_of(plan: ConsumerPlan, held: Assignment) -> Assignment:
    """The assignment when the plan is done, including topics outside its scope."""
    others = {p: c for p, c in held.items() if p.topic not in plan.scope.topics}
    return Assignment({**others, **plan.assignment})


def decision_of(order: PlanOrdered, held: Assignment, target: Assignment) -> Decision:
    """The decision to carry out an ordered plan."""
    before, after = len(held.consumers), len(target.consumers)
    action = Action.REASSIGN
    if after != before:
        action = Action.SCALE_UP if after > before else Action.SCALE_DOWN
    again = "" if order.step is None else ", started by the previous controller"
    forecast: Mapping[str, float] = {}
    if order.plan is not None:
        figures = order.plan.after
        forecast = {"consumers": figures.consumers, "max_load": figures.max_load}
    return Decision(
        ts=order.ts,
        group=_group(order),
        action=action,
        before=before,
        after=after,
        reason=f"plan {order.plan_id} was ordered{again}",
        plan=order.plan_id,
        forecast=forecast,
    )


def refusal_of(order: PlanOrdered, why: str, consumers: int) -> Decision:
    """The decision to refuse an ordered plan."""
    return Decision(
        ts=order.ts,
        group=_group(order),
        action=Action.REFUSE,
        before=consumers,
        after=consumers,
        reason=f"plan {order.plan_id} was ordered and is not carried out: {why}",
        plan=order.plan_id,
    )


def _group(order: PlanOrdered) -> str:
    return (order.plan.scope.group if order.plan is not None else None) or ""


def entry_of(
    order: PlanOrdered, state: PlanState, *, step: int = 0, of: int | None = None, why: str = ""
) -> JournalEntry:
    """An entry of the plan's journal, with the time until which the plan is held."""
    total = len(order.plan.moves) if of is None and order.plan is not None else of or 0
    held = state in {PlanState.RUNNING, PlanState.DONE} and order.hold_s > 0
    until_ts = order.ts + round(order.hold_s * _MICROS)
    return JournalEntry(
        plan=order.plan_id,
        state=state,
        step=min(step, total),
        of=total,
        ts=order.ts,
        found={f"group {_group(order)}": {_HOLD: str(until_ts)}} if held else {},
        why=why,
    )


@dataclass(frozen=True, slots=True)
class InheritedOrders:
    """Orders of the previous controller: a plan in progress, and a plan that is still held."""

    unfinished: tuple[ConsumerPlan, JournalEntry] | None = None
    held_plan: str = ""
    held_s: float = 0.0


def inherited_orders(
    kept: Iterable[tuple[ConsumerPlan, JournalEntry]], group: str, *, now_ts: int
) -> InheritedOrders:
    """The newest order of this group, by its journal."""
    own = [(plan, entry) for plan, entry in kept if plan.scope.group == group]
    if not own:
        return InheritedOrders()
    plan, entry = max(own, key=lambda pair: pair[1].ts)
    held_s = max(0.0, (_hold_until_ts(entry) - now_ts) / _MICROS)
    if entry.state is PlanState.RUNNING:
        return InheritedOrders((plan, entry), held_s=held_s)
    if entry.state is PlanState.DONE and held_s > 0:
        return InheritedOrders(held_plan=entry.plan, held_s=held_s)
    return InheritedOrders()


def _hold_until_ts(entry: JournalEntry) -> int:
    for settings in entry.found.values():
        value = settings.get(_HOLD)
        if value is not None and value.isdecimal():
            return int(value)
    return 0


def by_smallest_partition(held: Assignment, topics: Collection[str]) -> dict[int, int]:
    """The numbers that plans give to members of a subscribed group → the controller's numbers.

    A plan made from the brokers' view numbers members by the smallest partition that they own
    (`numbered_members`); a controller keeps its numbers when members join and leave.

    >>> t = [TopicPartition("t", n) for n in range(3)]
    >>> by_smallest_partition(Assignment({t[0]: 7, t[1]: 3, t[2]: 7}), ["t"])
    {0: 7, 1: 3}
    """
    first: dict[int, TopicPartition] = {}
    for partition in sorted(p for p in held if p.topic in topics):
        first.setdefault(held[partition], partition)
    return dict(enumerate(sorted(first, key=lambda consumer: first[consumer])))


def renumbered(
    assignment: Assignment, numbers: Mapping[int, int], taken: Collection[int]
) -> Assignment:
    """The assignment with other numbers; new consumers get the lowest free numbers."""
    known, free = dict(numbers), (n for n in count() if n not in {*taken, *numbers.values()})
    for consumer in assignment.consumers:
        if consumer not in known:
            known[consumer] = next(free)
    return Assignment({p: known[c] for p, c in assignment.items()})
