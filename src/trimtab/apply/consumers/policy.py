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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from trimtab.apply.consumers.controller import GroupVerdict, GroupView
from trimtab.apply.consumers.waiting import (
    available_consumers,
    ending,
    is_about_to_start,
    listed,
    subscribed,
    waits_for_start,
)
from trimtab.errors import NoFeasiblePlan, PlanningError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision, PartitionRate, TopicRates
from trimtab.model.load import MEASURED_HEADROOM, GroupLimits, Unit
from trimtab.model.plan import ConsumerPlan, Layer
from trimtab.model.plan_codec import plan_id
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.levelling import level
from trimtab.plan.consumers.plan import described, plan_consumers
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    Autoscaler,
    PackingOptions,
    PackingPlanner,
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
from trimtab.plan.registry import planner_of

_MICROS = 1_000_000
_IN_FLIGHT_S, _TOLERATED = 1.0, 0.3
_CLEAR_WITHIN = 0.5
_SPARE = 0.03
_WORTH_MOVING = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The goals and limits of decisions about a group.

    Attributes:
        group: The consumer group.
        planner: The planner's name.
        unit: The unit of loads and capacities.
        capacity: The load that one consumer can process; None uses what consumers report.
        sla_s: How long a record may wait, for planners by latency.
        interval_s: The shortest time between two decisions.
        max_quiet_s: After this time without a decision, check whether fewer consumers suffice.
        cooldown_s: The shortest time between two changes of the number of consumers.
        stale_after_s: Older rates are not used.
        headroom: The part of the capacity that is left free; None leaves a sixth of a measured
            capacity free, and nothing of a given one.
        most: The largest number of consumers; they share a load that is too much for them.
        options: Further options of the planner.
    """

    group: str
    planner: str
    unit: Unit
    capacity: float | None = None
    sla_s: float | None = None
    interval_s: float = 1.0
    max_quiet_s: float = 10.0
    cooldown_s: float = 0.0
    stale_after_s: float = 10.0
    headroom: float | None = None
    most: int | None = None
    options: PackingOptions = DEFAULTS

    @property
    def plans(self) -> PackingPlanner:
        """The planner itself."""
        return planner_of(Layer.CONSUMERS, self.planner)

    @property
    def by_lag(self) -> bool:
        """Whether lags are needed."""
        return self.urgent or self.plans.autoscaler is not None

    @property
    def urgent(self) -> bool:
        """Whether a packing planner has an SLA, so that backlogs count as load."""
        packs = self.plans.kind is PlannerKind.PACKS
        return packs and self.sla_s is not None and self.unit is Unit.RECORDS_S


@dataclass(frozen=True, slots=True)
class Measured:
    """The newest rates of each topic, and the previous ones; λ is computed from their difference.

    `fresh_ts` is the time of the last record in which a partition's rate was not stale. A single
    stale rate is ignored: samples of the same moment may arrive at different times.
    """

    newest: Mapping[str, TopicRates] = field(default_factory=dict)
    before: Mapping[str, TopicRates] = field(default_factory=dict)
    fresh_ts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def updated(self, rates: TopicRates) -> Measured:
        """These rates with one more record; a record older than the newest changes nothing."""
        last = self.newest.get(rates.topic)
        if last is not None and rates.ts < last.ts:
            return self
        newest = {**self.newest, rates.topic: rates}
        fresh = (n for n, rate in rates.partitions.items() if not rate.stale)
        fresh_ts = {**self.fresh_ts, **{TopicPartition(rates.topic, n): rates.ts for n in fresh}}
        if last is None or rates.ts == last.ts:
            return Measured(newest, self.before, fresh_ts)
        return Measured(newest, {**self.before, rates.topic: last}, fresh_ts)

    def of(self, partition: TopicPartition) -> PartitionRate | None:
        """The newest rate of a partition."""
        rates = self.newest.get(partition.topic)
        return None if rates is None else rates.partitions.get(partition.partition)

    def age_s(self, topics: Collection[str], *, ts: int) -> float:
        """The age of the oldest of these topics' newest rates; infinite if one has none."""
        known = [self.newest[t].ts for t in topics if t in self.newest]
        return (ts - min(known)) / _MICROS if len(known) == len(topics) and known else math.inf

    def silent_s(self, partition: TopicPartition, *, ts: int) -> float:
        """For how long a partition has had no new rate; infinite if it never had one."""
        fresh_ts = self.fresh_ts.get(partition)
        return math.inf if fresh_ts is None else (ts - fresh_ts) / _MICROS

    def arrivals_s(self, partition: TopicPartition) -> float | None:
        """λ in records/s, from the end offsets of two successive samples, else as published."""
        now, then = self.newest.get(partition.topic), self.before.get(partition.topic)
        rate = self.of(partition)
        if now is None or then is None or rate is None:
            return None if rate is None else rate.records_s
        earlier = then.partitions.get(partition.partition)
        if earlier is None or earlier.end_offset is None or rate.end_offset is None:
            return rate.records_s
        if rate.stale or earlier.stale:  # a stale rate's offset is older than its record
            return rate.records_s
        grown = rate.end_offset - earlier.end_offset
        return rate.records_s if grown < 0 else grown * _MICROS / (now.ts - then.ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Loads and lags for planning; `doubt` says why they are not reliable, if they are not.

    `arrivals` are the loads without the backlogs that an SLA adds to them.
    """

    loads: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, int]
    arrivals: Mapping[TopicPartition, float]
    doubt: str | None = None


def facts_of(measured: Measured, view: GroupView, aim: Aim, *, ts: int) -> Facts:
    """The measured loads and lags of the group's partitions, in the unit of the aim."""
    loads: dict[TopicPartition, float] = {}
    lags: dict[TopicPartition, int] = {}
    thin: list[TopicPartition] = []
    silent: list[TopicPartition] = []
    for partition in sorted(view.partitions):
        rate = measured.of(partition)
        if rate is not None and measured.silent_s(partition, ts=ts) > aim.stale_after_s:
            silent.append(partition)
        load = None if rate is None else _load(measured, partition, rate, aim)
        if rate is None or load is None or not rate.complete:
            thin.append(partition)
        if load is not None:
            loads[partition] = load
        lag = None if rate is None else rate.lag.get(aim.group)
        if lag is not None:
            lags[partition] = lag
    arrivals = loads
    if aim.urgent and aim.sla_s is not None:
        loads = {p: urgent(load, lags.get(p, 0), sla_s=aim.sla_s) for p, load in loads.items()}
    blind = view.partitions - lags.keys() if aim.by_lag else ()
    doubt = _old(measured, view, aim, ts) or _silent(silent, aim) or _thin(thin, blind)
    return Facts(loads=loads, lags=lags, arrivals=arrivals, doubt=doubt)


def _old(measured: Measured, view: GroupView, aim: Aim, ts: int) -> str | None:
    """Why the rates are not current; None if they are."""
    topics = {p.topic for p in view.partitions}
    age_s = measured.age_s(topics, ts=ts)
    if not math.isfinite(age_s):
        missing = topics - measured.newest.keys()
        of = f" of topic {listed(sorted(missing))}" if missing != topics else ""
        return f"no rates{of} have been published yet"
    if age_s < -aim.stale_after_s:
        return f"the newest rates have a time {-age_s:.1f} s in the future"
    if age_s > aim.stale_after_s:
        return f"the newest rates are {age_s:.1f} s old, the limit is {aim.stale_after_s:g} s"
    return None


def _silent(silent: Collection[TopicPartition], aim: Aim) -> str | None:
    """Which partitions have had no new rate for too long; None if there are none."""
    if not silent:
        return None
    return f"the rate of {_some(silent)} is stale: older than {aim.stale_after_s:g} s"


def _thin(thin: Collection[TopicPartition], blind: Collection[TopicPartition]) -> str | None:
    """Which partitions have incomplete rates or no lag; None if there are none."""
    if thin:
        return f"too little is known of {_some(thin)}"
    return f"the lag of {_some(blind)} is unknown" if blind else None


def _load(
    measured: Measured, partition: TopicPartition, rate: PartitionRate, aim: Aim
) -> float | None:
    if aim.unit is Unit.BYTES_S:
        return rate.bytes_s
    if aim.plans.autoscaler is not None:
        return measured.arrivals_s(partition)
    return rate.records_s


def urgent(records_s: float, lag: int, *, sla_s: float) -> float:
    """The load of a partition: its arrival rate, plus its backlog over half the SLA.

    One second of arrivals is in flight in any healthy group and does not count as backlog. Nor does
    what waits for less than three tenths of the SLA: a partition that was just moved has that much.

    >>> urgent(60.0, 90, sla_s=5.0), urgent(60.0, 190, sla_s=5.0)
    (60.0, 100.0)
    """
    backlog = max(0.0, lag - records_s * max(_IN_FLIGHT_S, sla_s * _TOLERATED))
    return records_s + backlog / (sla_s * _CLEAR_WITHIN)


def verdict(view: GroupView, measured: Measured, aim: Aim, *, ts: int) -> GroupVerdict | None:
    """Decides, or returns None if no decision is due; `ts` is the current time in microseconds."""
    if not view.partitions:
        due = view.since_decision_s >= max(aim.interval_s, aim.max_quiet_s)
        why_not = ending(view) if due else ""
        return _Verdicts(view, aim, ts).stay(why_not) if why_not else None
    facts = facts_of(measured, view, aim, ts=ts)
    why = _occasion(view, facts, aim)
    if why is None:
        return None
    verdicts = _Verdicts(view, aim, ts)
    if view.subscribed:
        return verdicts.refuse(subscribed(view, aim.group))
    if wait := waits_for_start(view):
        return verdicts.stay(wait)
    available, limit = available_consumers(view)
    if available and (aim.most is None or aim.most > available):
        aim, verdicts = replace(aim, most=available), replace(verdicts, limit=limit)
    answer, more = _decided(verdicts, view, facts, aim, why), ending(view)
    if _is_held(answer, view, facts, aim):
        held = f"plan {view.hold.plan} is held for {view.hold.left_s:.0f} s more"
        answer = verdicts.stay(f"{answer.decision.reason}; {held}", answer.decision.forecast)
    return _with_more(answer, f"; {more}") if more else answer


def _is_held(answer: GroupVerdict, view: GroupView, facts: Facts, aim: Aim) -> bool:
    """Whether a held plan prevents this decision: nothing urgent requires it."""
    if answer.target is None or view.hold.left_s <= 0 or view.orphans:
        return False
    limits = _limits(view, aim)
    if limits is None:
        return True
    if aim.plans.autoscaler is not None:
        request = _request(view, facts, limits, aim)
        return not aim.plans.autoscaler.relieves(request, answer.target)
    return not overloads(view.assignment, facts.loads, limits)


def _decided(
    verdicts: _Verdicts, view: GroupView, facts: Facts, aim: Aim, why: str
) -> GroupVerdict:
    """Decides when neither starting consumers nor subscribed members prevent it."""
    limits = _limits(view, aim)
    if limits is None:
        return _without_capacity(verdicts, view, facts, aim)
    if facts.doubt and not view.orphans:
        return verdicts.refuse(facts.doubt)
    known = {p: facts.loads.get(p, 0.0) for p in view.partitions}  # orphans are assigned anyway
    planned = replace(facts, loads=known)
    try:
        if facts.doubt and view.assignment and not _deals_by_number(aim):
            answer = _only_orphans(verdicts, view, planned, limits, aim, why)
            return _with_more(answer, f"; {facts.doubt}, so nothing else is moved")
        if aim.plans.autoscaler is not None:
            answer = _by_autoscaler(verdicts, view, planned, limits, aim, aim.plans.autoscaler)
        else:
            answer = _by_packing(verdicts, view, planned, limits, aim, why)
    except PlanningError as error:
        return verdicts.refuse(error.message)
    more = facts.doubt or too_big_said(facts.loads, limits, arrivals=facts.arrivals)
    return _with_more(answer, f"; {more}" if more else "")


def _occasion(view: GroupView, facts: Facts, aim: Aim) -> str | None:
    """Why to decide now; None if there is no reason."""
    if view.since_decision_s < aim.interval_s or is_about_to_start(view):
        return None
    if view.orphans:
        return f"no consumer reads {_some(view.orphans)}" + (f": {view.lost}" if view.lost else "")
    if view.startup.promised or view.subscribed:
        return "the decision interval has passed"
    if aim.plans.autoscaler is not None:
        return "the decision interval has passed"
    limits = _limits(view, aim)
    if limits is not None:
        carried = view.assignment.loads(facts.loads)
        over = overloads(view.assignment, facts.loads, limits)
        if over and not facts.doubt:
            worst = max(over, key=lambda c: carried[c] / limits.of(c))
            arrives = view.assignment.loads(facts.arrivals)[worst]
            backlog = f" and a backlog, together {carried[worst]:.4g}"
            return (
                f"consumer {worst} carries {arrives:.4g} {aim.unit}"
                f"{backlog if arrives < carried[worst] else ''}, above {limits.of(worst):.4g}"
            )
    quiet_s = min(view.quiet_s, view.since_decision_s)
    return f"no decision for {aim.max_quiet_s:g} s" if quiet_s >= aim.max_quiet_s else None


def _limits(view: GroupView, aim: Aim) -> GroupLimits | None:
    """The capacity of consumers: as configured, else the median of what they report."""
    capacity, headroom = aim.capacity, aim.headroom
    if capacity is None:
        reported = view.max_bytes_s if aim.unit is Unit.BYTES_S else view.max_records_s
        if not reported:
            return None
        capacity = median(reported.values())
        headroom = MEASURED_HEADROOM if headroom is None else headroom
    return GroupLimits(capacity=capacity * (1 - (headroom or 0.0)), unit=aim.unit)


def _without_capacity(verdicts: _Verdicts, view: GroupView, facts: Facts, aim: Aim) -> GroupVerdict:
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


def _deals_by_number(aim: Aim) -> bool:
    """Whether the planner uses neither loads nor lags."""
    return aim.plans.kind is PlannerKind.DEALS and "lags" not in aim.plans.reads


def _only_orphans(
    verdicts: _Verdicts, view: GroupView, facts: Facts, limits: GroupLimits, aim: Aim, why: str
) -> GroupVerdict:
    """Assigns partitions without a consumer and moves nothing else: the loads are not reliable.

    A planner takes unknown loads as 0, so it would pack the whole group on one consumer.
    """
    idle = _usable(view)
    after = given_out(facts.loads, view.assignment, limits, most=aim.most, idle=idle)
    after = _on_idle(after, view)
    plan = _described(verdicts, view, facts, limits, aim, after)
    return verdicts.go(after, why, _forecast(plan), plan=plan)


def _request(view: GroupView, facts: Facts, limits: GroupLimits, aim: Aim) -> ScalingRequest:
    """The request to an autoscaler; a consumer that has exited ends the cooldown."""
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


def _by_autoscaler(
    verdicts: _Verdicts,
    view: GroupView,
    facts: Facts,
    limits: GroupLimits,
    aim: Aim,
    scaler: Autoscaler,
) -> GroupVerdict:
    request = _request(view, facts, limits, aim)
    found = scaler.decide(request)
    if aim.most is not None and found.after > aim.most:
        pressing = {
            p: urgent(load, facts.lags.get(p, 0), sla_s=request.sla_s)
            for p, load in facts.loads.items()
        }
        return _shared(verdicts, view, facts, limits, aim, pressing, found.after, found.reason)
    after = _on_idle(found.assignment, view)
    carried = after.loads(facts.loads)
    forecast = {
        "consumers": found.after,
        "max_load": max(carried.values(), default=0.0),
        **found.numbers,
    }
    same = found.after == found.before and not view.orphans
    if same and not scaler.relieves(request, after):
        return verdicts.stay(found.reason, forecast)
    plan = _described(verdicts, view, facts, limits, aim, after)
    return verdicts.go(after, found.reason, forecast, plan=plan)


def _on_idle(after: Assignment, view: GroupView) -> Assignment:
    """The assignment with idle and starting consumers in place of new ones."""
    wanted = frozenset(after.consumers)
    starting = view.startup.starting.keys() - view.consumers
    idle = [*sorted(view.consumers - wanted), *sorted(starting - wanted)]
    new = sorted(wanted - view.consumers - starting)
    names = dict(zip(new, idle, strict=False))
    if not names:
        return after
    return Assignment({p: names.get(c, c) for p, c in after.items()}, after.notes)


def _by_packing(
    verdicts: _Verdicts, view: GroupView, facts: Facts, limits: GroupLimits, aim: Aim, why: str
) -> GroupVerdict:
    options = replace(aim.options, lags=facts.lags, sla_s=aim.sla_s)
    deals = aim.plans.kind is PlannerKind.DEALS
    if deals and options.members is None and "members" in aim.plans.reads:
        busy = len(view.assignment.consumers)  # it does not choose their number: none is freed
        replaced = min(busy + view.ended, len(view.consumers))  # spares replace exited consumers
        members = max(1, busy, replaced, len(view.consumers) - view.spares)
        options = replace(options, members=min(members, aim.most or members))
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
            options=options,
        )
    except NoFeasiblePlan as error:
        return _first_aid(verdicts, view, facts, limits, aim, why, error)
    after = _on_idle(plan.assignment, view)
    if after != plan.assignment:
        plan = _described(verdicts, view, facts, room, aim, after, options=options)
    before, count = verdicts.before, len(after.consumers)
    most, grows = aim.most or count, deals and count > before
    if count > most and (view.orphans or over or before > most or (grows and before < most)):
        return _shared(verdicts, view, facts, limits, aim, facts.loads, count, why)
    forecast = _forecast(plan)
    if count != before and (cooldown := _cooldown_reason(view, aim)):
        return verdicts.stay(f"{why}; {cooldown}", forecast)
    relief = relieves(view.assignment, after, facts.loads, limits)
    if view.orphans or relief or count < before or (grows and count <= most):
        return verdicts.go(after, why, forecast, plan=plan)
    if deals and over:
        return verdicts.refuse(
            f"{why}; {aim.planner} ignores the load of partitions and cannot relieve it: "
            "choose a packing planner, such as trim"
        )
    return verdicts.stay(f"{why}; no plan needs fewer consumers or relieves an overload", forecast)


