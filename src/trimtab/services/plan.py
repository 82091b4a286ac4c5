"""Plans which consumer of a group reads which partition; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.measure.group_state import GroupSnapshot
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, Measurement, Unit
from trimtab.model.plan import ConsumerPlan
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PackingPlanner
from trimtab.plan.consumers.situation import (
    Situation,
    cautions,
    check_lags,
    in_group,
    situation_of_file,
    situation_of_measurement,
)
from trimtab.services.groups import present_group
from trimtab.services.progress import NO_LISTENER, ProgressListener

_MAX_AGE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is planned, and by which planner, with its options.

    `origin` is what messages call the loads. `capacity` and `unit` override those of the loads.
    `dead` are consumers whose partitions need a new one. Without `allow_incomplete` incomplete
    rates are warned of, and always loads older than `max_age_s`, by default 15 minutes.
    """

    loads: Loads | Measurement
    origin: str
    planner: PackingPlanner
    context: PackingContext = NO_CONTEXT
    group: str | None = None
    topics: frozenset[str] | None = None
    capacity: float | None = None
    unit: Unit | None = None
    step: int | None = None
    dead: frozenset[int] = frozenset()
    allow_incomplete: bool = False
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """A plan, and the loads that it is for."""

    plan: ConsumerPlan
    loads: Mapping[TopicPartition, float]


def plan_group(
    request: PlanRequest,
    cluster: Cluster | None = None,
    *,
    live: GroupSnapshot | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> PlannedGroup:
    """Makes a plan for a consumer group.

    The present assignment is that of the group in `live`, or as `cluster` has it now; without
    both, it is that of the loads file, if it has one.
    """
    if live is None and cluster is not None and request.group is not None:
        live = present_group(cluster, request.group, request.topics)
    if live is not None and request.group is not None:
        topics = _existing_topics(live, request.group, request.topics)
        request = replace(request, topics=topics)
        _warn_of_other_cluster(request, live, listener)
    situation = _situation(request, live)
    now_ts = wall_clock_us()
    _warn(request, situation, now_ts, listener)
    check_lags(situation, request.planner)
    context = replace(request.context, lags=situation.lags)
    if context.sla_s is None and situation.limits.unit is Unit.RECORDS_S:
        context = replace(context, sla_s=situation.sla_s)
    plan = plan_consumers(
        situation.loads,
        situation.current,
        situation.limits,
        planner=request.planner,
        made_ts=now_ts,
        group=request.group,
        dead=request.dead,
        context=context,
    )
    if live is not None:
        plan = replace(plan, members=live.members)
    return PlannedGroup(plan=plan, loads=situation.loads)


def _situation(request: PlanRequest, live: GroupSnapshot | None) -> Situation:
    """What the planner starts from."""
    if isinstance(request.loads, Loads):
        found = situation_of_file(
            request.loads,
            origin=request.origin,
            step=request.step,
            topics=request.topics,
            capacity=request.capacity,
            unit=request.unit,
        )
    elif request.step is not None:
        raise ConfigError(f"{request.origin} is a measurement, it has no steps.")
    else:
        found = situation_of_measurement(
            request.loads,
            topics=request.topics,
            capacity=request.capacity,
            unit=request.unit,
            group=request.group,
            live=live,
        )
    return found if live is None else in_group(found, live)


def _warn(
    request: PlanRequest, situation: Situation, now_ts: int, listener: ProgressListener
) -> None:
    """Tells what the plan assumes, and what makes it doubtful."""
    if situation.remark is not None:
        listener.note(situation.remark)
    if situation.loads and not situation.current:
        listener.note("No partition has a consumer yet: every partition is planned as a new one.")
    measured = request.loads if isinstance(request.loads, Measurement) else None
    for line in cautions(
        situation,
        measured,
        now_ts=now_ts,
        max_age_s=_MAX_AGE_S if request.max_age_s is None else request.max_age_s,
        incomplete=not request.allow_incomplete,
    ):
        listener.warning(line)
    for consumer in sorted(request.dead - frozenset(situation.current.consumers)):
        listener.warning(f"--dead {consumer}: that consumer reads nothing")


def _warn_of_other_cluster(
    request: PlanRequest, live: GroupSnapshot, listener: ProgressListener
) -> None:
    """Warns of loads that were measured on another cluster than that of the group."""
    measured_on = request.loads.cluster if isinstance(request.loads, Measurement) else None
    if None not in (measured_on, live.cluster) and measured_on != live.cluster:
        listener.warning(
            f"{request.origin} was measured on cluster {measured_on}, not on {live.cluster}"
        )


def _existing_topics(
    live: GroupSnapshot, group: str, asked: frozenset[str] | None
) -> frozenset[str]:
    """The topics to plan for; one that does not exist is refused."""
    there = frozenset(p.topic for p in live.partitions)
    if asked is None and not there:
        raise ConfigError(
            f'Group "{group}" reads no topic and has no offsets.',
            hint="Check its name, or name the topics that it will read with --topic.",
        )
    for topic in sorted((asked or frozenset()) - there):
        raise ConfigError(f'The cluster has no topic "{topic}".')
    return there
