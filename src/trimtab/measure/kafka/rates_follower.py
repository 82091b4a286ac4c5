"""Follows the rates topic, so that the driver can show rates which executors have published.

Only the time of a record is read as it comes; the rest is read when metrics are scraped.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import structlog
from confluent_kafka import OFFSET_END, Consumer
from confluent_kafka import TopicPartition as Place

from trimtab.errors import TrimtabError
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.model.control_codec import topic_rates_from
from trimtab.model.json_reader import parse
from trimtab.model.rate_parts import RateParts
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.observe.metrics import Series

log = structlog.get_logger()

_TIME = re.compile(rb'"ts": ?(\d+)')
_PART = re.compile(rb'"part": ?(\d+)')
_KEPT_US = 60 * MICROS
"""A topic without newer rates is not measured any more."""


class RatesFollower:
    """The newest record of each topic, as Prometheus metrics; `records` counts all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rates-follower", daemon=True)
        self._newest: dict[tuple[bytes, bytes], tuple[int, bytes]] = {}
        self._newest_ts = 0
        self.records = 0

    def start(self) -> None:
        """Starts to follow, and shows what comes."""
        metrics.measure_freshness_seconds.labels("rates").set_function(self.age_s)
        metrics.measure_partition_bytes_per_second.read_from(lambda: self._show("bytes_s"))
        metrics.measure_partition_records_per_second.read_from(lambda: self._show("records_s"))
        metrics.measure_group_lag_seconds.read_from(self._lags)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def age_s(self) -> float:
        """Age of the newest sample whose rates were published."""
        ts = self._newest_ts
        return (wall_clock_us() - ts) / MICROS if ts else float("nan")

    def take(self, key: bytes, value: bytes) -> None:
        """Keeps a record in place of the one before, if it is not older."""
        found = _TIME.search(value, 0, 200)
        if found is None:
            return
        self.records += 1
        part, ts = _PART.search(value, 0, 1000), int(found[1])
        self._newest_ts = max(self._newest_ts, ts)
        place = (key, part[1] if part else b"")
        if place not in self._newest:
            self._forget_old()
        if ts >= self._newest.get(place, (0, b""))[0]:
            self._newest[place] = (ts, value)

    def _forget_old(self) -> None:
        """Removes topics that are not measured any more."""
        oldest = self._newest_ts - _KEPT_US
        self._newest = {place: kept for place, kept in self._newest.items() if kept[0] >= oldest}

    def rates(self) -> Iterator[TopicRates]:
        """The newest complete rates of each topic that is still measured."""
        parts, found = RateParts(), dict[str, TopicRates]()
        oldest = self._newest_ts - _KEPT_US
        for (key, _), (ts, value) in sorted(self._newest.copy().items(), key=lambda kept: kept[1]):
            if ts < oldest:
                continue
            try:
                read = topic_rates_from(parse(value, origin=key.decode(errors="replace")))
            except TrimtabError:
                continue
            whole = parts.joined(read)
            if whole is not None:
                found[whole.topic] = whole  # of a topic that had more parts, older ones are left
        yield from found.values()

    def _show(self, what: str) -> Series:
        return {
            (name.topic, str(name.partition)): getattr(rate, what)
            for rates in self.rates()
            for name, rate in _fresh(rates)
        }

    def _lags(self) -> Series:
        return {
            (group, name.topic, str(name.partition)): seconds
            for rates in self.rates()
            for name, rate in _fresh(rates)
            for group, seconds in rate.lag_s.items()
        }

    def _run(self) -> None:
        settings = {"group.id": "trimtab-rates-follower", "enable.auto.commit": False}
        while not self._stop.is_set():
            try:
                with kafka_errors("following the rates"):
                    consumer = self._cluster.consumer("trimtab-rates-follower", settings)
                    try:
                        self._follow(consumer)
                    finally:
                        consumer.close()
            except TrimtabError as error:
                log.warning("rates_not_followed", why=error.message)
                self._stop.wait(5.0)

    def _follow(self, consumer: Consumer) -> None:
        consumer.assign([Place(self._cluster.topics.rates, 0, OFFSET_END)])
        while not self._stop.is_set():
            message = consumer.poll(POLL_SLICE_S)
            if message is not None and message.error() is None:
                self.take(message.key() or b"", message.value() or b"")


def _fresh(rates: TopicRates) -> Iterator[tuple[TopicPartition, PartitionRate]]:
    for number, rate in rates.partitions.items():
        if not rate.stale:
            yield TopicPartition(rates.topic, number), rate
