"""A plan for a consumer group: what a planner decided, with reasons, forecast, cost and inverse.

Every figure is computed from the loads, the assignment before and the assignment after; the
planner itself returns only the new assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.evaluate.rscore import moved_load, rscore
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import (
    ConsumerMove,
    ConsumerPlan,
    ConsumerState,
    Cost,
    InverseMove,
    Layer,
    Reason,
    Scope,
    Unplaced,
)
from trimtab.model.plan_codec import consumers_snapshot_id
from trimtab.model.scalars import tidy
from trimtab.plan.consumers.bins import check_countable
from trimtab.plan.consumers.bounds import fewest_consumers, least_moved_load
from trimtab.plan.consumers.latency_demand import demand_of, lower_bound
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PackingPlanner
from trimtab.plan.consumers.registry import PACKING_PLANNERS
from trimtab.plan.planner import planner_named


def plan_consumers(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    *,
    planner: str | PackingPlanner,
    made_ts: int,
    group: str | None = None,
    dead: frozenset[int] = frozenset(),
    context: PackingContext = NO_CONTEXT,
) -> ConsumerPlan:
    """Plans which consumer reads which partition.

    `planner` is a name, or a planner with options (`PackingPlanner.with_options`). `current` is the
    present assignment; its partitions without a load have departed. Partitions of `dead` consumers
    are placed like arrivals, and the indexes of these consumers may be reused.
    """
    decides = _planner(planner)
    check_countable(loads, limits)
    before = current.only(loads).without(dead)
    return described(
        decides(loads, before, limits, context),
        loads,
        current,
        limits,
        planner=decides,
        made_ts=made_ts,
        group=group,
        dead=dead,
        context=context,
    )


def _planner(planner: str | PackingPlanner) -> PackingPlanner:
    if isinstance(planner, str):
        return planner_named(PACKING_PLANNERS, planner, Layer.CONSUMERS)
    return planner


def described(  # noqa: PLR0913 - each is a fact of its own
    after: Assignment,
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    *,
    planner: str | PackingPlanner,
    made_ts: int,
    group: str | None = None,
    dead: frozenset[int] = frozenset(),
    context: PackingContext = NO_CONTEXT,
) -> ConsumerPlan:
    """The plan from `current` to an assignment that a planner has already decided."""
    decides = _planner(planner)
    present = current.only(loads)
    before = present.without(dead)
    orphans = frozenset(present) - frozenset(before)
    real = moved(before, after)
    bound = _bound(loads, limits, context, decides)
    return ConsumerPlan(
        layer=Layer.CONSUMERS,
        planner=decides.name,
        params=_params(limits, dead, context, decides) | dict(after.notes),
        seed=context.seed,
        made_ts=made_ts,
        snapshot=consumers_snapshot_id(loads, present),
        scope=Scope(group=group, topics=tuple(sorted({p.topic for p in loads}))),
        moves=tuple(_moves(loads, before, after, limits, orphans)),
        assignment=after,
        before=_state(before, loads),
        after=_state(after, loads),
        bound=bound,
        bound_moved_load=least_moved_load(loads, before, limits),
        gap=max(0.0, len(after.consumers) / bound - 1) if bound else 0.0,
        cost=Cost(
            moves=len(real),
            moved_load=moved_load(before, after, loads),
            rscore=rscore(before, after, loads, capacity=limits.capacity),
            orphan_load=sum(loads[p] for p in sorted(orphans)),
        ),
        inverse=tuple(
            InverseMove(topic=p.topic, partition=p.partition, source=after[p], target=before[p])
            for p in reversed(real)
        ),
        unplaced=tuple(_unplaced(loads, after, limits, context, decides)),
    )


def _bound(
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    context: PackingContext,
    planner: PackingPlanner,
) -> int:
    """The lower bound of consumers for any plan with this planner's guarantees."""
    if _keeps_latency(context, planner):
        return lower_bound(demand_of(loads, limits, context))
    return fewest_consumers(loads.values(), limits)


def _keeps_latency(context: PackingContext, planner: PackingPlanner) -> bool:
    return context.sla_s is not None and "sla_s" in planner.uses


_SAID = frozenset({"members", "sla_s"})
"""Facts that are parameters of a plan; the others are stored elsewhere in it, or not at all."""


def _params(
    limits: GroupLimits, dead: frozenset[int], context: PackingContext, planner: PackingPlanner
) -> dict[str, Any]:
    params: dict[str, Any] = {"capacity": tidy(limits.capacity)}
    if limits.capacities:
        params["capacities"] = {str(c): tidy(limits.of(c)) for c in sorted(limits.capacities)}
    if limits.unit is not Unit.BYTES_S:
        params["unit"] = str(limits.unit)
    if dead:
        params["dead"] = sorted(dead)
    told = {name: getattr(context, name) for name in _SAID & planner.uses}
    told = {name: value for name, value in told.items() if value is not None}
    for name, value in sorted((told | planner.changed_options).items()):
        params[name] = tidy(value) if isinstance(value, float) else value
    return params


def _state(assignment: Assignment, loads: Mapping[TopicPartition, float]) -> ConsumerState:
    carried = assignment.loads(loads)
    return ConsumerState(consumers=len(carried), max_load=max(carried.values(), default=0))


def _moves(
    loads: Mapping[TopicPartition, float],
    before: Assignment,
    after: Assignment,
    limits: GroupLimits,
    orphans: frozenset[TopicPartition],
) -> Iterator[ConsumerMove]:
    """Every partition that changes its consumer, ascending, with the reason."""
    changed = [p for p in sorted(after) if before.get(p) != after[p]]
    if not changed:
        return
    carried, carries = before.loads(loads), after.loads(loads)

    def why(partition: TopicPartition) -> tuple[Reason, dict[str, float]]:
        source, target = before.get(partition), after[partition]
        room = limits.of(target)
        if source is None:
            reason = Reason.ORPHAN if partition in orphans else Reason.ARRIVAL
            return reason, {"load_to": carries[target], "capacity": room}
        if carried[source] > limits.of(source):
            return Reason.OVERLOAD, {"load_from": carried[source], "capacity": limits.of(source)}
        if source not in carries:
            counts = {"consumers_before": len(carried), "consumers_after": len(carries)}
            return Reason.CONSOLIDATE, {"load_from": carried[source], **counts}
        load_to = carried.get(target, 0)
        return Reason.REPACK, {"load_from": carried[source], "load_to": load_to, "capacity": room}

    for partition in changed:
        reason, numbers = why(partition)
        yield ConsumerMove(
            topic=partition.topic,
            partition=partition.partition,
            source=before.get(partition),
            target=after[partition],
            load=loads[partition],
            reason=reason,
            numbers=numbers,
        )


def _unplaced(
    loads: Mapping[TopicPartition, float],
    after: Assignment,
    limits: GroupLimits,
    context: PackingContext,
    planner: PackingPlanner,
) -> Iterator[Unplaced]:
    """Partitions that exceed their consumer's capacity, or that cannot meet the SLA."""
    for partition in sorted(after):
        load = loads[partition]
        if load > limits.of(after[partition]):
            oversize = "unsatisfiable" if _keeps_latency(context, planner) else "oversize"
            yield Unplaced(
                topic=partition.topic,
                partition=partition.partition,
                why=oversize if load > limits.largest else "no_room",
                load=load,
            )
