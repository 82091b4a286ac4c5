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

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
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
from trimtab.apply.consumers.controller import (
    GroupVerdict,
    GroupView,
    Persist,
    PlanHold,
    PlanOrdered,
    WriteJournal,
    surplus,
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
from trimtab.apply.consumers.kafka.plan_orders import left_orders, ordered, resumed
from trimtab.apply.consumers.plan_orders import (
    InheritedOrders,
    by_smallest_partition,
    decision_of,
    entry_of,
    refusal_of,
    renumbered,
    unfit,
)
from trimtab.apply.consumers.planning import Judge
from trimtab.apply.consumers.policy import Measured
from trimtab.apply.consumers.sockets.assignment_service import AssignmentService
from trimtab.apply.consumers.subscribed import ServedAssignment, numbered, read_by
from trimtab.apply.consumers.waiting import listed
from trimtab.errors import ConfigError, PortTaken, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision, GroupState, MemberRate, PlanOrder
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_NEVER = float("-inf")
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
        self._orders = _Orders()

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
            turns = _Turns(self._config, self._backend, admin, threads, numbers)
            reading = ThreadPoolExecutor(1, "orders")
            open_now.callback(reading.shutdown, wait=False, cancel_futures=True)
            self._orders = _Orders.taken_over(left_orders(config))
            while lease.renewed() and not stop.is_set():
                _, turns.measured = inbox.poll(turns.measured)
                turns.rates = inbox.member_rates()
                for order in inbox.orders():
                    reading.submit(self._fetch, order)
                if not turns.due():
                    continue
                self._turn(turns, producer, announcer)

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

    def _turn(self, turns: _Turns, producer: CommandProducer, announcer: Announcer) -> None:
        """Observes the group once, and decides if there is a reason."""
        try:
            view = replace(turns.view(self._plan), hold=self._orders.hold())
            self._check_execution(turns, producer)
        except TrimtabError as error:
            log.warning("observation_failed", why=error.message)
            return
        metrics.controller_consumers.labels(self._config.group).set(len(view.consumers))
        self._catch_up(turns, producer)
        if self._handle_order(view, turns, producer, announcer):
            return
        verdict = self._judge(view, turns.measured, wall_clock_us())
        if verdict is not None:
            turns.decided = view.now
            decision = turns.with_waiting(verdict.decision)
            followed = self._follow(verdict, decision, view, turns, producer)
            announcer.announce(followed, verdict.plan if followed is decision else None)
            if followed is not decision:
                return
        self._persist_numbers(turns, producer)

    def _follow(
        self,
        verdict: GroupVerdict,
        decision: Decision,
        view: GroupView,
        turns: _Turns,
        producer: CommandProducer,
    ) -> Decision:
        """Carries out a decision; returns it, or another one if it cannot be carried out."""
        target = verdict.target
        if target is None:
            turns.release(sorted(surplus(view, decision)))
            return decision
        if ending := turns.leaving & set(target.consumers):
            # A consumer that is ending can neither be used nor started again yet.
            who = listed(map(str, sorted(ending)))
            return _put_off(decision, f"consumer {who} has not ended yet")
        if unknown := self._unknown(target, view, turns):
            there = len(view.consumers)
            return replace(
                decision, action=Action.REFUSE, before=there, after=there, reason=unknown, plan=None
            )
        why_not = self._cooldown_reason(target, turns) or self._adopt(target, view, turns, producer)
        if why_not is not None:
            return _put_off(decision, why_not)
        abandoned = self._orders.abandon(f"another decision came first: {decision.reason}")
        if abandoned is not None:
            producer.commit([abandoned])
        if decision.before != decision.after:
            turns.scaled = view.now
        return decision

    def _handle_order(
        self, view: GroupView, turns: _Turns, producer: CommandProducer, announcer: Announcer
    ) -> bool:
        """Carries out an ordered plan, or refuses it; returns whether one was started."""
        order = self._orders.next()
        if order is None:
            return False
        if order.plan is None or order.refused or self._orders.execution is not None:
            busy = "another plan is being carried out"
            self._refuse(order, order.refused or busy, view, producer, announcer)
            return False
        numbers = by_smallest_partition(view.assignment, order.plan.scope.topics)
        back = {own: number for number, own in numbers.items()}
        held = Assignment({p: back.get(c, c) for p, c in view.assignment.items()})
        why = unfit(order, view.partitions, held, most=self._config.rules.max_consumers)
        if turns.leaving or turns.awaited:
            if view.now <= order.until:
                self._orders.fetched.put(order)  # consumers are joining or leaving: wait
                return False
            why = "the group was not settled in time"
        if why:
            self._refuse(order, why, view, producer, announcer)
            return False
        wanted = renumbered(order.plan.assignment, numbers, view.consumers)
        others = {p: c for p, c in view.assignment.items() if p not in wanted}
        target = Assignment({**others, **wanted})
        running = entry_of(order, PlanState.RUNNING)
        failure = self._adopt(target, view, turns, producer, running)
        if failure is not None:
            producer.commit([WriteJournal(entry_of(order, PlanState.FAILED, why=failure))])
            return False
        if len(target.consumers) != len(view.assignment.consumers):
            turns.scaled = view.now
        self._orders.begin(order)
        turns.decided = view.now
        announcer.announce(decision_of(order, view.assignment, target), order.plan)
        return True

    @staticmethod
    def _refuse(
        order: PlanOrdered,
        why: str,
        view: GroupView,
        producer: CommandProducer,
        announcer: Announcer,
    ) -> None:
        producer.commit([WriteJournal(entry_of(order, PlanState.FAILED, why=why))])
        announcer.announce(refusal_of(order, why, len(view.consumers)))

    def _check_execution(self, turns: _Turns, producer: CommandProducer) -> None:
        """Ends an execution when members own what the plan gives them, as brokers report it."""
        execution, plan = self._orders.execution, self._plan
        if execution is None or plan is None:
            return
        order, began = execution
        wanted: dict[int, set[TopicPartition]] = {}
        for partition, consumer in plan.assignment.items():
            wanted.setdefault(consumer, set()).add(partition)
        if {frozenset(share) for share in wanted.values()} <= turns.shares():
            of = len(order.plan.moves) if order.plan is not None else 0
            producer.commit([WriteJournal(entry_of(order, PlanState.DONE, step=of))])
            self._orders.end()
        elif time.monotonic() - began > self._config.rules.manage_timeout_s:
            late = self._orders.abandon("members did not adopt the plan in time")
            producer.commit([] if late is None else [late])

    def _unknown(self, target: Assignment, view: GroupView, turns: _Turns) -> str | None:
        """Why the first plan may not remove members yet; None if it may.

        Without a plan members already read all partitions, by Kafka's own assignment.
        """
        if self._plan is not None or len(target.consumers) >= len(view.consumers):
            return None
        known = {p: turns.measured.of(p) for p in sorted(view.partitions)}
        thin = [str(p) for p, rate in known.items() if rate is None or not rate.complete]
        if not thin:
            return None
        return (
            f"there is no plan yet, and too little is known of {listed(thin)} to use fewer "
            f"than the present {len(view.consumers)} consumers"
        )

    def _catch_up(self, turns: _Turns, producer: CommandProducer) -> None:
        """Raises the version if members were answered with the previous plan during a change.

        They would not learn of the new plan otherwise: when it was made, it gave the members of
        that time what they had, so its version was not raised.
        """
        served, plan = self._served, self._plan
        if served is None or plan is None or self._compared == (served, plan):
            return
        if served.misses(plan):
            if self._cooldown_left_s(turns) > 0:
                return
            plan = replace(plan, version=plan.version + 1)
            self._persist(plan, turns, producer)
            self._plan, turns.rebalanced = plan, time.monotonic()
        self._compared = served, plan

    def _cooldown_left_s(self, turns: _Turns) -> float:
        return self._cooldown_s - (time.monotonic() - turns.rebalanced)

    def _cooldown_reason(self, target: Assignment, turns: _Turns) -> str | None:
        """Why the group may not be rebalanced again yet; None if it may."""
        left_s = self._cooldown_left_s(turns)
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
        turns: _Turns,
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
        known = {p: turns.measured.of(p) for p in target}
        loads = {p: rate.records_s or 0.0 for p, rate in known.items() if rate is not None}
        plan = GroupPlan(version=version, assignment=target, loads=loads)
        self._persist(plan, turns, producer, entry)
        missing = set(target.consumers) - view.consumers
        if missing:
            try:
                turns.start(missing, {*target.consumers, *view.consumers})
            except TrimtabError as error:
                log.warning("group_was_not_scaled", why=error.message)
                return f"consumers could not be started: {error.message}"
        self._plan = plan
        if rebalances:
            turns.rebalanced = view.now
        idle = sorted(view.consumers - set(target.consumers))
        turns.release(idle[self._config.rules.warm_spares :])
        return None

    def _persist_numbers(self, turns: _Turns, producer: CommandProducer) -> None:
        """Persists the numbers of members for the next controller, if they have changed."""
        if self._plan is not None and turns.numbers != turns.kept:
            self._persist(self._plan, turns, producer)

    @staticmethod
    def _persist(
        plan: GroupPlan, turns: _Turns, producer: CommandProducer, entry: JournalEntry | None = None
    ) -> None:
        turns.kept = dict(turns.numbers)
        state = GroupState(
            epoch=plan.version, clean=True, assignment=plan.assignment, members=turns.kept
        )
        producer.commit([Persist(state), *([] if entry is None else [WriteJournal(entry)])])


class _Orders:
    """Ordered plans: those that wait, the one in progress, and the one that is held."""

    def __init__(self) -> None:
        self.fetched: queue.SimpleQueue[PlanOrdered] = queue.SimpleQueue()
        self.execution: tuple[PlanOrdered, float] | None = None  # and since when
        self._held, self._held_until = "", _NEVER

    @classmethod
    def taken_over(cls, left: InheritedOrders) -> _Orders:
        """The orders of the previous controller; a plan that it started is already persisted."""
        orders = cls()
        if left.unfinished is not None:
            plan, entry = left.unfinished
            orders.begin(resumed(plan, entry, hold_s=left.held_s, now=time.monotonic()))
        if left.held_plan:
            orders._held, orders._held_until = left.held_plan, time.monotonic() + left.held_s
        return orders

    def next(self) -> PlanOrdered | None:
        """The next order, if there is one."""
        try:
            return self.fetched.get_nowait()
        except queue.Empty:
            return None

    def begin(self, order: PlanOrdered) -> None:
        """Starts an order; from now on its plan is held."""
        self.execution = order, time.monotonic()
        self._held, self._held_until = order.plan_id, time.monotonic() + order.hold_s

    def end(self) -> None:
        """Marks the order in progress as done."""
        if self.execution is not None:
            self._held_until = time.monotonic() + self.execution[0].hold_s
        self.execution = None

    def abandon(self, why: str) -> WriteJournal | None:
        """Gives up the order in progress; returns the journal entry, None if there is no order."""
        if self.execution is None:
            return None
        order, self.execution = self.execution[0], None
        self._held, self._held_until = "", _NEVER
        return WriteJournal(entry_of(order, PlanState.FAILED, why=why))

    def hold(self) -> PlanHold:
        """The plan that only urgent decisions may undo, and for how long."""
        left_s = max(0.0, self._held_until - time.monotonic())
        return PlanHold(plan=self._held, left_s=left_s)


class _Turns:
    """What is remembered between two observations.

    A consumer of the plan that is missing is awaited for `ControllerRules.start_timeout_s`: it was
    just started, or its orchestrator will restart it. Meanwhile the plan is not changed.
    """

    def __init__(
        self,
        config: GroupConfig,
        backend: Backend,
        admin: Admin,
        threads: ThreadPoolExecutor,
        numbers: Mapping[str, int],
    ) -> None:
        self._config, self._backend, self._admin = config, backend, admin
        self._threads = threads
        self._leaving: set[int] = set()
        self._awaited: dict[int, float] = {}
        self._given_up: set[int] | None = None
        self._refused: Set[int] = set()  # exited, and could not be started again yet
        self.numbers = self.kept = dict(numbers)
        self.measured = Measured()
        self.rates: Sequence[MemberRate] = ()
        self.began = time.monotonic()
        self.looked = self.decided = self.scaled = self.rebalanced = _NEVER

    def due(self) -> bool:
        """Whether it is time for the next observation."""
        now = time.monotonic()
        if now - self.looked < self._config.look_every_s:
            return False
        self.looked = now
        return True

    @property
    def awaited(self) -> frozenset[int]:
        """Consumers that are starting."""
        return frozenset(self._awaited)

    @property
    def leaving(self) -> frozenset[int]:
        """Consumers that were asked to end and may still run."""
        return frozenset(self._leaving)

    def release(self, consumers: Sequence[int]) -> None:
        """Asks consumers to end, without waiting: they finish the records they have fetched."""
        awaited = self._awaited.keys()
        there = [c for c in consumers if c not in awaited]
        for consumer in set(consumers) & awaited:
            del self._awaited[consumer]
        if there:
            self._leaving.update(there)
            self._threads.submit(self._remove, tuple(there))

    def _remove(self, consumers: tuple[int, ...]) -> None:
        try:
            self._backend.remove(consumers)
        except Exception as error:  # the next observation finds them again
            log.warning("consumers_did_not_end", why=str(error))
        finally:
            self._leaving.difference_update(consumers)

    def start(self, missing: Collection[int], all_of_them: Collection[int]) -> None:
        """Starts consumers and awaits them; awaits none if the backend refuses."""
        self._backend.create(all_of_them)
        self._await(missing)

    def _await(self, missing: Collection[int]) -> None:
        until = time.monotonic() + self._config.rules.start_timeout_s
        self._awaited.update(dict.fromkeys(missing, until))

    def with_waiting(self, decision: Decision) -> Decision:
        """The decision, with the awaited consumers and what is known of them in its reason."""
        if not self._awaited:
            return decision
        reasons = self._backend.exit_reasons()
        who = ", ".join(
            f"{c} ({reasons[c]})" if reasons.get(c) else f"{c}" for c in sorted(self._awaited)
        )
        return replace(decision, reason=f"{decision.reason}; waiting for consumer {who} to join")

    def shares(self) -> set[frozenset[TopicPartition]]:
        """The set of partitions that each member owns, as the brokers report it."""
        topics = frozenset(self._config.topics)
        return {
            frozenset(p for p in member.partitions if p.topic in topics)
            for group in self._admin.groups([self._config.group])
            for member in group.members
        }

    def view(self, plan: GroupPlan | None) -> GroupView:
        """The input of a decision: the assignment and the consumers, starting ones included."""
        now = time.monotonic()
        leaving = self.leaving  # read before listing: a consumer that exits meanwhile is not listed
        planned = frozenset(plan.assignment.consumers) if plan else frozenset()
        running = self._running(planned) - leaving
        self._wait_for(planned - leaving, running, now)
        consumers = running | self._awaited.keys()
        partitions = self._config.partitions(self._admin)
        read = read_by(plan, consumers, partitions)
        return GroupView(
            now=now,
            quiet_s=now - max(self.began, self.scaled),
            since_scaling_s=now - self.scaled,
            since_decision_s=now - self.decided,
            assignment=read,
            consumers=consumers,
            partitions=partitions,
            orphans=partitions - read.keys(),
            max_bytes_s=_known(r.max_bytes_s for r in self.rates),
            max_records_s=_known(r.max_records_s for r in self.rates),
            spares=self._config.rules.warm_spares,
        )

    def _running(self, planned: frozenset[int]) -> frozenset[int]:
        """The numbers of the running consumers."""
        names = self._backend.names()
        if names is None:
            return frozenset(self._backend.running())
        self.numbers = numbered(names, self.numbers, planned)
        return frozenset(self.numbers.values())

    def _wait_for(self, planned: frozenset[int], running: frozenset[int], now: float) -> None:
        """Awaits planned consumers that are missing; gives up those that do not come in time."""
        absent = planned - running
        if self._given_up is None:  # those missing from an inherited plan were not started by us
            self._given_up = set(absent)
        self._given_up &= absent
        late = {c for c, until in self._awaited.items() if until < now and c not in running}
        if late:
            log.warning("consumers_did_not_join", group=self._config.group, consumers=sorted(late))
        self._given_up |= late & absent
        self._awaited = {
            c: until for c, until in self._awaited.items() if c not in running and c not in late
        }
        lost = absent - self._given_up - self._awaited.keys()
        if lost:
            log.warning("consumers_exited", group=self._config.group, consumers=sorted(lost))
            self._await(lost)  # in any case: their orchestrator may restart them
        again = (self._refused & self._awaited.keys()) | lost
        if again:
            try:
                self._backend.create(running | planned)
            except TrimtabError as error:  # such as a pause after repeated exits: retried later
                if lost:
                    log.warning("group_was_not_scaled", why=error.message)
                self._refused = again
            else:
                self._refused = set()
                self._await(again)


def _put_off(decision: Decision, why: str) -> Decision:
    """The decision to change nothing yet, with the reason."""
    return replace(
        decision,
        action=Action.NONE,
        after=decision.before,
        reason=f"{decision.reason}; {why}",
        plan=None,
    )


def _known(reported: Iterable[float | None]) -> dict[int, float]:
    """The reported values, numbered in order; these numbers are not those of the plan."""
    return dict(enumerate(value for value in reported if value))