def _first_aid(
    verdicts: _Verdicts,
    view: GroupView,
    facts: Facts,
    limits: GroupLimits,
    aim: Aim,
    why: str,
    error: NoFeasiblePlan,
) -> GroupVerdict:
    """Relieves what it can where the planner finds no plan within its budget of moves or time."""
    options = aim.options
    needed = max(verdicts.before, fewest_consumers(facts.loads.values(), limits))
    if aim.most is not None and needed > aim.most:
        return _shared(verdicts, view, facts, limits, aim, facts.loads, needed, why)
    after = first_aid(
        facts.loads,
        view.assignment,
        limits,
        most=aim.most,
        max_moves=options.max_moves,
        max_moved_load=options.max_moved_load,
    )
    after = _on_idle(after, view)
    relief = relieves(view.assignment, after, facts.loads, limits)
    if not (view.orphans or relief):
        return verdicts.refuse(" ".join(filter(None, (f"{why};", error.message, error.hint))))
    why = f"{why}; {error.message} Relieving as much as possible"
    plan = _described(verdicts, view, facts, limits, aim, after)
    forecast = _forecast(plan)
    if len(after.consumers) != verdicts.before and (cooldown := _cooldown_reason(view, aim)):
        return verdicts.stay(f"{why}; {cooldown}", forecast)
    return verdicts.go(after, why, forecast, plan=plan)


