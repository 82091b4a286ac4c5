"""Reads ordered plans from `trimtab.plans` for the controller of a group."""

from __future__ import annotations

import time
from contextlib import closing

import structlog

from trimtab.apply.consumers.controller_state import PlanOrdered
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.apply.consumers.plan_orders import InheritedOrders, inherited_orders
from trimtab.apply.kafka.plan_topic import PlanTopic, kept_plan
from trimtab.errors import BadFile, PlanDamaged, TrimtabError
from trimtab.model.control import PlanOrder
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan import AnyPlan, ConsumerPlan
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_MICROS = 1_000_000


def ordered(config: GroupConfig, order: PlanOrder) -> PlanOrdered | None:
    """The ordered plan as an event, with the reason if this controller cannot carry it out.

    None for an order that is no longer open: the plan was started, finished or cancelled in the
    meantime, and a plan is carried out only once.
    """
    refused, found = "", None
    try:
        found, entry = kept_plan(config.cluster, order.plan)
    except TrimtabError as error:
        refused = f"it could not be read: {error.message}"
    else:
        if entry is not None and entry.state is not PlanState.MADE:
            log.info("order_was_ignored", plan=order.plan, state=str(entry.state))
            return None
        if found is None:
            refused = f"{config.cluster.topics.plans} has no such plan"
        elif not isinstance(found, ConsumerPlan) or found.scope.group != config.group:
            refused = f"it is not a plan for the consumers of group {config.group}"
        elif set(found.scope.topics) - set(config.topics):
            refused = f"this controller is responsible for {', '.join(config.topics)} only"
    ts, now = wall_clock_us(), time.monotonic()
    if not refused and ts > order.expires_ts:
        refused = "the order has expired"
    return PlanOrdered(
        now,
        order.plan,
        found if isinstance(found, ConsumerPlan) else None,
        until=now + max(0.0, (order.expires_ts - ts) / _MICROS),
        hold_s=order.hold_s,
        ts=ts,
        refused=refused,
    )


def left_orders(config: GroupConfig) -> InheritedOrders:
    """The previous controller's orders in progress.

    Raises `BrokerUnavailable` if the journal cannot be read: a plan in progress would be forgotten.
    A plan that is damaged is left out, and the others count.
    """
    with closing(PlanTopic(config.cluster)) as topic:
        topic.refresh()
        found = [(_readable_plan(topic, entry), entry) for entry in topic.entries()]
    of_consumers = [(plan, entry) for plan, entry in found if isinstance(plan, ConsumerPlan)]
    return inherited_orders(of_consumers, config.group, now_ts=wall_clock_us())


def _readable_plan(topic: PlanTopic, entry: JournalEntry) -> AnyPlan | None:
    try:
        return topic.plan(entry.plan)
    except (BadFile, PlanDamaged) as error:
        log.warning("plan_not_readable", plan=entry.plan, why=error.message)
        return None


def resumed(plan: ConsumerPlan, entry: JournalEntry, *, hold_s: float, now: float) -> PlanOrdered:
    """A plan that was in progress when the previous controller ended."""
    return PlanOrdered(now, entry.plan, plan, hold_s=hold_s, ts=wall_clock_us(), step=entry.step)
