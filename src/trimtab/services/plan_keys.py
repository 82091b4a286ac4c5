"""Plans which partition each hot key of a topic goes to; changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trimtab.kafka.cluster import Cluster
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import Measurement
from trimtab.model.plan import KeyPlan
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.keys.plan import plan_keys
from trimtab.plan.keys.planner import FIRST_PLAN, KeyContext, KeyPlanner
from trimtab.plan.keys.situation import (
    cautions,
    cautions_of_measurement,
    counts_of_measurement,
    measured_topic,
)
from trimtab.services.measure import MeasuredSpan, MeasureRequest, measure_span
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.spark.session import Session

_MAX_AGE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlanRequest:
    """What is planned, and by which planner, with its options.

    `counts` may be a measurement: then the plan is for the measured topic, or for `topic` if
    there are several. Without `allow_incomplete` incomplete rates are warned of, and always a
    measurement older than `max_age_s`, by default 15 minutes.
    """

    counts: KeyCounts | Measurement
    planner: KeyPlanner
    context: KeyContext = FIRST_PLAN
    topic: str | None = None
    allow_incomplete: bool = False
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKeys:
    """A plan, and the counts that it is for."""

    plan: KeyPlan
    counts: KeyCounts


def plan_hot_keys(
    request: KeyPlanRequest, *, listener: ProgressListener = NO_LISTENER
) -> PlannedKeys:
    """Makes a plan for the keys of a topic."""
    now_ts, topic = wall_clock_us(), request.topic
    counts = request.counts
    if isinstance(counts, Measurement):
        measured = counts
        topic = measured_topic(measured, topic)
        counts = counts_of_measurement(measured, topic)
        listener.note(
            f"Topic {topic}: {counts.records} records in {counts.window_s:.4g} s at the measured "
            "rates; all keys are at their home partitions."
        )
        for line in cautions_of_measurement(
            measured,
            topic,
            now_ts=now_ts,
            max_age_s=_MAX_AGE_S if request.max_age_s is None else request.max_age_s,
            incomplete=not request.allow_incomplete,
        ):
            listener.warning(line)
    plan = plan_keys(
        counts,
        planner=request.planner,
        made_ts=now_ts,
        topic=topic,
        context=request.context,
    )
    for line in cautions(counts, request.planner.options):
        listener.warning(line)
    return PlannedKeys(plan=plan, counts=counts)


def plan_live_keys(
    planner: KeyPlanner,
    cluster: Cluster,
    measuring: MeasureRequest,
    span: MeasuredSpan,
    *,
    start_spark: Callable[[], Session],
    context: KeyContext = FIRST_PLAN,
    listener: ProgressListener = NO_LISTENER,
) -> PlannedKeys:
    """Measures a topic of a cluster, and makes a plan for its keys."""
    found = measure_span(cluster, measuring, span, start_spark=start_spark, listener=listener)
    for line in found.notes:
        listener.warning(line)
    (topic,) = measuring.topics
    request = KeyPlanRequest(
        counts=found.measurement, planner=planner, topic=topic, context=context
    )
    return plan_hot_keys(replace(request, allow_incomplete=True), listener=listener)