def _shared(
    verdicts: _Verdicts,
    view: GroupView,
    facts: Facts,
    limits: GroupLimits,
    aim: Aim,
    weights: Mapping[TopicPartition, float],
    needed: int,
    why: str,
) -> GroupVerdict:
    """Levels a load that is too much for the allowed number of consumers."""
    most, options = aim.most or needed, aim.options
    limit = verdicts.limit or f"--max-consumers is {most}"
    why += f"; {needed} consumers would be needed, but {limit}"
    levelled = level(
        weights,
        view.assignment,
        most,
        max_moves=options.max_moves,
        max_moved_load=options.max_moved_load,
    )
    after = _on_idle(levelled, view)
    plan = _described(verdicts, view, facts, limits, aim, after)
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
        return verdicts.go(after, why, forecast, plan=plan)
    if after == view.assignment != level(weights, view.assignment, most):
        why += f"; no move that {_budget_in_words(options)} would help"
        return verdicts.stay(why, forecast)
    return verdicts.stay(f"{why}; moving partitions would hardly relieve any consumer", forecast)


def _budget_in_words(options: PackingOptions) -> str:
    """The budget of moves of one plan, in words."""
    given = {"--max-moves": options.max_moves, "--max-moved-load": options.max_moved_load}
    names = [name for name, limit in given.items() if limit is not None]
    return f"{' and '.join(names)} allow{'s'[: len(names) == 1]}"


