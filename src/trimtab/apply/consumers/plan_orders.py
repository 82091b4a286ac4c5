"""Ordered plans: whether a controller can carry them out, and the decisions about them.

Promise  Pure. A plan is carried out only for the partitions and owners that it was made for. One
         that an earlier controller started continues only if every partition is with its old
         consumer or with the plan's. Topics outside the plan's scope are not changed.
"""

from __future__ import annotations

import math
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

_HOLD, _BEGUN = "hold_s", "begun"
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
        left_out = sorted(there - plan.assignment.keys())
        return f"it assigns no consumer to {left_out[0]}" if left_out else ""
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
    order: PlanOrdered,
    state: PlanState,
    *,
    step: int = 0,
    of: int | None = None,
    why: str = "",
    begun: bool = False,
) -> JournalEntry:
    """An entry of the plan's journal.

    `found` has for how long the plan is held after its end; of a plan that failed, whether it had
    been started (`begun`) or was refused.
    """
    total = len(order.plan.moves) if of is None and order.plan is not None else of or 0
    held = state in {PlanState.RUNNING, PlanState.DONE} and order.hold_s > 0
    known = {_HOLD: repr(order.hold_s)} if held else {_BEGUN: "true"} if begun else {}
    return JournalEntry(
        plan=order.plan_id,
        state=state,
        step=min(step, total),
        of=total,
        ts=order.ts,
        found={f"group {_group(order)}": known} if known else {},
        why=why,
    )


def done_entries(order: PlanOrdered, *, of: int) -> tuple[JournalEntry, ...]:
    """The last entries of a plan that is done; a rollback also ends the journal of its plan.

    Whoever ordered it may not wait for the end.
    """
    done = entry_of(order, PlanState.DONE, step=of, of=of)
    undone = order.plan.params.get("rollback_of") if order.plan is not None else None
    if undone is None:
        return (done,)
    return done, JournalEntry(
        plan=str(undone), state=PlanState.ROLLED_BACK, step=0, of=of, ts=order.ts
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
    """The plan in progress, else the newest one that was done, by their journals.

    Orders that were refused or not yet taken are newer, and change nothing. A plan that was
    started and failed has ended the hold of the one before it.
    """
    own = [(plan, entry) for plan, entry in kept if plan.scope.group == group]
    running = [pair for pair in own if pair[1].state is PlanState.RUNNING]
    if running:
        plan, entry = max(running, key=lambda pair: pair[1].ts)
        return InheritedOrders((plan, entry), held_s=_hold_s(entry))
    moved = [entry for _, entry in own if entry.state is PlanState.DONE or _was_begun(entry)]
    last = max(moved, key=lambda entry: entry.ts, default=None)
    if last is None or last.state is not PlanState.DONE:
        return InheritedOrders()
    left_s = _hold_s(last) - (now_ts - last.ts) / _MICROS
    return InheritedOrders(held_plan=last.plan, held_s=left_s) if left_s > 0 else InheritedOrders()


def _was_begun(entry: JournalEntry) -> bool:
    return entry.state is PlanState.FAILED and any(
        _BEGUN in known for known in entry.found.values()
    )


def _hold_s(entry: JournalEntry) -> float:
    """For how long the plan is held after its end."""
    for settings in entry.found.values():
        try:
            held_s = float(settings.get(_HOLD) or 0.0)
        except ValueError:
            continue
        if 0 < held_s < math.inf:
            return held_s
    return 0.0


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


def held_as_planned(order: PlanOrdered, held: Assignment) -> Assignment:
    """What members hold, with the numbers that the ordered plan gives them."""
    topics = order.plan.scope.topics if order.plan is not None else ()
    back = {own: number for number, own in by_smallest_partition(held, topics).items()}
    planned = order.plan.assignment.consumers if order.plan is not None else ()
    apart = max(planned, default=0) + 1  # for members that read other topics
    return Assignment({p: back.get(c, apart + c) for p, c in held.items()})


def subscribed_target(
    plan: ConsumerPlan, held: Assignment, consumers: Collection[int]
) -> Assignment:
    """The assignment when the plan is done, with the controller's numbers of `consumers`."""
    numbers = by_smallest_partition(held, plan.scope.topics)
    wanted = _renumbered(plan.assignment, numbers, consumers)
    others = {p: c for p, c in held.items() if p not in wanted}
    return Assignment({**others, **wanted})


def _renumbered(
    assignment: Assignment, numbers: Mapping[int, int], taken: Collection[int]
) -> Assignment:
    """The assignment with other numbers; new consumers get the lowest free numbers."""
    known, free = dict(numbers), (n for n in count() if n not in {*taken, *numbers.values()})
    for consumer in assignment.consumers:
        if consumer not in known:
            known[consumer] = next(free)
    return Assignment({p: known[c] for p, c in assignment.items()})
