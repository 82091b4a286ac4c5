"""Carries out a plan: passes it to the group's controller, and follows its journal to the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.apply.freshness import check_fresh
from trimtab.errors import ApplyError, ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import dumps
from trimtab.model.control import PlanOrder
from trimtab.model.control_codec import control_to
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan import AnyPlan, ConsumerPlan, KeyPlan
from trimtab.model.plan_codec import plan_id
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.consumers.rollback import rollback_of
from trimtab.services.groups import present_group

if TYPE_CHECKING:
    from trimtab.apply.kafka.plan_topic import PlanTopic

_MICROS = 1_000_000
_LOOK_S = 0.5
_ANSWER_S = 30.0  # then the order expires: the controller refuses it
_GRACE_S = 10.0  # the clocks of both may differ

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """How a plan is carried out.

    `hold_s` is how long the controller leaves the result alone unless an overload or a partition
    without a reader asks for more; `within_s` is how long the end is waited for.
    """

    hold_s: float = 300.0
    within_s: float = 600.0


def stored_plan(cluster: Cluster, plan: str) -> tuple[AnyPlan, JournalEntry | None]:
    """A plan that is kept in the cluster, with the last entry of its journal."""
    from trimtab.apply.kafka.plan_topic import kept_plan

    found, entry = kept_plan(cluster, plan)
    if found is None:
        raise ConfigError(
            f"There is no file {plan}, and {cluster.topics.plans} has no plan of that id.",
            hint='Give a plan file, or an id that "trimtab apply" or "trimtab run" has shown.',
        )
    return found, entry


def journal_of(cluster: Cluster, plan: AnyPlan) -> JournalEntry | None:
    """How far the execution of a plan has come; None if that was never requested."""
    from trimtab.apply.kafka.plan_topic import kept_plan

    return kept_plan(cluster, plan_id(plan))[1]


def undoing(plan: AnyPlan, cluster: Cluster | None = None) -> ConsumerPlan:
    """The plan that undoes this one, in the numbers that the group's consumers have now."""
    mine = _of_consumers(plan)
    present = None
    if cluster is not None and mine.scope.group is not None:
        topics = frozenset(mine.scope.topics)
        present = present_group(cluster, mine.scope.group, topics).assignment
    return rollback_of(mine, made_ts=wall_clock_us(), present=present)


def carry_out(
    plan: AnyPlan,
    cluster: Cluster,
    options: ApplyOptions,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
    undoes: AnyPlan | None = None,
) -> JournalEntry:
    """Has a plan carried out, and returns the last entry of its journal when it is done.

    `undoes` is the plan that this one rolls back; its journal then ends with `rolled_back`.
    """
    from trimtab.apply.kafka.plan_topic import PlanTopic

    mine = _of_consumers(plan)
    group = mine.scope.group
    if group is None:
        raise ConfigError(
            "The plan names no group.", hint='Make it with "trimtab plan consumers --group G".'
        )
    with closing(PlanTopic(cluster)) as topic:
        topic.refresh()
        before = topic.newest(plan_id(mine))
        if before is None or before.state is not PlanState.RUNNING:  # else it is followed
            now = present_group(cluster, group, frozenset(mine.scope.topics))
            check_fresh(mine, now.partitions, now.assignment)
            _check_controller(cluster, group)
            if _newest(cluster, plan_id(mine)) == before:  # else someone has just ordered it
                _order(topic, mine, cluster, group, options)
        ended = _follow(topic, mine, cluster, group, options, on_progress, before=before)
        if undoes is not None:
            _mark_undone(topic, cluster, undoes, by=ended)
    return ended


def _newest(cluster: Cluster, plan: str) -> JournalEntry | None:
    """The last entry of a plan's journal at this moment."""
    from trimtab.apply.kafka.plan_topic import PlanTopic

    with closing(PlanTopic(cluster)) as topic:
        topic.refresh()
        return topic.newest(plan)


def _mark_undone(topic: PlanTopic, cluster: Cluster, plan: AnyPlan, *, by: JournalEntry) -> None:
    """Ends a plan's journal with `rolled_back`, if a controller of an earlier release did not.

    A plan that was ordered again after its rollback is left alone.
    """
    ran = _newest(cluster, plan_id(plan))
    if ran is not None and (ran.state is PlanState.ROLLED_BACK or not ran.ended or ran.ts > by.ts):
        return
    of = by.of if ran is None else ran.of
    topic.write(
        JournalEntry(
            plan=plan_id(plan), state=PlanState.ROLLED_BACK, step=0, of=of, ts=wall_clock_us()
        )
    )


def _of_consumers(plan: AnyPlan) -> ConsumerPlan:
    if not isinstance(plan, ConsumerPlan):
        raise ConfigError(not_carried_out(plan))
    return plan


