"""The controller as a process: one leads a group, others wait to take over.

Why      `apply.controller` decides; this door lends it ears, a voice and hands.
Promise  Commands and state leave in transactions of one transactional id, so that a controller that
         was frozen and wakes cannot command any more: its first word is refused. Whoever owns the
         one partition of the state topic leads; a reign that is over for any reason begins anew
         with asking everybody. What the orchestrator is asked for never holds up the hand-overs.
Cost     A look twice a second; a transaction per step that says anything.
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
from trimtab.apply.consumers.controller import (
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
    step,
)
from trimtab.apply.consumers.kafka.announcer import Announcer
from trimtab.apply.consumers.kafka.inbox import ControllerInbox
from trimtab.apply.consumers.kafka.leadership import (
    CommandProducer,
    GroupConfig,
    Lease,
    lead_when_elected,
    micros,
    state_left,
)
from trimtab.apply.consumers.kafka.membership import subscribed_members
from trimtab.apply.consumers.kafka.ordered_plans import left_orders, ordered, resumed
from trimtab.apply.consumers.learning import Learning
from trimtab.apply.consumers.planning import Judge
from trimtab.apply.consumers.policy import Measured
from trimtab.errors import TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.topics import CONTROL_PARTITIONS
from trimtab.measure.group_state import group_state
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Decision, GroupState, PlanOrder
from trimtab.observe import metrics

log = structlog.get_logger()

_STATE_KEY = b"state"
_ASK_S = 15.0
_TRANSACTION_S = 30.0
_POLL_S = 0.05
_PAUSE_S = 1.0
_LOOK_BACK_S = 60.0
_AGAIN_S = 5.0
_MEMBERS_EVERY_S = 5.0
_HANDS = 256  # threads come as they are needed: what takes long holds up nothing else

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
        """Leads whenever it can; says whether it led when it was told to stop."""
        return lead_when_elected(self._config, self._reign, stop)

    def _reign(self, lease: Lease, stop: threading.Event) -> None:
        config = self._config
        with ExitStack() as open_now:
            voice = CommandProducer(config)  # from here on nobody before it is heard
            ears = open_now.enter_context(closing(ControllerInbox(config)))
            hands = open_now.enter_context(_hands(config, self._backend))
            announcer = open_now.enter_context(closing(Announcer(config, self._on_decision)))
            found = state_left(config)
            log.info("controller_leads", group=config.group, epoch=found.epoch + 1 if found else 1)
            state = ControllerState(rules=config.rules)
            living = self._backend.living()
            hands.make_room(living)
            events: Sequence[Event] = _first_events(config, living, found)
            measured = Measured()
            while lease.renewed() and not stop.is_set():
                policy = self._policy(measured)
                for event in events:
                    state, effects = step(state, event, policy)
                    self._say(voice, effects)
                    for effect in effects:
                        self._do(effect, hands, announcer)
                    metrics.controller_consumers.labels(config.group).set(len(state.members))
                heard, measured = ears.listen(measured)
                for order in ears.orders():
                    hands.fetch(order)
                events = [*heard, *hands.done()]

    def _policy(self, measured: Measured) -> Policy:
        return lambda view: self._judge(view, measured, micros())

    @staticmethod
    def _say(voice: CommandProducer, effects: Sequence[Effect]) -> None:
        """One step, one transaction; who was replaced may not touch processes any more either."""
        told = [effect for effect in effects if isinstance(effect, Send | Persist | WriteJournal)]
        if told or any(isinstance(effect, Create | Remove | Kill) for effect in effects):
            voice.say(told)

    def _do(self, effect: Effect, hands: _Hands, announcer: Announcer) -> None:
        """What does not belong into the transaction, once that is committed."""
        match effect:
            case Send() | Persist() | WriteJournal():
                pass
            case Create(consumers):
                hands.create(consumers)
            case Remove(consumers):
                hands.remove(consumers)
            case Kill(consumer, why, identity):
                log.warning("consumer_will_be_ended", consumer=consumer, why=why)
                hands.kill(consumer, identity)
            case Decide(decision, plan):
                announcer.announce(decision, plan)
            case Note(violation=True):
                metrics.controller_violations_total.labels(self._config.group).inc()
                log.error("promise_was_broken", what=effect.what, **_named(effect))
            case Note():
                log.info("controller_noted", what=effect.what, **_named(effect))
            case _:
                assert_never(effect)


def _first_events(
    config: GroupConfig, living: Mapping[int, str], found: GroupState | None
) -> list[Event]:
    """What a new leader begins with: the group as it was left, and a plan that was under way."""
    left, now = left_orders(config), time.monotonic()
    first: list[Event] = [LeadershipGained(now, living, found, left.held_plan, left.held_s)]
    if left.unfinished is not None:
        first.append(resumed(*left.unfinished, hold_s=left.held_s, now=now))
    return first


def spectate(
    config: GroupConfig,
    judge: Judge,
    on_decision: Callable[[Decision], None],
    stop: threading.Event,
) -> None:
    """Decides as a controller would, from what is written down, and changes nothing at all."""
    with (
        config.cluster.admin() as admin,
        closing(ControllerInbox(config, control=False)) as ears,
    ):
        measured, began, decided = Measured(), time.monotonic(), float("-inf")
        learning = Learning(config.group)
        while not stop.wait(config.look_every_s):
            _, measured = ears.listen(measured)
            now = time.monotonic()
            try:
                partitions, present = _present(config, admin)
            except TrimtabError as error:  # a broker may be away for a while, or a group unsettled
                log.warning("look_failed", why=error.message)
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
            )
            verdict = judge(view, measured, micros())
            if verdict is not None:
                decided = now
                on_decision(verdict.decision)


def _present(config: GroupConfig, admin: Admin) -> tuple[frozenset[TopicPartition], Assignment]:
    """What there is to be read, and who reads it: as Kafka says, else as a controller left it.

    A directed group has no members in Kafka's eyes. One that has some was perhaps directed once.
    """
    found = group_state(admin, config.group, frozenset(config.topics))
    kept = None if found.assignment else state_left(config, missing_ok=True)
    if kept is None:
        return found.partitions, found.assignment
    return found.partitions, kept.assignment.only(dict.fromkeys(found.partitions))


def _named(note: Note) -> dict[str, Any]:
    named: dict[str, Any] = {} if note.consumer is None else {"consumer": note.consumer}
    return named | ({"partitions": [str(p) for p in note.partitions]} if note.partitions else {})


class _Hands:
    """What takes time: looking at processes and partitions, starting and ending consumers."""

    def __init__(self, config: GroupConfig, backend: Backend, threads: ThreadPoolExecutor) -> None:
        self._config = config
        self._backend = backend
        self._threads = threads
        self._done: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._room = CONTROL_PARTITIONS
        self._asks_members_at = float("-inf")

    def done(self) -> list[Event]:
        """The events that have come of it."""
        found = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:
                return found

    def begin(self) -> None:
        """Starts to look."""
        self._threads.submit(self._guarded, self._watch)

    def end(self) -> None:
        """Begins nothing more."""
        self._over.set()

    def create(self, consumers: tuple[int, ...]) -> None:
        """Has consumers started, once the control topic has a partition for each."""
        self._threads.submit(self._guarded, partial(self._create, consumers))

    def remove(self, consumers: tuple[int, ...]) -> None:
        """Has idle consumers stopped gently."""
        self._threads.submit(self._guarded, partial(self._remove, consumers))

    def kill(self, consumer: int, identity: str | None) -> None:
        """Has a process ended, and tries until that is confirmed; never another in its place."""
        self._threads.submit(self._guarded, partial(self._kill, consumer, identity))

    def fetch(self, order: PlanOrder) -> None:
        """Has the plan read that was ordered."""
        self._threads.submit(self._guarded, partial(self._fetch, order))

    def _fetch(self, order: PlanOrder) -> None:
        event = ordered(self._config, order)
        if event is not None:
            self._done.put(event)

    def make_room(self, living: Collection[int]) -> None:
        """Has a control partition for each of these consumers, however they came to be."""
        needed = max(living, default=0) + 2
        if needed > self._room:
            with self._config.cluster.admin() as admin:
                self._room = self._make_room(admin, needed)

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._over.is_set():  # whoever leads now decides for itself
            return
        try:
            work()
        except Exception:  # a thread has nobody to raise to
            log.exception("controller_stumbled")

    def _watch(self) -> None:
        """Looks until the end: a controller that sees nothing would wait for ever."""
        while not self._over.is_set():
            try:
                with self._config.cluster.admin() as admin:
                    while not self._over.wait(self._config.look_every_s):
                        self._look(admin)
            except TrimtabError as error:
                log.warning("look_failed", why=error.message)
            except Exception:  # whatever it was, the next look may go well
                log.exception("controller_stumbled")
            self._over.wait(_PAUSE_S)

    def _look(self, admin: Admin) -> None:
        """Looks once; the processes last, so that what is said of them is not old."""
        partitions = self._try(partial(self._config.partitions, admin))
        subscribed = None
        if time.monotonic() >= self._asks_members_at:
            self._asks_members_at = time.monotonic() + _MEMBERS_EVERY_S
            subscribed = self._try(partial(subscribed_members, admin, self._config.group))
        self._look_at_processes(partitions, subscribed)

    def _look_at_processes(
        self,
        partitions: frozenset[TopicPartition] | None = None,
        subscribed: tuple[str, ...] | None = None,
    ) -> None:
        """Looks one after another, so that a stale listing cannot overwrite a newer one."""
        with self._looking:
            now = time.monotonic()
            living = self._try(self._backend.living)
            if living is not None:
                self.make_room(living)
                self._done.put(
                    GroupObserved(
                        now=now,
                        living=living,
                        partitions=partitions,
                        words=self._backend.last_words(),
                        subscribed=subscribed,
                    )
                )

    def _create(self, consumers: tuple[int, ...]) -> None:
        try:
            self.make_room(consumers)
            self._backend.create(consumers)
        except Exception as error:  # whatever it was, nobody may wait for them
            log.warning("consumers_were_not_started", consumers=consumers, why=str(error))
            for consumer in consumers:
                self._done.put(ConsumerExited(time.monotonic(), consumer, why=str(error)))
            return
        # Seen at once, so that one that dies before the next look is missed and not waited for.
        self._look_at_processes()

    def _make_room(self, admin: Admin, needed: int) -> int:
        """Raises the number of control partitions before a consumer looks for its own."""
        topic = self._config.cluster.topics.control(self._config.group)
        present = total = len(admin.topics([topic]))
        while 0 < total < needed:
            total *= 2
        if total > present:
            admin.add_partitions(topic, total)
        return total

    def _remove(self, consumers: tuple[int, ...]) -> None:
        """Tries until they are gone, or kept for good; never another process in their place."""
        leaving: Mapping[int, str] | None = None
        while not self._over.is_set():
            living = self._try(self._backend.living)
            if living is not None:
                asked = dict.fromkeys(consumers) if leaving is None else leaving
                leaving = {c: i for c, i in living.items() if c in asked and asked[c] in (None, i)}
                if not leaving or self._removed(leaving):
                    return
            self._over.wait(_AGAIN_S)

    def _removed(self, leaving: Mapping[int, str]) -> bool:
        try:
            self._backend.remove(tuple(leaving))
        except Exception as error:  # they hold nothing meanwhile
            log.warning("consumers_were_not_removed", consumers=tuple(leaving), why=str(error))
            return False
        living = self._try(self._backend.living)
        kept = frozenset(c for c, i in leaving.items() if living is None or living.get(c) == i)
        if kept:
            self._done.put(RemovalRefused(time.monotonic(), kept))
        return True

    def _kill(self, consumer: int, identity: str | None) -> None:
        while not self._over.is_set():
            living = self._try(self._backend.living)
            if living is not None and (living.get(consumer) != identity or self._killed(consumer)):
                self._done.put(ConsumerExited(time.monotonic(), consumer, identity))
                return
            self._over.wait(_PAUSE_S)

    def _killed(self, consumer: int) -> bool:
        try:
            self._backend.kill(consumer)
        except Exception as error:  # until it is confirmed it may still read
            log.warning("consumer_was_not_ended", consumer=consumer, why=str(error))
            return False
        return True

    def _try(self, ask: Callable[[], _T]) -> _T | None:
        try:
            return ask()
        except TrimtabError as error:
            log.warning("look_failed", why=error.message)
            return None


@contextmanager
def _hands(config: GroupConfig, backend: Backend) -> Iterator[_Hands]:
    with ThreadPoolExecutor(_HANDS, thread_name_prefix=config.name) as threads:
        hands = _Hands(config, backend, threads)
        hands.begin()
        try:
            yield hands
        finally:
            hands.end()
