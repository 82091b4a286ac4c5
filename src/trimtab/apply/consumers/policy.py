"""Decides about a group from measured rates: how many consumers, which partitions each, and why.

Promise  Pure. Only fresh and complete rates are used, else the decision is to refuse; partitions
         without a consumer are assigned even on older rates, and then nothing else is moved. During
         the cooldown the number of consumers does not change, unless one has exited. If more
         consumers are needed than allowed, these share the load evenly. Move budgets always hold.
Paper    Landau et al. for planners by bytes/s: decide when a partition has no consumer, when a
         consumer with several partitions is overloaded, or after a quiet time. Ezzeddine et al. for
         planners by latency: decide every interval, by arrival rate and lag. Beyond both: a packing
         planner with an SLA packs `urgent` loads, so that it also clears backlogs in time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from trimtab.apply.consumers.consumer_numbers import is_renumbered, on_idle, on_lowest
from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import Facts, NewestRates, facts_of, some_of, urgent
from trimtab.apply.consumers.verdicts import Verdicts, with_more
from trimtab.apply.consumers.waiting import (
    available_consumers,
    ending,
    is_about_to_start,
    subscribed,
    waits_for_start,
)
from trimtab.errors import NoFeasiblePlan, PlanningError
from trimtab.evaluate.rscore import moved_load
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import MEASURED_HEADROOM, GroupLimits, Unit
from trimtab.model.plan import ConsumerPlan
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.levelling import level
from trimtab.plan.consumers.plan import described, plan_consumers
from trimtab.plan.consumers.planner import (
    Autoscaler,
    MoveBudget,
    PackingContext,
    PlannerKind,
    ScalingRequest,
)
from trimtab.plan.consumers.relief import (
    first_aid,
    given_out,
    overload,
    overloads,
    relieves,
    shared_peak,
    too_big_said,
)


class _Case(NamedTuple):
    """What a decision is made from; the capacity of consumers is known."""

    verdicts: Verdicts
    view: GroupView
    facts: Facts
    limits: GroupLimits
    aim: DecisionGoals


_SPARE = 0.03
_WORTH_MOVING = 0.9


def verdict(
    view: GroupView, measured: NewestRates, aim: DecisionGoals, *, ts: int
) -> GroupVerdict | None:
    """Decides, or returns None if no decision is due; `ts` is the current time in microseconds."""
    if not view.partitions:
        due = view.since_decision_s >= max(aim.interval_s, aim.max_quiet_s)
        why_not = ending(view) if due else ""
        return Verdicts(view, aim, ts).stay(why_not) if why_not else None
    # Sorted once: every step below sorts, and finds the order.
    view = replace(view, assignment=_in_order(view.assignment))
    facts = facts_of(measured, view, aim, ts=ts)
    why = _occasion(view, facts, aim)
    if why is None:
        return None
    verdicts = Verdicts(view, aim, ts)
    if view.subscribed:
        return verdicts.refuse(subscribed(view, aim.group))
    if wait := waits_for_start(view):
        return verdicts.stay(wait)
    available, limit = available_consumers(view)
    if available and (aim.most is None or aim.most > available):
        aim, verdicts = replace(aim, most=available), replace(verdicts, limit=limit)
    answer, more = _decided(verdicts, view, facts, aim, why), ending(view)
    if _is_held(answer, verdicts, facts):
        held = f"plan {view.hold.plan} is held for {view.hold.left_s:.0f} s more"
        answer = verdicts.stay(f"{answer.decision.reason}; {held}", answer.decision.forecast)
    return with_more(answer, f"; {more}") if more else answer


def _in_order(assignment: Assignment) -> Assignment:
    owners = assignment.owners
    return Assignment({p: owners[p] for p in sorted(owners)}, assignment.notes)


def _is_held(answer: GroupVerdict, verdicts: Verdicts, facts: Facts) -> bool:
    """Whether a held plan prevents this decision: nothing urgent requires it."""
    view, aim = verdicts.view, verdicts.aim
    if answer.target is None or view.hold.left_s <= 0 or view.orphans:
        return False
    limits = _limits(view, aim)
    if limits is None or is_renumbered(view.assignment, answer.target):
        return True
    if aim.planner.autoscaler is not None:
        request = _request(_Case(verdicts, view, facts, limits, aim))
        return not aim.planner.autoscaler.relieves(request, answer.target)
    return not overloads(view.assignment, facts.loads, limits)


def _decided(
    verdicts: Verdicts, view: GroupView, facts: Facts, aim: DecisionGoals, why: str
) -> GroupVerdict:
    """Decides when neither starting consumers nor subscribed members prevent it."""
    limits = _limits(view, aim)
    if limits is None:
        return _without_capacity(verdicts, view, facts, aim)
    if facts.doubt and not view.orphans:
        return verdicts.refuse(facts.doubt)
    case = _Case(verdicts, view, facts, limits, aim)
    if len(facts.loads) < len(view.partitions):  # orphans are assigned anyway
        known = {p: facts.loads.get(p, 0.0) for p in sorted(view.partitions)}
        case = case._replace(facts=replace(facts, loads=known))
    try:
        if facts.doubt and view.assignment and not aim.planner.deals_by_number:
            answer = _only_orphans(case, why)
            return with_more(answer, f"; {facts.doubt}, so nothing else is moved")
        if aim.planner.autoscaler is not None:
            answer = _by_autoscaler(case, aim.planner.autoscaler)
        else:
            answer = _by_packing(case, why)
    except PlanningError as error:
        return verdicts.refuse(error.message)
    more = facts.doubt or too_big_said(facts.loads, limits, arrivals=facts.arrivals)
    return with_more(answer, f"; {more}" if more else "")


def _occasion(view: GroupView, facts: Facts, aim: DecisionGoals) -> str | None:
    """Why to decide now; None if there is no reason."""
    if view.since_decision_s < aim.interval_s or is_about_to_start(view):
        return None
    if view.orphans:
        return f"no consumer reads {some_of(view.orphans)}" + (
            f": {view.lost}" if view.lost else ""
        )
    if view.startup.promised or view.subscribed:
        return "the decision interval has passed"
    if aim.planner.autoscaler is not None:
        return "the decision interval has passed"
    limits = _limits(view, aim)
    if limits is not None:
        over = overloads(view.assignment, facts.loads, limits)
        if over and not facts.doubt:
            carried = view.assignment.loads(facts.loads)
            worst = max(over, key=lambda c: carried[c] / limits.of(c))
            arrives = view.assignment.loads(facts.arrivals)[worst]
            backlog = f" and a backlog, together {carried[worst]:.4g}"
            return (
                f"consumer {worst} carries {arrives:.4g} {aim.unit}"
                f"{backlog if arrives < carried[worst] else ''}, above {limits.of(worst):.4g}"
            )
    quiet_s = min(view.quiet_s, view.since_decision_s)
    return f"no decision for {aim.max_quiet_s:g} s" if quiet_s >= aim.max_quiet_s else None


def _limits(view: GroupView, aim: DecisionGoals) -> GroupLimits | None:
    """The capacity of consumers: as configured, else the median of what they report."""
    capacity, headroom = aim.capacity, aim.headroom
    if capacity is None:
        reported = view.max_bytes_s if aim.unit is Unit.BYTES_S else view.max_records_s
        if not reported:
            return None
        capacity = median(reported.values())
        headroom = MEASURED_HEADROOM if headroom is None else headroom
    return GroupLimits(capacity=capacity * (1 - (headroom or 0.0)), unit=aim.unit)


def _without_capacity(
    verdicts: Verdicts, view: GroupView, facts: Facts, aim: DecisionGoals
) -> GroupVerdict:
    """Decides while no consumer has reported its capacity, which takes a backlog.

    Partitions without a consumer are shared among the existing consumers, or given to a first one.
    """
    if not view.consumers or view.orphans:
        busy, idle = view.assignment.consumers, _usable(view)
        if aim.most is not None:
            idle = idle[: max(0, aim.most - len(busy))]
        there = [*busy, *idle] or [min(view.consumers, default=0)]
        shares: dict[int, list[TopicPartition]] = {c: [] for c in sorted(there)}
        for partition, consumer in view.assignment.items():
            shares[consumer].append(partition)
        known = {p: facts.loads.get(p, 0.0) for p in view.partitions}
        for partition in sorted(view.orphans, key=lambda p: (-known[p], p)):
            lightest = min(
                shares.values(), key=lambda share: (sum(known[p] for p in share), len(share))
            )
            lightest.append(partition)
        return verdicts.go(
            Assignment({p: c for c, share in shares.items() for p in share}),
            "the capacity of a consumer is unknown until one has processed a backlog",
        )
    return verdicts.stay(
        "the capacity of a consumer is unknown: none has processed a backlog yet; "
        "set --capacity to plan without waiting for that"
    )


def _usable(view: GroupView) -> list[int]:
    """Idle consumers that may be given partitions; a spare is used after another has exited."""
    idle = sorted(view.consumers - set(view.assignment.consumers))
    return idle if view.lost else idle[: max(0, len(idle) - view.spares)]


def _only_orphans(case: _Case, why: str) -> GroupVerdict:
    """Assigns partitions without a consumer and moves nothing else: the loads are not reliable.

    A planner takes unknown loads as 0, so it would pack the whole group on one consumer.
    """
    verdicts, view, facts, limits, aim = case
    idle = _usable(view)
    after = given_out(facts.loads, view.assignment, limits, most=aim.most, idle=idle)
    after = on_idle(after, view)
    plan = _described(case, after)
    return verdicts.go(after, why, _forecast(plan), plan=plan)


def _request(case: _Case) -> ScalingRequest:
    """The request to an autoscaler; a consumer that has exited ends the cooldown."""
    _, view, facts, limits, aim = case
    return ScalingRequest(
        loads=facts.loads,
        lags=facts.lags,
        limits=limits,
        sla_s=aim.sla_s or math.inf,
        current=view.assignment,
        alive=view.assignment.consumers,
        since_scaling_s=math.inf if view.orphans else view.since_scaling_s,
        cooldown_s=aim.cooldown_s,
    )


def _by_autoscaler(case: _Case, scaler: Autoscaler) -> GroupVerdict:
    verdicts, view, facts, _, aim = case
    request = _request(case)
    found = scaler.decide(request)
    if aim.most is not None and found.after > aim.most:
        pressing = {
            p: urgent(load, facts.lags.get(p, 0), sla_s=request.sla_s)
            for p, load in facts.loads.items()
        }
        return _shared(case, pressing, found.after, found.reason)
    after = on_idle(found.assignment, view)
    carried = after.loads(facts.loads)
    forecast = {
        "consumers": found.after,
        "max_load": max(carried.values(), default=0.0),
        **found.numbers,
    }
    same = found.after == found.before and not view.orphans
    if same and not scaler.relieves(request, after):
        answer = verdicts.stay(found.reason, forecast)
        return _lowered(answer, case)
    plan = _described(case, after)
    answer = verdicts.go(after, found.reason, forecast, plan=plan)
    return _lowered(answer, case)


def _by_packing(case: _Case, why: str) -> GroupVerdict:
    verdicts, view, facts, limits, aim = case
    context = PackingContext(lags=facts.lags, sla_s=aim.sla_s)
    deals = aim.planner.kind is PlannerKind.DEALS
    if deals and "members" in aim.planner.uses:
        busy = len(view.assignment.consumers)  # it does not choose their number: none is freed
        replaced = min(busy + view.ended, len(view.consumers))  # spares replace exited consumers
        members = max(1, busy, replaced, len(view.consumers) - view.spares)
        context = replace(context, members=min(members, aim.most or members))
    # A consumer filled to its limit would exceed it again a moment later.
    room = replace(limits, capacity=limits.capacity * (1 - _SPARE)) if aim.urgent else limits
    over = overloads(view.assignment, facts.loads, limits)
    try:
        plan = plan_consumers(
            facts.loads,
            view.assignment,
            room,
            planner=aim.planner,
            made_ts=verdicts.ts,
            group=aim.group,
            context=context,
        )
    except NoFeasiblePlan as error:
        return _first_aid(case, why, error)
    after = on_idle(plan.assignment, view)
    if after != plan.assignment:
        plan = _described(case._replace(limits=room), after, context=context)
    before, count = verdicts.before, len(after.consumers)
    most, grows = aim.most or count, deals and count > before
    if count > most and (view.orphans or over or before > most or (grows and before < most)):
        return _shared(case, facts.loads, count, why)
    forecast = _forecast(plan)
    if count != before and (cooldown := _cooldown_reason(view, aim)):
        return verdicts.stay(f"{why}; {cooldown}", forecast)
    relief = relieves(view.assignment, after, facts.loads, limits)
    if view.orphans or relief or count < before or (grows and count <= most):
        answer = verdicts.go(after, why, forecast, plan=plan)
        return _lowered(answer, case._replace(limits=room))
    if deals and over:
        return verdicts.refuse(
            f"{why}; {aim.planner.name} ignores the load of partitions and cannot relieve it: "
            "choose a packing planner, such as trim"
        )
    why = f"{why}; no plan needs fewer consumers or relieves an overload"
    return _lowered(verdicts.stay(why, forecast), case._replace(limits=room))


def _lowered(answer: GroupVerdict, case: _Case) -> GroupVerdict:
    """The answer with the lowest consumers where those above them are to be removed.

    A group that does not grow leaves no idle consumer below a busy one, if only the highest can be
    removed: else it would pay for that consumer until it grows again. A budget of moves may allow
    that for some of them, or for none.
    """
    verdicts, view, facts, _, aim = case
    after, decided = answer.target or view.assignment, answer.decision
    if decided.after > decided.before or decided.action is Action.REASSIGN:
        return answer
    why = "only the highest consumers can be removed"
    high = low = ""
    for lower in on_lowest(after, view):
        old, new = set(after.consumers), set(lower.consumers)
        high, low = _consumers_in_words(old - new), _consumers_in_words(new - old)
        if _allows(aim.budget, view.assignment, lower, facts.loads):
            plan = _described(case, lower)
            forecast = dict(decided.forecast) | _forecast(plan)
            reason = f"{decided.reason}; {why}, so {low} should read instead of {high}"
            return verdicts.go(lower, reason, forecast, plan=plan)
    if not high:
        return answer
    costs = f"to replace {high} by {low} takes more than {_budget_in_words(aim.budget)}"
    return with_more(answer, f"; {why}, and {costs}")


def _allows(
    budget: MoveBudget,
    before: Assignment,
    after: Assignment,
    loads: Mapping[TopicPartition, float],
) -> bool:
    """Whether the budget allows to go from one assignment to another."""
    moves, load = len(moved(before, after)), moved_load(before, after, loads)
    return (budget.max_moves is None or moves <= budget.max_moves) and (
        budget.max_moved_load is None or load <= budget.max_moved_load
    )


def _consumers_in_words(consumers: Collection[int]) -> str:
    numbers = ", ".join(map(str, sorted(consumers)))
    return f"consumer{'s'[: len(consumers) > 1]} {numbers}"


def _first_aid(case: _Case, why: str, error: NoFeasiblePlan) -> GroupVerdict:
    """Relieves what it can where the planner finds no plan within its budget of moves or time."""
    verdicts, view, facts, limits, aim = case
    budget = aim.budget
    needed = max(verdicts.before, fewest_consumers(facts.loads.values(), limits))
    if aim.most is not None and needed > aim.most:
        return _shared(case, facts.loads, needed, why)
    after = first_aid(
        facts.loads,
        view.assignment,
        limits,
        most=aim.most,
        max_moves=budget.max_moves,
        max_moved_load=budget.max_moved_load,
    )
    after = on_idle(after, view)
    relief = relieves(view.assignment, after, facts.loads, limits)
    if not (view.orphans or relief):
        return verdicts.refuse(" ".join(filter(None, (f"{why};", error.message, error.hint))))
    why = f"{why}; {error.message} Relieving as much as possible"
    plan = _described(case, after)
    forecast = _forecast(plan)
    if len(after.consumers) != verdicts.before and (cooldown := _cooldown_reason(view, aim)):
        return verdicts.stay(f"{why}; {cooldown}", forecast)
    return verdicts.go(after, why, forecast, plan=plan)


def _shared(
    case: _Case, weights: Mapping[TopicPartition, float], needed: int, why: str
) -> GroupVerdict:
    """Levels a load that is too much for the allowed number of consumers."""
    verdicts, view, _, limits, aim = case
    most, budget = aim.most or needed, aim.budget
    limit = verdicts.limit or f"--max-consumers is {most}"
    why += f"; {needed} consumers would be needed, but {limit}"
    levelled = level(
        weights,
        view.assignment,
        most,
        max_moves=budget.max_moves,
        max_moved_load=budget.max_moved_load,
    )
    after = on_idle(levelled, view)
    plan = _described(case, after)
    forecast = _forecast(plan)
    scales = len(after.consumers) != verdicts.before
    if scales and (cooldown := _cooldown_reason(view, aim)):
        return verdicts.stay(f"{why}; {cooldown}", forecast)
    heaviest = shared_peak(view.assignment, weights)
    evens_out = heaviest > 0 and shared_peak(after, weights) <= _WORTH_MOVING * heaviest
    removed = overload(view.assignment, weights, limits) - overload(after, weights, limits)
    worth_it = evens_out or removed >= (1 - _WORTH_MOVING) * limits.capacity
    fewer = verdicts.before > most and after != view.assignment  # as far as the budget allows
    if view.orphans or scales or fewer or worth_it:
        answer = verdicts.go(after, why, forecast, plan=plan)
        return _lowered(answer, case)
    if after == view.assignment != level(weights, view.assignment, most):
        why += f"; no move that {_budget_in_words(budget)} would help"
    else:
        why += "; moving partitions would hardly relieve any consumer"
    return _lowered(verdicts.stay(why, forecast), case)


def _budget_in_words(budget: MoveBudget) -> str:
    """The budget of moves of one plan, in words."""
    given = {"--max-moves": budget.max_moves, "--max-moved-load": budget.max_moved_load}
    names = [name for name, limit in given.items() if limit is not None]
    return f"{' and '.join(names)} allow{'s'[: len(names) == 1]}"


def _cooldown_reason(view: GroupView, aim: DecisionGoals) -> str | None:
    """Why the number of consumers may not change yet; None if it may."""
    left_s = aim.cooldown_s - view.since_scaling_s
    if left_s <= 0 or view.orphans:
        return None
    return f"the cooldown lasts {left_s:.1f} s more"


def _described(
    case: _Case, after: Assignment, *, context: PackingContext | None = None
) -> ConsumerPlan:
    """The plan for an assignment that no planner made."""
    verdicts, view, facts, limits, aim = case
    if context is None:
        context = PackingContext(lags=facts.lags, sla_s=aim.sla_s)
    return described(
        after,
        facts.loads,
        view.assignment,
        limits,
        planner=aim.planner,
        made_ts=verdicts.ts,
        group=aim.group,
        context=context,
    )


def _forecast(plan: ConsumerPlan) -> dict[str, float]:
    return {
        "consumers": plan.after.consumers,
        "max_load": plan.after.max_load,
        "bound": plan.bound,
        "gap": plan.gap,
        "moves": plan.cost.moves,
        "moved_load": plan.cost.moved_load,
        "rscore": plan.cost.rscore,
    }