def not_carried_out(plan: AnyPlan) -> str:
    """Why this release only shows a plan of this layer."""
    text = f"Plans for {plan.layer} cannot be carried out by this release"
    is_of_keys = isinstance(plan, KeyPlan)
    return f"{text}: keys are moved by a gateway, which it lacks." if is_of_keys else f"{text}."


def _check_controller(cluster: Cluster, group: str) -> None:
    """Refuses if no controller runs the group."""
    if not _has_controller(cluster, group):
        raise ApplyError(
            f"No controller runs group {group}, so the plan cannot be carried out.",
            hint=f'Start one with "trimtab run --group {group} --topic … --execute".',
        )


def _has_controller(cluster: Cluster, group: str) -> bool:
    with cluster.admin() as admin:
        return any(found.members for found in admin.groups([f"trimtab-controller-{group}"]))


def _order(
    topic: PlanTopic, plan: ConsumerPlan, cluster: Cluster, group: str, options: ApplyOptions
) -> None:
    from trimtab.apply.consumers.kafka.control_channel import TO_CONTROLLER
    from trimtab.apply.kafka.plan_topic import deliver

    ts = wall_clock_us()
    made = JournalEntry(plan=plan_id(plan), state=PlanState.MADE, step=0, of=len(plan.moves), ts=ts)
    topic.keep(plan, made)
    order = PlanOrder(
        plan=plan_id(plan), hold_s=options.hold_s, expires_ts=ts + round(_ANSWER_S * _MICROS)
    )
    value = dumps(control_to(order, ts=ts)).encode()
    deliver(
        cluster,
        [(cluster.topics.control(group), TO_CONTROLLER, None, value)],
        within_s=min(cluster.timeouts.delivery_s, _ANSWER_S),  # the order expires then
    )


def _follow(
    topic: PlanTopic,
    plan: ConsumerPlan,
    cluster: Cluster,
    group: str,
    options: ApplyOptions,
    on_progress: OnProgress,
    *,
    before: JournalEntry | None = None,
) -> JournalEntry:
    """Waits for the end of a plan that was ordered; `before` may be the end of an earlier run."""
    name, began = plan_id(plan), time.monotonic()
    while True:
        topic.wait(_LOOK_S)
        entry, waited_s = topic.newest(name), time.monotonic() - began
        if entry is not None and entry.ended and entry == before:
            entry = None  # the new order, which someone else has just sent, was not read yet
        if waited_s > min(options.within_s, _ANSWER_S + _GRACE_S if _is_open(entry) else math.inf):
            # Read again: if this process was suspended, it has not seen what happened meanwhile.
            entry = _newest(cluster, name)
        if entry is not None:
            on_progress(entry.step, entry.of)
            if entry.ended:
                return _judged(entry)
        if _is_open(entry) and waited_s > _ANSWER_S + _GRACE_S:
            if entry is not None:
                why = "no controller took the order"
                topic.write(
                    JournalEntry(
                        plan=name,
                        state=PlanState.CANCELLED,
                        step=0,
                        of=entry.of,
                        ts=wall_clock_us(),
                        why=why,
                    )
                )
            raise ApplyError(
                f"The controller of group {group} did not take plan {name} within "
                f"{_ANSWER_S:g} s; nothing was moved.",
                hint="Is it busy with a hand-over, or older than this release? See its log.",
            )
        if waited_s > options.within_s:
            raise _not_ended(name, entry, cluster, group, options)


def _is_open(entry: JournalEntry | None) -> bool:
    """Whether no controller has taken the order yet."""
    return entry is None or entry.state is PlanState.MADE


def _not_ended(
    name: str, entry: JournalEntry | None, cluster: Cluster, group: str, options: ApplyOptions
) -> ApplyError:
    """The error when a plan has not ended in time."""
    hint = f'See how far it is with "trimtab apply {name}".'
    if _is_open(entry):
        return ApplyError(
            f"The controller of group {group} has not started plan {name} after "
            f"{options.within_s:g} s; it may still start it.",
            hint=hint,
        )
    if not _has_controller(cluster, group):
        return ApplyError(
            f"Plan {name} is not finished after {options.within_s:g} s, and no controller runs "
            f"group {group} now; the next one continues it.",
            hint=f'Start one with "trimtab run --group {group} --topic … --execute".',
        )
    return ApplyError(
        f"Plan {name} is still being carried out after {options.within_s:g} s; it goes on.",
        hint=hint,
    )


def _judged(entry: JournalEntry) -> JournalEntry:
    if entry.state is not PlanState.DONE:
        raise ApplyError(
            f"Plan {entry.plan} was not carried out ({entry.state}, {entry.step} of {entry.of} "
            f"moves done): {entry.why.rstrip('.') or 'no reason was given'}.",
            hint='Make a new plan with "trimtab plan consumers".',
        )
    return entry
