"""A running consumer: directed by the controller, or a member of a subscribed group.

Promise  A directed consumer reads nothing until it gets a command, also after a restart. It sends
         `hello` only when it is able to receive the answer. Both report their capacity every few
         seconds, also during a long batch. When stopped, they finish the current record, write,
         commit, and leave.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.apply.consumers.cycle import Cycle
from trimtab.apply.consumers.directed import (
    ConsumerProcess,
    Drop,
    SendReport,
    Take,
    execute,
    without,
    without_old_queries,
)
from trimtab.apply.consumers.interfaces import Reader, RecordWorker, Sink, WorkerFactory
from trimtab.apply.consumers.kafka.control_channel import ControlChannel, Reports
from trimtab.apply.consumers.kafka.directed_reader import DirectedReader, OffsetReset
from trimtab.apply.consumers.kafka.membership import refuse_subscribed
from trimtab.apply.consumers.kafka.outbox import DeadLetterTopics, Outbox, ReceiptTopic
from trimtab.apply.consumers.sockets.assignment_service import ControllerClient
from trimtab.apply.consumers.work import Limits, Work
from trimtab.apply.handling import Handler
from trimtab.apply.totals import Totals
from trimtab.errors import BrokerUnavailable, ConfigError, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.retry import SLOWING, Retry, attempts
from trimtab.kafka.topics import ensure
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import MemberRate, Rate
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

if TYPE_CHECKING:
    from trimtab.apply.consumers.kafka.group_reader import GroupReader

log = library_log()

RATE_EVERY_S = 5.0
"""Half of the shortest `--dead-after` (10 s), so that one report may be lost."""

_LINGER_MS = 50  # a flush does not wait for it
_FINAL_SEND_S = 5.0  # short: leaving the group follows, and a supervisor kills after 30 s


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Which records a consumer reads, and what it does with them.

    `index` is its number in the group; a directed consumer must have one. `instance` makes a member
    of a subscribed group a static member: restarted with the same instance id within its session,
    it continues without a rebalance. `run` names the run in its receipts. `in_hand` is called with
    each record before it is handled, and with None in between. `worker` handles the records in
    place of the plain cycle; handler, sink and receipts are then its own matter.
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
    beginning: OffsetReset = OffsetReset.EARLIEST
    receipts: bool = True
    run: str = "run"
    in_hand: Callable[[Record | None], None] | None = None
    rate_every_s: float = RATE_EVERY_S
    worker: WorkerFactory | None = None

    def name(self, incarnation: str) -> str:
        """The client id: by index, so that clients sort by it, or by instance id."""
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
                "A directed consumer needs an index.", hint="Add --index I, 0 for the first one."
            )
        self.stop = stop or threading.Event()
        self._config = config
        self._state = ConsumerProcess(consumer=config.index, incarnation=uuid.uuid4().hex)

    @property
    def incarnation(self) -> str:
        """The unique id of this process."""
        return self._state.incarnation

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it reads now."""
        return self._state.owned

    def run(self) -> Totals:
        """Reads and handles records until `stop` is set."""
        config = self._config
        with ExitStack() as open_now:
            _check_cluster(config, empty=True)
            make_worker = _open_worker(config, self.incarnation, self.stop, open_now)
            reports = open_now.enter_context(_reports(config, self.incarnation))
            reader = DirectedReader(
                config.group,
                config.cluster,
                client_id=config.name(self.incarnation),
                on_lost=lambda lost: self._lose(lost, worker),
                batch_bytes=config.limits.batch_bytes,
                beginning=config.beginning,
                skip_lost=config.worker is None,
            )
            open_now.callback(reader.close)
            worker = make_worker(reader)
            channel = ControlChannel(
                config.cluster.topics.control(config.group),
                self._state.consumer,
                config.cluster,
                client_id=f"{config.name(self.incarnation)}-control",
            )
            open_now.callback(channel.close)
            if not channel.open(self.stop):
                return worker.totals
            reader.connect(config.topics)
            reports.send(self._state.hello)
            log.info("consumer_began", group=config.group, incarnation=self.incarnation)
            open_now.enter_context(_reporting_rate(config, reports, lambda: self._rate(worker)))
            return worker.run(
                lambda: self._execute_commands(channel, reports, reader, worker),
                has_commands=channel.has_commands,
            )

    def _execute_commands(
        self,
        channel: ControlChannel,
        reports: Reports,
        reader: DirectedReader,
        worker: RecordWorker,
    ) -> None:
        """Executes all commands that have arrived, in order; each is answered when it is done."""
        for command in without_old_queries(channel.commands()):
            self._state, actions = execute(self._state, command, worker.committed)
            for action in actions:
                match action:
                    case Take(partitions):
                        _prepare(worker, partitions, self.stop)
                        for partition, committed in reader.take(partitions, self.stop).items():
                            worker.begin(partition, committed)
                        if self.stop.is_set():  # the partitions may not have been taken
                            return
                    case Drop(partitions):
                        reader.drop(partitions)
                        worker.release(partitions)
                    case SendReport(report):
                        reports.send(report)
            log.info("command_executed", command=str(command), owned=len(self._state.owned))

    def _rate(self, worker: RecordWorker) -> Rate:
        return Rate(
            consumer=self._state.consumer,
            incarnation=self.incarnation,
            max_bytes_s=worker.capacity.bytes_s,
            max_records_s=worker.capacity.records_s,
        )

    def _lose(self, lost: frozenset[TopicPartition], worker: RecordWorker) -> None:
        self._state = without(self._state, lost)
        worker.release(lost)


