"""How a subscribed group's controller carries out ordered plans.

Promise  One plan at a time. It starts when no consumer is joining or leaving, or is refused with a
         reason. It is done when the brokers report that members own what the plan gives them.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping, Set

from trimtab.apply.consumers.assignments import GroupPlan
from trimtab.apply.consumers.controller_state import (
    GroupView,
    PlanHold,
    PlanOrdered,
    WriteJournal,
)
from trimtab.apply.consumers.kafka.plan_orders import resumed
from trimtab.apply.consumers.plan_orders import (
    InheritedOrders,
    done_entries,
    entry_of,
    held_as_planned,
    unfit,
)
from trimtab.model.cluster import TopicPartition
from trimtab.model.journal import JournalEntry, PlanState

_NEVER = float("-inf")


class SubscribedOrders:
    """Ordered plans: those that wait, the one in progress, and the one that is held."""

    def __init__(self) -> None:
        self.fetched: queue.SimpleQueue[PlanOrdered] = queue.SimpleQueue()
        self.execution: tuple[PlanOrdered, float] | None = None  # and since when
        self._held, self._held_until = "", _NEVER

    @classmethod
    def taken_over(cls, left: InheritedOrders) -> SubscribedOrders:
        """The orders of the previous controller; a plan that it started is already persisted."""
        orders = cls()
        if left.unfinished is not None:
            plan, entry = left.unfinished
            orders.begin(resumed(plan, entry, hold_s=left.held_s, now=time.monotonic()))
        if left.held_plan:
            orders._held, orders._held_until = left.held_plan, time.monotonic() + left.held_s
        return orders

    def next(self, view: GroupView, *, settled: bool) -> PlanOrdered | None:
        """The next order to start or refuse, if there is one.

        While consumers are joining or leaving, an order waits until it expires.
        """
        try:
            order = self.fetched.get_nowait()
        except queue.Empty:
            return None
        if self.repeats(order) or settled or self._rejection(order) or view.now > order.until:
            return order
        self.fetched.put(order)
        return None

    def repeats(self, order: PlanOrdered) -> bool:
        """Whether this is the order in progress once more."""
        return self.execution is not None and self.execution[0].plan_id == order.plan_id

    def refusal(
        self, order: PlanOrdered, view: GroupView, *, settled: bool, most: int | None
    ) -> str:
        """Why an order cannot be carried out now; empty if it can."""
        if why := self._rejection(order):
            return why
        if not settled or view.now > order.until:
            return "the group was not settled in time"
        return unfit(order, view.partitions, held_as_planned(order, view.assignment), most=most)

    def _rejection(self, order: PlanOrdered) -> str:
        """Why an order is refused whatever the group is like."""
        if order.plan is None or order.refused or self.execution is not None:
            return order.refused or "another plan is being carried out"
        return ""

    def begin(self, order: PlanOrdered) -> None:
        """Starts an order; from now on its plan is held."""
        self.execution = order, time.monotonic()
        self._held, self._held_until = order.plan_id, time.monotonic() + order.hold_s

    def end(self) -> None:
        """Marks the order in progress as done."""
        if self.execution is not None:
            self._held_until = time.monotonic() + self.execution[0].hold_s
        self.execution = None

    def abandon(self, why: str) -> WriteJournal | None:
        """Gives up the order in progress; returns the journal entry, None if there is no order."""
        entry = self.failed_entry(why)
        if entry is None:
            return None
        self.execution = None
        self._held, self._held_until = "", _NEVER
        return WriteJournal(entry)

    def failed_entry(self, why: str) -> JournalEntry | None:
        """The journal entry if the order in progress were given up; None if there is no order."""
        if self.execution is None:
            return None
        return entry_of(self.execution[0], PlanState.FAILED, why=why, begun=True)

    def is_changed(self, plan: GroupPlan) -> bool:
        """Whether the group's plan gives the ordered plan's topics to members in another way."""
        ordered = None if self.execution is None else self.execution[0].plan
        if ordered is None:
            return False
        mine = {p: c for p, c in plan.assignment.items() if p.topic in ordered.scope.topics}
        return _shares(mine) != _shares(ordered.assignment)

    def end_entries(
        self, plan: GroupPlan, shares: Set[frozenset[TopicPartition]]
    ) -> list[WriteJournal]:
        """The last journal entries of the order in progress; empty if it is not done.

        `shares` is what each member owns, as the brokers report it.
        """
        ordered = None if self.execution is None else self.execution[0].plan
        if self.execution is None or ordered is None or not _shares(plan.assignment) <= shares:
            return []
        entries = done_entries(self.execution[0], of=len(ordered.moves))
        return [WriteJournal(entry) for entry in entries]

    def lasted_s(self) -> float:
        """For how long the order in progress has been carried out."""
        return 0.0 if self.execution is None else time.monotonic() - self.execution[1]

    def hold(self) -> PlanHold:
        """The plan that only urgent decisions may undo, and for how long."""
        left_s = max(0.0, self._held_until - time.monotonic())
        return PlanHold(plan=self._held, left_s=left_s)


def _shares(assignment: Mapping[TopicPartition, int]) -> set[frozenset[TopicPartition]]:
    """The set of partitions that each consumer is given."""
    given: dict[int, set[TopicPartition]] = {}
    for partition, consumer in assignment.items():
        given.setdefault(consumer, set()).add(partition)
    return {frozenset(share) for share in given.values()}
