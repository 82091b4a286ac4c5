"""A running consumer: directed by the controller, or a member of a subscribed group.

Why      The cycle is the same for both; they differ in who says which partitions are read.
Promise  A directed consumer reads nothing until it is told to, and begins with nothing after a
         restart. It says `hello` only when it can hear the answer. Both report their capacity every
         few seconds, also during a long batch. Told to stop, they finish the record in hand,
         write, commit, and leave.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.apply.consumers.cycle import Cycle, Limits, Totals, Work
from trimtab.apply.consumers.directed import Directed, Drop, Say, Take, obey, without, worth_obeying
from trimtab.apply.consumers.kafka.control_channel import ControlChannel, Reports
from trimtab.apply.consumers.kafka.directed_reader import Beginning, DirectedReader
from trimtab.apply.consumers.kafka.membership import refuse_subscribed
from trimtab.apply.consumers.kafka.outbox import DeadLetterTopics, Outbox, ReceiptTopic
from trimtab.apply.consumers.ports import Handler, Sink
from trimtab.apply.consumers.sockets.assignment_service import ControllerLine
from trimtab.errors import ConfigError, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.retry import Retry
from trimtab.kafka.topics import ensure
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import MemberRate, Rate
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

if TYPE_CHECKING:
    from trimtab.apply.consumers.kafka.group_reader import GroupReader

log = library_log()

RATE_EVERY_S = 5.0
"""A consumer silent for longer than 10 s is late; half of it leaves room for one lost report."""

_LINGER_MS = 50  # a flush does not wait for it
_LAST_WORDS_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Whose records a consumer reads, and what it does with them.

    `index` is its place in the group; a directed consumer must have one. `instance` makes a member
    of a subscribed group a static one: restarted under the same name within its session, it goes
    on without a rebalance. `run` names the run in its receipts. `in_hand` is told each record
    before it is handled, and None in between.
    """

    group: str
    topics: tuple[str, ...]
    cluster: Cluster
    index: int | None = None
    instance: str | None = None
    handler: Handler | None = None
    sink: Sink | None = None
    limits: Limits = field(default_factory=Limits)
    retry: Retry = field(default_factory=Retry)
    beginning: Beginning = Beginning.EARLIEST
    receipts: bool = True
    run: str = "run"
    in_hand: Callable[[Record | None], None] | None = None
    rate_every_s: float = RATE_EVERY_S

    def name(self, incarnation: str) -> str:
        """What its clients call themselves: by index, so that they sort by it, or by instance."""
        own = self.instance or incarnation if self.index is None else self.index
        return f"trimtab-{self.group}-{own}"


class DirectedConsumer:
    """Reads the partitions that the group's controller gives it.

    Example::

        def book(record: Record) -> None:
            ledger.add(record.key, record.value)

        config = ConsumerConfig(
            cluster=Cluster("kafka:9092"),
            group="pay",
            topics=("orders",),
            index=0,
            handler=book,
        )
        consumer = DirectedConsumer(config)
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop.set())
        totals = consumer.run()
    """

    def __init__(self, config: ConsumerConfig, *, stop: threading.Event | None = None) -> None:
        if config.index is None:
            raise ConfigError(
                "A directed consumer needs an index.", hint="Give --index I, 0 for the first one."
            )
        self.stop = stop or threading.Event()
        self._config = config
        self._state = Directed(consumer=config.index, incarnation=uuid.uuid4().hex)

    @property
    def incarnation(self) -> str:
        """The name of this process, which no other ever has."""
        return self._state.incarnation

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What it reads now."""
        return self._state.owned

    def run(self) -> Totals:
        """Works until `stop` is set."""
        config = self._config
        with ExitStack() as open_now:
            _check_cluster(config, empty=True)
            work = open_now.enter_context(_work(config, self.incarnation))
            reports = open_now.enter_context(_reports(config, self.incarnation))
            reader = DirectedReader(
                config.group,
                config.cluster,
                client_id=config.name(self.incarnation),
                on_lost=lambda lost: self._lose(lost, cycle),
                batch_bytes=config.limits.batch_bytes,
                beginning=config.beginning,
            )
            open_now.callback(reader.close)
            cycle = Cycle(reader, work, stop=self.stop, on_trouble=_tell)
            channel = ControlChannel(
                config.cluster.topics.control(config.group),
                self._state.consumer,
                config.cluster,
                client_id=f"{config.name(self.incarnation)}-control",
            )
            open_now.callback(channel.close)
            if not channel.open(self.stop):
                return cycle.totals
            reader.meet(config.topics)
            reports.send(self._state.hello)
            log.info("consumer_began", group=config.group, incarnation=self.incarnation)
            open_now.enter_context(_pulse(config, reports, lambda: self._rate(cycle)))
            return cycle.run(
                lambda: self._listen(channel, reports, reader, cycle), called=channel.has_commands
            )

    def _listen(
        self, channel: ControlChannel, reports: Reports, reader: DirectedReader, cycle: Cycle
    ) -> None:
        """Obeys all commands that have come, in order, each answered once it is obeyed."""
        for command in worth_obeying(channel.commands()):
            self._state, actions = obey(self._state, command, cycle.committed)
            for action in actions:
                match action:
                    case Take(partitions):
                        for partition, committed in reader.take(partitions, self.stop).items():
                            cycle.begin(partition, committed)
                        if self.stop.is_set():  # nothing may be promised any more
                            return
                    case Drop(partitions):
                        reader.drop(partitions)
                        cycle.release(partitions)
                    case Say(report):
                        reports.send(report)
            log.info("command_was_obeyed", command=str(command), owned=len(self._state.owned))

    def _rate(self, cycle: Cycle) -> Rate:
        return Rate(
            consumer=self._state.consumer,
            incarnation=self.incarnation,
            max_bytes_s=cycle.capacity.bytes_s,
            max_records_s=cycle.capacity.records_s,
        )

    def _lose(self, lost: frozenset[TopicPartition], cycle: Cycle) -> None:
        self._state = without(self._state, lost)
        cycle.release(lost)


class GroupConsumer:
    """A member of a subscribed group, whose leader asks the controller who reads what.

    It reports its capacity under its member id, as soon as the group has a control topic.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        controller_url: str,
        token: str | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.stop = stop or threading.Event()
        self.incarnation = uuid.uuid4().hex
        self._config = config
        self._line = ControllerLine(controller_url, token=token)

    def run(self) -> Totals:
        """Works until `stop` is set."""
        from trimtab.apply.consumers.kafka.group_reader import open_group_reader

        config = self._config

        def release(lost: Collection[TopicPartition]) -> None:
            cycle.release(lost)

        with ExitStack() as open_now:
            _check_cluster(config, empty=False)
            work = open_now.enter_context(_work(config, self.incarnation))
            reader = open_group_reader(
                config.group,
                config.topics,
                config.cluster,
                line=self._line,
                client_id=config.name(self.incarnation),
                instance=config.instance,
                on_revoked=release,
            )
            open_now.callback(reader.close)
            cycle = Cycle(reader, work, stop=self.stop, on_trouble=_tell)
            reports = open_now.enter_context(_reports(config, self.incarnation))
            rate = self._reporting(reader, cycle)
            open_now.enter_context(_pulse(config, reports, rate))
            return cycle.run()

    def _reporting(self, reader: GroupReader, cycle: Cycle) -> Callable[[], MemberRate | None]:
        """What to report; nothing before it is a member, and before a controller has been there."""
        controlled = False

        def rate() -> MemberRate | None:
            nonlocal controlled
            member = reader.member_id
            controlled = controlled or (bool(member) and _is_controlled(self._config))
            if not (controlled and member):
                return None
            return MemberRate(
                member=member,
                incarnation=self.incarnation,
                max_bytes_s=cycle.capacity.bytes_s,
                max_records_s=cycle.capacity.records_s,
            )

        return rate


