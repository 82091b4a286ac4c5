"""What a controller reads from Kafka: reports of consumers, orders of plans, published rates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import structlog
from confluent_kafka import OFFSET_END, KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.controller_state import ReportReceived
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.kafka.control_channel import TO_CONTROLLER
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.errors import BadFile, ProtocolViolation
from trimtab.kafka.cluster import POLL_SLICE_S
from trimtab.kafka.compacted import ABSENT
from trimtab.kafka.errors import is_retriable, kafka_errors, reason_of
from trimtab.model.control import (
    Command,
    MemberRate,
    PartitionRate,
    PlanOrder,
    Report,
    Start,
    StateQuery,
    Stop,
)
from trimtab.model.control_codec import control_from
from trimtab.model.json_reader import parse
from trimtab.model.rates_reader import Keyed, RatesReader
from trimtab.observe import metrics

log = structlog.get_logger()

_LOOK_BACK_S = 60.0
_EXPORTED = (
    metrics.controller_partition_bytes_per_second,
    metrics.controller_partition_records_per_second,
)
_MEMBER_COUNTS_S = 30.0


class ControllerInbox:
    """Reads reports of consumers, orders of plans and published rates.

    Members of a subscribed group report only their rate: see `member_rates`.
    """

    def __init__(self, config: GroupConfig, *, control: bool = True) -> None:
        self._config = config
        self._request_s = config.cluster.timeouts.request_s
        self._control, self._rates = (
            config.cluster.topics.control(config.group),
            config.cluster.topics.rates,
        )
        self._members: dict[str, tuple[float, MemberRate]] = {}
        self._orders: list[PlanOrder] = []
        self._reader = RatesReader(origin=self._rates, topics=config.topics)
        self._consumer = config.cluster.consumer(
            config.name,
            {
                "group.id": f"{config.name}-inbox",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            },
        )
        try:
            places = [self._recent()]
            if control:
                places.append(self._end())
            self._consumer.assign(places)
        except BaseException:
            self._consumer.close()
            raise

    def _end(self) -> TheirPartition:
        """The control partition's end offset now: later answers of consumers are not missed."""
        with kafka_errors(f"reading {self._control}"):
            place = TheirPartition(self._control, TO_CONTROLLER)
            _, end = self._consumer.get_watermark_offsets(place, timeout=self._request_s)
        return TheirPartition(self._control, TO_CONTROLLER, end)

    def _recent(self) -> TheirPartition:
        """The offset where the rates of the last minute begin."""
        since_ms = round((time.time() - _LOOK_BACK_S) * 1000)
        try:
            [found] = self._consumer.offsets_for_times(
                [TheirPartition(self._rates, 0, since_ms)],
                timeout=self._request_s,
            )
        except KafkaException as error:
            log.warning("rates_were_not_found", topic=self._rates, why=reason_of(error))
            return TheirPartition(self._rates, 0, OFFSET_END)
        return found

    def poll(self, measured: NewestRates) -> tuple[list[ReportReceived], NewestRates]:
        """New reports, and `measured` updated with new rates; waits at most 50 ms for them."""
        reports: list[ReportReceived] = []
        rates: list[Keyed] = []
        with kafka_errors("reading reports of consumers"):
            for message in self._consumer.consume(500, POLL_SLICE_S):
                if (error := message.error()) is not None:
                    if not is_retriable(KafkaException(error)) and error.code() not in ABSENT:
                        raise KafkaException(error)
                elif message.topic() == self._rates:
                    rates.append((message.key(), message.value() or b""))
                else:
                    reports.extend(self._read_report(message))
        complete, refused = self._reader.read(rates)
        for why in refused:
            log.warning("record_was_refused", topic=self._rates, why=str(why))
        if complete:
            measured = measured.updated(*complete)
            self._export(measured)
        return reports, measured

    def _read_report(self, message: Message) -> Iterator[ReportReceived]:
        """The report in a record, if there is one that can be read."""
        try:
            if (report := self._report(message)) is not None:
                yield ReportReceived(time.monotonic(), report)
        except (BadFile, ProtocolViolation) as error:
            log.warning("record_was_refused", topic=message.topic(), why=str(error))

    def _export(self, measured: NewestRates) -> None:
        """Exports the rates as metrics; they are read when the metrics are scraped."""
        group, topics = self._config.group, frozenset(self._config.topics)

        def newest() -> Iterator[tuple[tuple[str, str, str], PartitionRate]]:
            for topic, rates in measured.newest.items():
                for number, rate in rates.partitions.items() if topic in topics else ():
                    if not rate.stale:
                        yield (group, topic, str(number)), rate

        metrics.controller_partition_bytes_per_second.read_from(
            lambda: {labels: rate.bytes_s for labels, rate in newest()}
        )
        metrics.controller_partition_records_per_second.read_from(
            lambda: {labels: rate.records_s for labels, rate in newest()}
        )

    def orders(self) -> tuple[PlanOrder, ...]:
        """The orders received since the last call."""
        orders, self._orders = tuple(self._orders), []
        return orders

    def member_rates(self) -> tuple[MemberRate, ...]:
        """The newest rate of each member that has reported within 30 s, by member id."""
        since = time.monotonic() - _MEMBER_COUNTS_S
        self._members = {m: last for m, last in self._members.items() if last[0] >= since}
        return tuple(rate for _, (_, rate) in sorted(self._members.items()))

    def _report(self, message: Message) -> Report | None:
        """The report in a record; None for a member's rate or an order, which are stored."""
        found = control_from(parse(message.value() or b"", origin=self._control))
        if isinstance(found, Start | Stop | StateQuery):
            raise ProtocolViolation(
                f"A {_kind(found)} command is in the partition for reports of consumers."
            )
        if isinstance(found, MemberRate):
            self._members[found.member] = time.monotonic(), found
            return None
        if isinstance(found, PlanOrder):
            self._orders.append(found)
            return None
        return found

    def close(self) -> None:
        """Closes the client and removes the exported rates."""
        for gauge in _EXPORTED:
            gauge.read_from(None)
        self._consumer.close()


def _kind(command: Command) -> str:
    return type(command).__name__.lower()


def newest_rates(config: GroupConfig, *, within_s: float = 2.0) -> NewestRates:
    """The newest published rates, as far as they can be read within that time."""
    measured, deadline = NewestRates(), time.monotonic() + within_s
    with closing(ControllerInbox(config, control=False)) as inbox:
        while time.monotonic() < deadline:
            _, measured = inbox.poll(measured)
    return measured