def _cooldown_reason(view: GroupView, aim: Aim) -> str | None:
    """Why the number of consumers may not change yet; None if it may."""
    left_s = aim.cooldown_s - view.since_scaling_s
    if left_s <= 0 or view.orphans:
        return None
    return f"the cooldown lasts {left_s:.1f} s more"


def _described(
    verdicts: _Verdicts,
    view: GroupView,
    facts: Facts,
    limits: GroupLimits,
    aim: Aim,
    after: Assignment,
    *,
    options: PackingOptions | None = None,
) -> ConsumerPlan:
    """The plan for an assignment that no planner made."""
    if options is None:
        options = replace(aim.options, lags=facts.lags, sla_s=aim.sla_s)
    return described(
        after,
        facts.loads,
        view.assignment,
        limits,
        planner=aim.planner,
        made_ts=verdicts.ts,
        group=aim.group,
        options=options,
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


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """Builds verdicts: refuse, stay, or go to a target."""

    view: GroupView
    aim: Aim
    ts: int
    limit: str = ""  # why there cannot be more consumers now, if not because of --max-consumers

    @property
    def before(self) -> int:
        """How many consumers have partitions; idle ones do not count."""
        return len(self.view.assignment.consumers)

    def _decision(self, action: Action, after: int, reason: str) -> Decision:
        return Decision(
            ts=self.ts,
            group=self.aim.group,
            action=action,
            before=self.before,
            after=after,
            reason=reason,
        )

    def refuse(self, reason: str) -> GroupVerdict:
        return GroupVerdict(self._decision(Action.REFUSE, self.before, reason))

    def stay(self, reason: str, forecast: Mapping[str, float] | None = None) -> GroupVerdict:
        decision = self._decision(Action.NONE, self.before, reason)
        return GroupVerdict(replace(decision, forecast=forecast or {}))

    def go(
        self,
        target: Assignment,
        reason: str,
        forecast: Mapping[str, float] | None = None,
        *,
        plan: ConsumerPlan | None = None,
    ) -> GroupVerdict:
        before, after = self.before, len(target.consumers)
        action = Action.REASSIGN
        if after != before:
            action = Action.SCALE_UP if after > before else Action.SCALE_DOWN
        decision = replace(
            self._decision(action, after, reason),
            forecast=forecast or {},
            plan=None if plan is None else plan_id(plan),
        )
        return GroupVerdict(decision, target, plan)


def _with_more(answer: GroupVerdict, text: str) -> GroupVerdict:
    reason = f"{answer.decision.reason}{text}"
    return replace(answer, decision=replace(answer.decision, reason=reason))


def _some(partitions: Iterable[TopicPartition]) -> str:
    return listed(map(str, sorted(partitions)))
