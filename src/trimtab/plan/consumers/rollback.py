"""The plan that undoes a plan: its stored inverse as a separate plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.plan import ConsumerMove, ConsumerPlan, Cost, InverseMove, Reason
from trimtab.model.plan_codec import consumers_snapshot_id, plan_id

PLANNER = "rollback"


def rollback_of(
    plan: ConsumerPlan, *, made_ts: int, present: Assignment | None = None
) -> ConsumerPlan:
    """Restores the assignment before the plan; arrivals and orphans stay, they had no consumer.

    `present` is the assignment now: members of a subscribed group are numbered by what they own,
    so the plan itself may have changed their numbers.
    """
    name = plan_id(plan)
    if present is not None:
        plan = _in_numbers_of(plan, present)
    back = {TopicPartition(m.topic, m.partition): m.target for m in plan.inverse}
    after = Assignment({p: back.get(p, consumer) for p, consumer in plan.assignment.items()})
    loads = {m.name: m.load for m in plan.moves}
    capacity = float(plan.params["capacity"])
    moved = sum(loads[p] for p in sorted(back))
    return ConsumerPlan(
        layer=plan.layer,
        planner=PLANNER,
        params={**plan.params, "rollback_of": name},
        seed=plan.seed,
        made_ts=made_ts,
        snapshot=consumers_snapshot_id(plan.assignment, plan.assignment),
        scope=plan.scope,
        moves=tuple(
            ConsumerMove(
                topic=m.topic,
                partition=m.partition,
                source=m.source,
                target=m.target,
                load=loads[TopicPartition(m.topic, m.partition)],
                reason=Reason.REPACK,
                numbers={"capacity": capacity},
            )
            for m in sorted(plan.inverse, key=lambda m: (m.topic, m.partition))
        ),
        assignment=after,
        before=plan.after,
        after=plan.before,
        bound=plan.bound,
        bound_moved_load=moved,
        gap=max(0.0, plan.before.consumers / plan.bound - 1) if plan.bound else 0.0,
        cost=Cost(moves=len(back), moved_load=moved, rscore=moved / capacity, orphan_load=0),
        inverse=tuple(
            InverseMove(topic=m.topic, partition=m.partition, source=m.target, target=m.source)
            for m in reversed(plan.inverse)
        ),
        members=plan.members,
    )


def _in_numbers_of(plan: ConsumerPlan, present: Assignment) -> ConsumerPlan:
    """The same plan with the numbers of the consumers that own its partitions now."""
    numbers: dict[int, int] = {}
    for partition in sorted(plan.assignment):
        now = present.get(partition)
        if now is not None and now not in numbers.values():
            numbers.setdefault(plan.assignment[partition], now)
    taken = {*numbers.values(), *present.consumers}
    free = (n for n in count() if n not in taken)
    for consumer in sorted({*plan.assignment.consumers, *(m.target for m in plan.inverse)}):
        if consumer not in numbers:
            numbers[consumer] = next(free)
    return replace(
        plan,
        assignment=Assignment({p: numbers[c] for p, c in plan.assignment.items()}),
        inverse=tuple(
            replace(m, source=numbers[m.source], target=numbers[m.target]) for m in plan.inverse
        ),
    )
