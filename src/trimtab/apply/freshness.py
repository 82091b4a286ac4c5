"""Checks whether a plan still fits the group, and what has changed since it was made.

A plan depends on the partitions of its topics and their owners, not on loads or offsets, which
always change. The snapshot id tells whether it is still valid; the differences tell why not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from trimtab.errors import PlanOutdated
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.plan import ConsumerPlan, Reason
from trimtab.model.plan_codec import consumers_snapshot_id, plan_id

_NAMED = 3


class PlanChange(StrEnum):
    """What happened to a partition since the plan was made."""

    APPEARED = "is new"
    VANISHED = "was deleted"
    OTHER_OWNER = "has another owner"
    NO_OWNER = "has no owner any more"
    OWNER = "has an owner now"


@dataclass(frozen=True, slots=True)
class Difference:
    """One partition that has changed since the plan was made."""

    partition: TopicPartition
    change: PlanChange

    def __str__(self) -> str:
        return f"{self.partition} {self.change}"


def differences(
    plan: ConsumerPlan, partitions: Collection[TopicPartition], assignment: Assignment
) -> tuple[Difference, ...]:
    """The partitions that have changed since the plan was made, ascending."""
    dead = frozenset(plan.params.get("dead", ()))
    orphans = frozenset(m.name for m in plan.moves if m.reason is Reason.ORPHAN)
    previous, there = plan.previous, frozenset(partitions)

    def change(partition: TopicPartition) -> PlanChange | None:
        was, now = previous.get(partition), assignment.get(partition)
        if partition not in plan.assignment:
            return PlanChange.APPEARED
        if partition not in there:
            return PlanChange.VANISHED
        if partition in orphans and now in dead:
            return None
        if was == now and partition not in orphans:
            return None
        if now is None:
            return PlanChange.NO_OWNER
        return (
            PlanChange.OTHER_OWNER if was is not None or partition in orphans else PlanChange.OWNER
        )

    changes = {p: change(p) for p in sorted({*plan.assignment, *there})}
    return tuple(Difference(p, found) for p, found in changes.items() if found is not None)


def check_fresh(
    plan: ConsumerPlan, partitions: Collection[TopicPartition], assignment: Assignment
) -> None:
    """Raises PlanOutdated if the plan was made for another snapshot."""
    there = frozenset(partitions)
    now = consumers_snapshot_id(there, assignment.only(dict.fromkeys(there)))
    if now == plan.snapshot:
        return
    found = differences(plan, there, assignment)
    named = ", ".join(str(d) for d in found[:_NAMED]) or "partitions or owners have changed"
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    raise PlanOutdated(
        f"Plan {plan_id(plan)} was made for snapshot {plan.snapshot}, "
        f"the group is at {now}: {named}{more}.",
        hint=f'Run "trimtab plan {plan.layer}" again.',
    )
