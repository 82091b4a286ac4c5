"""The controller of a directed group as a process: one leads the group, others wait to take over.

Why      `apply.consumers.controller` decides; this module connects it to Kafka and the backend.
Promise  Commands and state are sent in transactions with one transactional id, so a controller that
         was frozen is fenced: its first transaction fails. The owner of the state topic's only
         partition leads; every new leader starts by querying all consumers. Calls to the backend
         run in other threads and never delay the moves.
Cost     Observes the group twice a second; one transaction per step that has commands or state.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, TypeVar, assert_never

import structlog

from trimtab.apply.consumers.backends.backend import Backend
from trimtab.apply.consumers.controller import step
from trimtab.apply.consumers.controller_state import (
    ConsumerExited,
    ControllerState,
    Create,
    Decide,
    Effect,
    Event,
    GroupObserved,
    GroupView,
    Kill,
    LeadershipGained,
    Note,
    Persist,
    Policy,
    RemovalRefused,
    Remove,
    Send,
    WriteJournal,
)
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.kafka.announcer import Announcer
from trimtab.apply.consumers.kafka.inbox import ControllerInbox
from trimtab.apply.consumers.kafka.leadership import (
    RESTART_PAUSE_S,
    CommandProducer,
    GroupConfig,
    Lease,
    lead_when_elected,
    persisted_state,
)
from trimtab.apply.consumers.kafka.membership import subscribed_members
from trimtab.apply.consumers.kafka.plan_orders import left_orders, ordered, resumed
from trimtab.apply.consumers.learning import CapacityLearner
from trimtab.apply.consumers.planning import Judge
from trimtab.errors import TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.topics import CONTROL_PARTITIONS
from trimtab.measure.group_state import group_state
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Decision, GroupState, PlanOrder
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_REMOVE_AGAIN_S = 5.0
_MEMBERS_EVERY_S = 5.0
_THREADS = 256  # started as needed, so that a slow task delays no other

_T = TypeVar("_T")


class DirectedController:
    """Waits for the lease, then leads until it is lost or `stop` is set."""

    def __init__(
        self,
        config: GroupConfig,
        backend: Backend,
        judge: Judge,
        *,
        on_decision: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._backend = backend
        self._judge = judge
        self._on_decision = on_decision

    def run(self, stop: threading.Event) -> bool:
        """Leads whenever it holds the lease; returns whether it was leader when `stop` was set."""
        return lead_when_elected(self._config, self._run_as_leader, stop)

    def _run_as_leader(self, lease: Lease, stop: threading.Event) -> None:
        config = self._config
        with ExitStack() as open_now:
            producer = CommandProducer(config)  # from here on, earlier controllers are fenced
            inbox = open_now.enter_context(closing(ControllerInbox(config)))
            tasks = open_now.enter_context(_background_tasks(config, self._backend))
            announcer = open_now.enter_context(closing(Announcer(config, self._on_decision)))
            found = persisted_state(config)
            epoch = found.epoch + 1 if found else 1
            log.info("controller_became_leader", group=config.group, epoch=epoch)
            state = ControllerState(rules=config.rules)
            running = self._backend.running()
            tasks.ensure_control_partitions(running)
            events: Sequence[Event] = _first_events(config, running, found)
            measured = NewestRates()
            while lease.renewed() and not stop.is_set():
                policy = self._policy(measured)
                for event in events:
                    state, effects = step(state, event, policy)
                    self._commit(producer, effects)
                    for effect in effects:
                        self._perform(effect, tasks, announcer)
                    metrics.controller_consumers.labels(config.group).set(len(state.members))
                reports, measured = inbox.poll(measured)
                for order in inbox.orders():
                    tasks.fetch(order)
                events = [*reports, *tasks.finished()]

    def _policy(self, measured: NewestRates) -> Policy:
        return lambda view: self._judge(view, measured, wall_clock_us())

    @staticmethod
    def _commit(producer: CommandProducer, effects: Sequence[Effect]) -> None:
        """Commits the commands and state of one step in one transaction.

        A step that only starts or ends processes commits an empty one: a fenced controller must
        not touch processes either.
        """
        sent = [effect for effect in effects if isinstance(effect, Send | Persist | WriteJournal)]
        if sent or any(isinstance(effect, Create | Remove | Kill) for effect in effects):
            producer.commit(sent)

    def _perform(self, effect: Effect, tasks: _BackgroundTasks, announcer: Announcer) -> None:
        """Performs an effect that is not part of the transaction, after that is committed."""
        match effect:
            case Send() | Persist() | WriteJournal():
                pass
            case Create(consumers):
                tasks.create(consumers)
            case Remove(consumers):
                tasks.remove(consumers)
            case Kill(consumer, why, identity):
                log.warning("consumer_kill_requested", consumer=consumer, why=why)
                tasks.kill(consumer, identity)
            case Decide(decision, plan):
                announcer.announce(decision, plan)
            case Note(violation=True):
                metrics.controller_violations_total.labels(self._config.group).inc()
                log.error("controller_invariant_violated", what=effect.what, **_fields(effect))
            case Note():
                log.info("controller_noted", what=effect.what, **_fields(effect))
            case _:
                assert_never(effect)


def _first_events(
    config: GroupConfig, running: Mapping[int, str], found: GroupState | None
) -> list[Event]:
    """The first events of a new leader: the persisted group state, and a plan in progress."""
    left, now = left_orders(config), time.monotonic()
    first: list[Event] = [LeadershipGained(now, running, found, left.held_plan, left.held_s)]
    if left.unfinished is not None:
        first.append(resumed(*left.unfinished, hold_s=left.held_s, now=now))
    return first


def decide_without_acting(
    config: GroupConfig,
    judge: Judge,
    on_decision: Callable[[Decision], None],
    stop: threading.Event,
) -> None:
    """Decides as a controller would, from what topics and brokers hold, and changes nothing."""
    with (
        config.cluster.admin() as admin,
        closing(ControllerInbox(config, control=False)) as inbox,
    ):
        measured, began, decided = NewestRates(), time.monotonic(), float("-inf")
        learning = CapacityLearner(config.group)
        while not stop.wait(config.look_every_s):
            _, measured = inbox.poll(measured)
            now = time.monotonic()
            try:
                partitions, present = _current(config, admin)
            except TrimtabError as error:  # a broker may be down, or the group be rebalancing
                log.warning("observation_failed", why=error.message)
                continue
            capacities = learning.look(measured, present)
            view = GroupView(
                now=now,
                quiet_s=now - began,
                since_scaling_s=float("inf"),
                since_decision_s=now - decided,
                assignment=present,
                consumers=frozenset(present.consumers),
                partitions=partitions,
                orphans=partitions - present.keys(),
                max_bytes_s=capacities.bytes_s,
                max_records_s=capacities.records_s,
                removes_highest_only=config.rules.removes_highest_only,
            )
            verdict = judge(view, measured, wall_clock_us())
            if verdict is not None:
                decided = now
                on_decision(verdict.decision)


def _current(config: GroupConfig, admin: Admin) -> tuple[frozenset[TopicPartition], Assignment]:
    """The partitions and their consumers: as Kafka reports, else as a controller persisted them.

    A directed group has no members in Kafka, so its assignment is in its state topic. A group with
    members may have been directed earlier: its members count.
    """
    found = group_state(admin, config.group, frozenset(config.topics))
    persisted = None if found.assignment else persisted_state(config, missing_ok=True)
    if persisted is None:
        return found.partitions, found.assignment
    return found.partitions, persisted.assignment.only(dict.fromkeys(found.partitions))


def _fields(note: Note) -> dict[str, Any]:
    named: dict[str, Any] = {} if note.consumer is None else {"consumer": note.consumer}
    return named | ({"partitions": [str(p) for p in note.partitions]} if note.partitions else {})


class _BackgroundTasks:
    """Slow work in threads: observing processes and partitions, starting and ending consumers."""

    def __init__(self, config: GroupConfig, backend: Backend, threads: ThreadPoolExecutor) -> None:
        self._config = config
        self._backend = backend
        self._threads = threads
        self._finished: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._observing = threading.Lock()
        self._control_partitions = CONTROL_PARTITIONS
        self._next_member_query = float("-inf")

    def finished(self) -> list[Event]:
        """The events that tasks have produced since the last call."""
        found = []
        while True:
            try:
                found.append(self._finished.get_nowait())
            except queue.Empty:
                return found

    def begin(self) -> None:
        """Starts observing the group."""
        self._threads.submit(self._guarded, self._watch)

    def end(self) -> None:
        """Starts no further task; running ones stop at their next attempt."""
        self._ended.set()

    def create(self, consumers: tuple[int, ...]) -> None:
        """Starts consumers, once the control topic has a partition for each."""
        self._threads.submit(self._guarded, partial(self._create, consumers))

    def remove(self, consumers: tuple[int, ...]) -> None:
        """Stops idle consumers gracefully."""
        self._threads.submit(self._guarded, partial(self._remove, consumers))

    def kill(self, consumer: int, identity: str | None) -> None:
        """Kills the process with this identity and retries until its exit is confirmed."""
        self._threads.submit(self._guarded, partial(self._kill, consumer, identity))

    def fetch(self, order: PlanOrder) -> None:
        """Reads the plan that was ordered."""
        self._threads.submit(self._guarded, partial(self._fetch, order))

    def _fetch(self, order: PlanOrder) -> None:
        event = ordered(self._config, order)
        if event is not None:
            self._finished.put(event)

    def ensure_control_partitions(self, consumers: Collection[int]) -> None:
        """Makes sure that each of these consumers has a partition of the control topic."""
        needed = max(consumers, default=0) + 2
        if needed > self._control_partitions:
            with self._config.cluster.admin() as admin:
                self._control_partitions = self._add_control_partitions(admin, needed)

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._ended.is_set():  # another controller may lead by now
            return
        try:
            work()
        except Exception:  # an exception in a thread would be lost
            log.exception("controller_task_failed")

    def _watch(self) -> None:
        """Observes until the end, whatever fails: without observations no step would follow."""
        while not self._ended.is_set():
            try:
                with self._config.cluster.admin() as admin:
                    while not self._ended.wait(self._config.look_every_s):
                        self._observe(admin)
            except TrimtabError as error:
                log.warning("observation_failed", why=error.message)
            except Exception:  # the next observation may succeed
                log.exception("controller_task_failed")
            self._ended.wait(RESTART_PAUSE_S)

    def _observe(self, admin: Admin) -> None:
        """Observes once; processes last, so that their state is the most recent."""
        partitions = self._try(partial(self._config.partitions, admin))
        subscribed = None
        if time.monotonic() >= self._next_member_query:
            self._next_member_query = time.monotonic() + _MEMBERS_EVERY_S
            subscribed = self._try(partial(subscribed_members, admin, self._config.group))
        self._observe_processes(partitions, subscribed)

    def _observe_processes(
        self,
        partitions: frozenset[TopicPartition] | None = None,
        subscribed: tuple[str, ...] | None = None,
    ) -> None:
        """Lists processes; serialised, so that a stale listing cannot overwrite a newer one."""
        with self._observing:
            now = time.monotonic()
            running = self._try(self._backend.running)
            if running is not None:
                self.ensure_control_partitions(running)
                self._finished.put(
                    GroupObserved(
                        now=now,
                        running=running,
                        partitions=partitions,
                        reasons=self._backend.exit_reasons(),
                        subscribed=subscribed,
                    )
                )

    def _create(self, consumers: tuple[int, ...]) -> None:
        try:
            self.ensure_control_partitions(consumers)
            self._backend.create(consumers)
        except Exception as error:  # whatever failed, the controller must not wait for them
            log.warning("consumers_were_not_started", consumers=consumers, why=str(error))
            for consumer in consumers:
                self._finished.put(ConsumerExited(time.monotonic(), consumer, why=str(error)))
            return
        # Listed at once: if one exits before the next observation, its exit is noticed.
        self._observe_processes()

    def _add_control_partitions(self, admin: Admin, needed: int) -> int:
        """Adds partitions to the control topic, before a consumer looks for its own."""
        topic = self._config.cluster.topics.control(self._config.group)
        present = total = len(admin.topics([topic]))
        while 0 < total < needed:
            total *= 2
        if total > present:
            admin.add_partitions(topic, total)
        return total

    def _remove(self, consumers: tuple[int, ...]) -> None:
        """Retries until they have exited or the backend keeps them.

        Only the processes that were found first: never a newer one with the same index.
        """
        leaving: Mapping[int, str] | None = None
        while not self._ended.is_set():
            running = self._try(self._backend.running)
            if running is not None:
                asked = dict.fromkeys(consumers) if leaving is None else leaving
                leaving = {c: i for c, i in running.items() if c in asked and asked[c] in (None, i)}
                if not leaving or self._removed(leaving):
                    return
            self._ended.wait(_REMOVE_AGAIN_S)

    def _removed(self, leaving: Mapping[int, str]) -> bool:
        try:
            self._backend.remove(tuple(leaving))
        except Exception as error:  # they have no partitions, so a retry is enough
            log.warning("consumers_were_not_removed", consumers=tuple(leaving), why=str(error))
            return False
        running = self._try(self._backend.running)
        kept = frozenset(c for c, i in leaving.items() if running is None or running.get(c) == i)
        if kept:
            self._finished.put(RemovalRefused(time.monotonic(), kept))
        return True

    def _kill(self, consumer: int, identity: str | None) -> None:
        while not self._ended.is_set():
            running = self._try(self._backend.running)
            if running is not None and (
                running.get(consumer) != identity or self._killed(consumer)
            ):
                self._finished.put(ConsumerExited(time.monotonic(), consumer, identity))
                return
            self._ended.wait(RESTART_PAUSE_S)

    def _killed(self, consumer: int) -> bool:
        try:
            self._backend.kill(consumer)
        except Exception as error:  # until its exit is confirmed it may still read
            log.warning("consumer_was_not_killed", consumer=consumer, why=str(error))
            return False
        return True

    def _try(self, query: Callable[[], _T]) -> _T | None:
        try:
            return query()
        except TrimtabError as error:
            log.warning("observation_failed", why=error.message)
            return None


@contextmanager
def _background_tasks(config: GroupConfig, backend: Backend) -> Iterator[_BackgroundTasks]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix=config.name) as threads:
        tasks = _BackgroundTasks(config, backend, threads)
        tasks.begin()
        try:
            yield tasks
        finally:
            tasks.end()