class GroupConsumer:
    """A member of a subscribed group, whose leader asks the controller for the assignment.

    It reports its capacity with its member id, as soon as the group has a control topic.
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
        self._line = ControllerClient(controller_url, token=token)

    def run(self) -> Totals:
        """Reads and handles records until `stop` is set."""
        from trimtab.apply.consumers.kafka.group_reader import open_group_reader

        config = self._config

        def release(lost: Collection[TopicPartition]) -> None:
            worker.release(lost)

        def prepare(new: Collection[TopicPartition]) -> None:
            worker.prepare(new)

        def take_over(_lost: frozenset[TopicPartition]) -> None:
            reader.rejoin()  # another member has the partitions, or the group assigns them again

        with ExitStack() as open_now:
            _check_cluster(config, empty=False)
            make_worker = _open_worker(config, self.incarnation, self.stop, open_now, take_over)
            reader = open_group_reader(
                config.group,
                config.topics,
                config.cluster,
                line=self._line,
                client_id=config.name(self.incarnation),
                instance=config.instance,
                on_revoked=release,
                on_assigned=prepare,
                skip_lost=config.worker is None,
            )
            open_now.callback(reader.close)
            worker = make_worker(reader)
            reports = open_now.enter_context(_reports(config, self.incarnation))
            rate = self._reporting(reader, worker)
            open_now.enter_context(_reporting_rate(config, reports, rate))
            return worker.run()

    def _reporting(
        self, reader: GroupReader, worker: RecordWorker
    ) -> Callable[[], MemberRate | None]:
        """Returns the report; None before it is a member or while there is no control topic."""
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
                max_bytes_s=worker.capacity.bytes_s,
                max_records_s=worker.capacity.records_s,
            )

        return rate


# ---------------------------------------------------------------- parts of both


def _check_cluster(config: ConsumerConfig, *, empty: bool) -> None:
    """Refuses missing topics, and for directed consumers a group with subscribed members."""
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
    """Whether the group has a control topic; False if the cluster does not answer."""
    try:
        with _admin(config)() as admin:
            return bool(admin.topics([config.cluster.topics.control(config.group)]))
    except TrimtabError as error:
        log.warning("control_topic_unknown", group=config.group, why=error.message)
        return False


def _open_worker(
    config: ConsumerConfig,
    incarnation: str,
    stop: threading.Event,
    open_now: ExitStack,
    on_fenced: Callable[[frozenset[TopicPartition]], None] | None = None,
) -> Callable[[Reader], RecordWorker]:
    """Opens what handles records; the result gives it its reader.

    Without `on_fenced` partitions are taken back: a controller gives those of a directed consumer
    to no other one before this process has ended.
    """
    if config.worker is None:
        work = open_now.enter_context(_work(config, incarnation))
        return lambda reader: Cycle(reader, work, stop=stop, on_trouble=_log_trouble)
    opened = open_now.enter_context(
        config.worker(
            client_id=config.name(incarnation),
            incarnation=incarnation,
            stop=stop,
            on_fenced=on_fenced,
        )
    )

    def attached(reader: Reader) -> RecordWorker:
        opened.attach(reader)
        return opened

    return attached


def _prepare(
    worker: RecordWorker, partitions: Collection[TopicPartition], stop: threading.Event
) -> None:
    """Prepares partitions; tries again until the brokers answer, or until `stop` is set."""
    for _ in attempts(SLOWING, stop=stop):
        try:
            worker.prepare(partitions)
        except BrokerUnavailable as error:
            _log_trouble("preparing partitions", error)
        else:
            return


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
    """Reports to the controller; at the end it tries to deliver the last ones."""
    outbox = Outbox(
        config.cluster,
        client_id=f"{config.name(incarnation)}-reports",
    )
    reports = Reports(outbox, config.cluster.topics.control(config.group))
    try:
        yield reports
    finally:
        if not reports.resend(within_s=_FINAL_SEND_S):
            log.warning("reports_were_not_delivered", group=config.group)


@contextmanager
def _reporting_rate(
    config: ConsumerConfig, reports: Reports, rate: Callable[[], Rate | MemberRate | None]
) -> Iterator[None]:
    """Reports the capacity every few seconds, from a separate thread."""
    over = threading.Event()

    def report_rate() -> None:
        while not over.wait(config.rate_every_s):
            report = rate()
            if report is not None:
                reports.send(report)
            reports.resend()

    thread = threading.Thread(target=report_rate, name="rate-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _admin(config: ConsumerConfig) -> Callable[[], AbstractContextManager[Admin]]:
    return config.cluster.admin


def _log_trouble(what: str, error: Exception) -> None:
    log.warning("work_was_delayed", what=what, why=str(error))
