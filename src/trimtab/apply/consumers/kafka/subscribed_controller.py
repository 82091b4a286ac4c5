"""The controller of a subscribed group: it scales, plans, and answers at every rebalance.

Why      In an ordinary consumer group the group's leader assigns the partitions; it asks this
         controller how. Members are fenced by the brokers, so nothing else must be.
Promise  A plan is persisted, under the lease, before any member learns of it. Its version grows
         across controllers, and only if present members must read something else, since a newer
         version makes the group rebalance. Consumers are started before a plan uses them. Without
         a leading controller the group keeps its assignment (`assignor`). A group's first plan
         removes no member before the rates of all partitions are known.
Cost     One rebalance of the whole group per version.   Paper    Ezzeddine et al., section 3.3.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace

import structlog

from trimtab.apply.consumers.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupPlan,
    answered,
)
from trimtab.apply.consumers.backends.backend import Backend
from trimtab.apply.consumers.controller import surplus
from trimtab.apply.consumers.controller_state import (
    GroupVerdict,
    GroupView,
    Persist,
    WriteJournal,
)
from trimtab.apply.consumers.kafka.announcer import Announcer
from trimtab.apply.consumers.kafka.inbox import ControllerInbox
from trimtab.apply.consumers.kafka.leadership import (
    CommandProducer,
    GroupConfig,
    Lease,
    lead_when_elected,
    persisted_state,
)
from trimtab.apply.consumers.kafka.plan_orders import left_orders, ordered
from trimtab.apply.consumers.kafka.subscribed_members import SubscribedMembers
from trimtab.apply.consumers.kafka.subscribed_orders import SubscribedOrders
from trimtab.apply.consumers.plan_orders import (
    decision_of,
    entry_of,
    refusal_of,
    subscribed_target,
)
from trimtab.apply.consumers.planning import Judge
from trimtab.apply.consumers.sockets.assignment_service import AssignmentService
from trimtab.apply.consumers.subscribed import ServedAssignment
from trimtab.apply.consumers.waiting import listed
from trimtab.errors import ConfigError, PortTaken, TrimtabError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision, GroupState, PlanOrder
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_AGAIN_S, _TRIES = 1.0, 60


class SubscribedController:
    """Controls a subscribed group while it holds the lease; serves assignments at `listen`.

    Within `cooldown_s` after a rebalance that it requested, it requests no other.
    """

    def __init__(
        self,
        config: GroupConfig,
        backend: Backend,
        judge: Judge,
        listen: str,
        *,
        token: str | None = None,
        cooldown_s: float = 0.0,
        while_leading: Callable[[], AbstractContextManager[object]] = nullcontext,
        on_decision: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._backend = backend
        self._judge = judge
        self._token = token
        self._while_leading = while_leading
        self._host, _, port = listen.rpartition(":")
        if not (self._host and port.isdecimal()):
            raise ConfigError(
                f"Invalid address to listen on: {listen!r}.",
                hint="Write it as HOST:PORT, such as 127.0.0.1:8765.",
            )
        self._port = int(port)
        self._on_decision = on_decision
        self._cooldown_s = cooldown_s
        self._plan: GroupPlan | None = None
        self._served: ServedAssignment | None = None
        self._compared: tuple[ServedAssignment, GroupPlan] | None = None
        self._orders = SubscribedOrders()

    @property
    def plan(self) -> GroupPlan | None:
        """The plan that members are given now."""
        return self._plan

    def run(self, stop: threading.Event) -> bool:
        """Leads whenever it holds the lease; returns whether it was leader when `stop` was set."""
        return lead_when_elected(self._config, self._run_as_leader, stop)

    def _answer(self, request: AssignmentRequest) -> AssignmentAnswer | None:
        plan = self._plan
        if plan is None:
            return None
        answer = answered(plan, request)
        self._served = ServedAssignment(request, answer.assignment, plan)
        return answer

    def _version(self) -> int | None:
        plan = self._plan
        return None if plan is None else plan.version

    def _run_as_leader(self, lease: Lease, stop: threading.Event) -> None:
        config = self._config
        with ExitStack() as open_now:
            producer = CommandProducer(config)
            found = persisted_state(config)
            self._served = None
            self._plan = (
                GroupPlan(version=found.epoch, assignment=found.assignment) if found else None
            )
            inbox = open_now.enter_context(closing(ControllerInbox(config)))
            admin = open_now.enter_context(config.cluster.admin())
            announcer = open_now.enter_context(closing(Announcer(config, self._on_decision)))
            for server in (self._service, self._while_leading):
                entered = self._entered(server, lease, stop, had_one_before=found is not None)
                if entered is None:
                    return
                open_now.enter_context(entered)
            log.info(
                "controller_became_leader", group=config.group, version=found.epoch if found else 0
            )
            threads = ThreadPoolExecutor(1, "scaling")
            open_now.callback(threads.shutdown, cancel_futures=True)  # the next leader may use them
            numbers = found.members if found else {}
            members = SubscribedMembers(self._config, self._backend, admin, threads, numbers)
            reading = ThreadPoolExecutor(1, "orders")
            open_now.callback(reading.shutdown, wait=False, cancel_futures=True)
            self._orders = SubscribedOrders.taken_over(left_orders(config))
            while lease.renewed() and not stop.is_set():
                _, members.measured = inbox.poll(members.measured)
                members.rates = inbox.member_rates()
                for order in inbox.orders():
                    reading.submit(self._fetch, order)
                if not members.due():
                    continue
                self._turn(members, producer, announcer)

    def _fetch(self, order: PlanOrder) -> None:
        try:
            event = ordered(self._config, order)
            if event is not None:
                self._orders.fetched.put(event)
        except Exception:  # an exception in a thread would be lost
            log.exception("order_could_not_be_read", plan=order.plan)

    def _service(self) -> AssignmentService:
        """The service that the group's leader asks for an assignment."""
        return AssignmentService(
            self._config.group,
            self._answer,
            self._version,
            host=self._host,
            port=self._port,
            token=self._token,
        )

    @staticmethod
    def _entered(
        server: Callable[[], AbstractContextManager[object]],
        lease: Lease,
        stop: threading.Event,
        *,
        had_one_before: bool,
    ) -> AbstractContextManager[object] | None:
        """Starts a server; retries if a frozen earlier controller on this machine has the port."""
        for _ in range(_TRIES):
            if stop.is_set() or not lease.renewed():
                break
            with ExitStack() as opening:
                try:
                    opening.enter_context(server())
                    return opening.pop_all()
                except PortTaken as error:
                    if not had_one_before:
                        raise
                    log.warning("port_is_taken", why=error.message)
                    stop.wait(_AGAIN_S)
        return None  # another controller takes the lease

    def _turn(
        self, members: SubscribedMembers, producer: CommandProducer, announcer: Announcer
    ) -> None:
        """Observes the group once, and decides if there is a reason."""
        try:
            view = replace(members.view(self._plan), hold=self._orders.hold())
            shares = members.shares() if self._orders.execution is not None else set()
        except TrimtabError as error:
            log.warning("observation_failed", why=error.message)
            return
        self._check_execution(shares, producer)  # a failed transaction ends this term as leader
        metrics.controller_consumers.labels(self._config.group).set(len(view.consumers))
        self._catch_up(members, producer)
        if self._handle_order(view, members, producer, announcer):
            return
        verdict = self._judge(view, members.measured, wall_clock_us())
        if verdict is not None:
            members.decided = view.now
            decision = members.with_waiting(verdict.decision)
            followed = self._follow(verdict, decision, view, members, producer)
            announcer.announce(followed, verdict.plan if followed is decision else None)
            if followed is not decision:
                return
        self._persist_numbers(members, producer)

    def _follow(
        self,
        verdict: GroupVerdict,
        decision: Decision,
        view: GroupView,
        members: SubscribedMembers,
        producer: CommandProducer,
    ) -> Decision:
        """Carries out a decision; returns it, or another one if it cannot be carried out."""
        target = verdict.target
        if target is None:
            members.release(sorted(surplus(view, decision)))
            return decision
        if ending := members.leaving & set(target.consumers):
            # A consumer that is ending can neither be used nor started again yet.
            who = listed(map(str, sorted(ending)))
            return _put_off(decision, f"consumer {who} has not ended yet")
        if unknown := self._unknown(target, view, members):
            there = len(view.consumers)
            return replace(
                decision, action=Action.REFUSE, before=there, after=there, reason=unknown, plan=None
            )
        if (wait := self._cooldown_reason(target, members)) is not None:
            return _put_off(decision, wait)
        came_first = f"another decision came first: {decision.reason}"
        is_certain = set(target.consumers) <= view.consumers  # no consumer must be started
        entry = self._orders.failed_entry(came_first) if is_certain else None
        why_not = self._adopt(target, view, members, producer, entry)
        if why_not is not None:
            return _put_off(decision, why_not)
        abandoned = self._orders.abandon(came_first)
        if abandoned is not None and not is_certain and self._plan is not None:
            self._persist(self._plan, members, producer, abandoned.entry)
        if decision.before != decision.after:
            members.scaled = view.now
        return decision

    def _handle_order(
        self,
        view: GroupView,
        members: SubscribedMembers,
        producer: CommandProducer,
        announcer: Announcer,
    ) -> bool:
        """Carries out an ordered plan, or refuses it; returns whether one was started."""
        settled = not (members.leaving or members.awaited)
        order = self._orders.next(view, settled=settled)
        if order is None:
            return False
        current = self._orders.execution
        if current is not None and self._orders.repeats(order):
            # Whoever repeats an order has written `made` to the journal.
            producer.commit([WriteJournal(entry_of(current[0], PlanState.RUNNING))])
            return False
        most = self._config.rules.max_consumers
        why = self._orders.refusal(order, view, settled=settled, most=most)
        if why or order.plan is None:
            producer.commit([WriteJournal(entry_of(order, PlanState.FAILED, why=why))])
            announcer.announce(refusal_of(order, why, len(view.consumers)))
            return False
        target = subscribed_target(order.plan, view.assignment, view.consumers)
        running = entry_of(order, PlanState.RUNNING)
        failure = self._adopt(target, view, members, producer, running)
        if failure is not None:
            producer.commit([WriteJournal(entry_of(order, PlanState.FAILED, why=failure))])
            return False
        if len(target.consumers) != len(view.assignment.consumers):
            members.scaled = view.now
        self._orders.begin(order)
        members.decided = view.now
        announcer.announce(decision_of(order, view.assignment, target), order.plan)
        return True

    def _check_execution(
        self, shares: Set[frozenset[TopicPartition]], producer: CommandProducer
    ) -> None:
        """Ends an execution when members own what the plan gives them, as brokers report it."""
        if self._orders.execution is None or self._plan is None:
            return
        if self._orders.is_changed(self._plan):  # the controller before us did it
            changed = self._orders.abandon("since it was started, partitions got other owners")
            producer.commit([] if changed is None else [changed])
        elif ends := self._orders.end_entries(self._plan, shares):
            producer.commit(ends)
            self._orders.end()
        elif self._orders.lasted_s() > self._config.rules.manage_timeout_s:
            late = self._orders.abandon("members did not adopt the plan in time")
            producer.commit([] if late is None else [late])

    def _unknown(
        self, target: Assignment, view: GroupView, members: SubscribedMembers
    ) -> str | None:
        """Why the first plan may not remove members yet; None if it may.

        Without a plan members already read all partitions, by Kafka's own assignment.
        """
        if self._plan is not None or len(target.consumers) >= len(view.consumers):
            return None
        known = {p: members.measured.of(p) for p in sorted(view.partitions)}
        thin = [str(p) for p, rate in known.items() if rate is None or not rate.complete]
        if not thin:
            return None
        return (
            f"there is no plan yet, and too little is known of {listed(thin)} to use fewer "
            f"than the present {len(view.consumers)} consumers"
        )

    def _catch_up(self, members: SubscribedMembers, producer: CommandProducer) -> None:
        """Raises the version if members were answered with the previous plan during a change.

        They would not learn of the new plan otherwise: when it was made, it gave the members of
        that time what they had, so its version was not raised.
        """
        served, plan = self._served, self._plan
        if served is None or plan is None or self._compared == (served, plan):
            return
        if served.misses(plan):
            if self._cooldown_left_s(members) > 0:
                return
            plan = replace(plan, version=plan.version + 1)
            self._persist(plan, members, producer)
            self._plan, members.rebalanced = plan, time.monotonic()
        self._compared = served, plan

    def _cooldown_left_s(self, members: SubscribedMembers) -> float:
        return self._cooldown_s - (time.monotonic() - members.rebalanced)

    def _cooldown_reason(self, target: Assignment, members: SubscribedMembers) -> str | None:
        """Why the group may not be rebalanced again yet; None if it may."""
        left_s = self._cooldown_left_s(members)
        if left_s <= 0 or self._plan is None or not self._rebalances(target):
            return None
        return f"the group was just rebalanced, and the cooldown lasts {left_s:.0f} s more"

    def _rebalances(self, target: Assignment) -> bool:
        """Whether present members would have to read something else."""
        served, plan = self._served, self._plan
        if served is None or plan is None:
            return True
        return served.differs_under(replace(plan, assignment=target))

    def _adopt(
        self,
        target: Assignment,
        view: GroupView,
        members: SubscribedMembers,
        producer: CommandProducer,
        entry: JournalEntry | None = None,
    ) -> str | None:
        """Persists a plan, starts missing consumers, serves the plan, releases idle consumers.

        A plan that leaves present members what they have keeps its version: new members learn of
        it when they join, and no member has to stop. `entry` is written to the journal in the same
        transaction. Returns the reason if consumers could not be started and nothing was done.
        """
        rebalances = self._rebalances(target)
        version = (self._plan.version if self._plan else 0) + rebalances
        known = {p: members.measured.of(p) for p in target}
        loads = {p: rate.records_s or 0.0 for p, rate in known.items() if rate is not None}
        plan = GroupPlan(version=version, assignment=target, loads=loads)
        self._persist(plan, members, producer, entry)
        missing = set(target.consumers) - view.consumers
        if missing:
            try:
                members.start(missing, {*target.consumers, *view.consumers})
            except TrimtabError as error:
                log.warning("group_was_not_scaled", why=error.message)
                if self._plan is not None:  # else the next controller would follow the new plan
                    self._persist(self._plan, members, producer)
                return f"consumers could not be started: {error.message}"
        self._plan = plan
        if rebalances:
            members.rebalanced = view.now
        idle = sorted(view.consumers - set(target.consumers))
        members.release(idle[self._config.rules.warm_spares :])
        return None

    def _persist_numbers(self, members: SubscribedMembers, producer: CommandProducer) -> None:
        """Persists the numbers of members for the next controller, if they have changed."""
        if self._plan is not None and members.numbers != members.kept:
            self._persist(self._plan, members, producer)

    @staticmethod
    def _persist(
        plan: GroupPlan,
        members: SubscribedMembers,
        producer: CommandProducer,
        entry: JournalEntry | None = None,
    ) -> None:
        members.kept = dict(members.numbers)
        state = GroupState(
            epoch=plan.version, clean=True, assignment=plan.assignment, members=members.kept
        )
        producer.commit([Persist(state), *([] if entry is None else [WriteJournal(entry)])])


def _put_off(decision: Decision, why: str) -> Decision:
    """The decision to change nothing yet, with the reason."""
    return replace(
        decision,
        action=Action.NONE,
        after=decision.before,
        reason=f"{decision.reason}; {why}",
        plan=None,
    )