# ---------------------------------------------------------------- parts of both


def _check_cluster(config: ConsumerConfig, *, empty: bool) -> None:
    """Refuses topics that are not there, and a group that somebody subscribes under."""
    with _admin(config)() as admin:
        missing = sorted(set(config.topics) - {p.topic for p in admin.topics(config.topics)})
        if missing:
            raise ConfigError(
                f"There is no topic {', '.join(missing)}.", hint="Create it, or correct --topic."
            )
        if empty:
            refuse_subscribed(admin, config.group)
        if config.receipts:
            needed = config.cluster.topics.of_group(config.group)
            ensure(
                admin, [topic for topic in needed if topic.name == config.cluster.topics.receipts]
            )


def _is_controlled(config: ConsumerConfig) -> bool:
    """Whether a controller has made the control topic; a cluster that cannot say is asked again."""
    try:
        with _admin(config)() as admin:
            return bool(admin.topics([config.cluster.topics.control(config.group)]))
    except TrimtabError as error:
        log.warning("control_topic_unknown", group=config.group, why=error.message)
        return False


@contextmanager
def _work(config: ConsumerConfig, incarnation: str) -> Iterator[Work]:
    def outbox(name: str) -> Outbox:
        return Outbox(
            config.cluster,
            client_id=f"{config.name(incarnation)}-{name}",
            linger_ms=_LINGER_MS,
        )

    receipts = ReceiptTopic(
        outbox("outbox"),
        config.cluster.topics.receipts,
        run=config.run,
        group=config.group,
        consumer=config.index or 0,
        incarnation=incarnation,
    )
    yield Work(
        handler=config.handler,
        sink=config.sink,
        dead_letters=DeadLetterTopics(lambda: outbox("dead-letters"), _admin(config)),
        receipts=receipts if config.receipts else None,
        limits=config.limits,
        retry=config.retry,
        in_hand=config.in_hand,
    )


@contextmanager
def _reports(config: ConsumerConfig, incarnation: str) -> Iterator[Reports]:
    """Reports to the controller; what is under way at the end is delivered, if it can be."""
    outbox = Outbox(
        config.cluster,
        client_id=f"{config.name(incarnation)}-reports",
    )
    reports = Reports(outbox, config.cluster.topics.control(config.group))
    try:
        yield reports
    finally:
        if not reports.resend(within_s=_LAST_WORDS_S):
            log.warning("reports_were_not_delivered", group=config.group)


@contextmanager
def _pulse(
    config: ConsumerConfig, reports: Reports, rate: Callable[[], Rate | MemberRate | None]
) -> Iterator[None]:
    """Reports the capacity every few seconds, from a thread of its own."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(config.rate_every_s):
            report = rate()
            if report is not None:
                reports.send(report)
            reports.resend()

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _admin(config: ConsumerConfig) -> Callable[[], AbstractContextManager[Admin]]:
    return config.cluster.admin


def _tell(what: str, error: Exception) -> None:
    log.warning("work_was_held_up", what=what, why=str(error))
