"""The monitor: samples log sizes and offsets at a fixed period and publishes them as telemetry.

Why      Two log sizes of a partition on its leader give its write rate in stored bytes, without
         a plug-in on the brokers. The monitor only samples; Spark computes the rates.
Promise  One record per topic and sample (`model/telemetry.py`), all with the id of the sample. Its
         time is when the sizes were requested. Unknown values are null. Broker outages and deleted
         topics do not stop it. Sample times do not drift. If samples are slow, the period is a
         multiple of the requested one (`sample_interval.py`).
Cost     Per sample one metadata request, one log-dir and one offset request per leading broker (two
         every `BEGIN_OFFSETS_S`), and one lookup and one request per coordinator.
Paper    Landau et al., the monitor process. Differs: samples go to a topic, and include offsets.
"""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from trimtab.errors import TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.publisher import RecordPublisher
from trimtab.kafka.snapshot import internal_topics, with_sizes
from trimtab.measure.rate_metrics import show_sample
from trimtab.measure.sample_interval import SampleInterval
from trimtab.model.cluster import Replicas, TopicPartition
from trimtab.model.telemetry import TelemetrySample, telemetry_records
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

BEGIN_OFFSETS_S = 10.0
"""How old the first offset of a partition may be: it changes only when segments are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorScope:
    """What is sampled: topics by name or pattern, else all; groups by name, else all.

    Kafka's own topics and those of Trimtab are sampled only if named.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    groups: tuple[str, ...] | None = None
    own_prefix: str = "trimtab."

    def wanted(self, names: Collection[str]) -> frozenset[str]:
        """Those of all topics that are sampled."""
        own = internal_topics(names, own_prefix=self.own_prefix)
        return frozenset(n for n in names if n in self.topics or (n not in own and self._fits(n)))

    def _fits(self, topic: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return not self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorReport:
    """Counts of a monitor so far; `failed` are records that were not acknowledged."""

    samples: int
    skipped: int
    published: int
    failed: int


class Publisher(Protocol):
    """Publishes telemetry."""

    published: int
    failed: int

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Queues a record; never raises and never waits for a broker."""
        ...

    def flush(self) -> None:
        """Waits for records in flight, up to a time limit."""
        ...


class Monitor:
    """Samples a cluster at a fixed interval until it is stopped."""

    def __init__(
        self,
        admin: Admin,
        publisher: Publisher,
        interest: MonitorScope,
        *,
        topic: str,
        interval: SampleInterval,
        clock: Callable[[], int] = wall_clock_us,
        stopwatch: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._admin = admin
        self._publisher = publisher
        self._interest = interest
        self._topic = topic
        self._interval = interval
        self._clock = clock
        self._stopwatch = stopwatch
        self._new_id = new_id
        self._cluster: str | None = None
        self._begins: dict[TopicPartition, int] = {}
        self._begins_until = -math.inf
        self._samples = 0
        self._skipped = 0
        self._newest_ts: int | None = None
        metrics.monitor_freshness_seconds.read_from(lambda: {(): self._age_s()})
        metrics.monitor_interval_seconds.read_from(lambda: {(): self.interval_s})

    @property
    def report(self) -> MonitorReport:
        """The counts so far."""
        return MonitorReport(
            samples=self._samples,
            skipped=self._skipped,
            published=self._publisher.published,
            failed=self._publisher.failed,
        )

    @property
    def interval_s(self) -> float:
        """The time between two samples: the period, or a multiple of it if samples are slow."""
        return self._interval.seconds

    def run(self, stop: threading.Event, *, for_s: float | None = None) -> MonitorReport:
        """Samples until `stop` is set or `for_s` seconds have passed, then flushes."""
        start = time.monotonic()
        end = math.inf if for_s is None else start + for_s
        due = start
        while not stop.wait(max(0.0, min(due, end) - time.monotonic())):
            if due >= end:
                break
            self.step()
            due = next_sample_time(start, self.interval_s, time.monotonic())
        self._publisher.flush()
        return self.report

    def step(self) -> None:
        """Takes one sample and publishes it; a sample that fails is skipped."""
        start = self._stopwatch()
        try:
            sample = self.sample()
        except TrimtabError as error:
            self._skipped += 1
            log.warning("sample_skipped", why=error.message)
            return
        for key, value in telemetry_records(sample):
            self._publisher.publish(self._topic, key, value)
        self._samples += 1
        self._newest_ts = sample.ts
        show_sample(sample.partitions, sample.committed)
        took_s = self._stopwatch() - start
        log.info(
            "sample_taken",
            sample=sample.id,
            partitions=len(sample.partitions),
            took_s=round(took_s, 3),
        )
        self._adapt(took_s)

    def _adapt(self, took_s: float) -> None:
        """Samples less often when samples take longer than the interval, and says so."""
        before, self._interval = self._interval, self._interval.after(took_s)
        if self._interval.multiple == before.multiple:
            return
        longer = self._interval.multiple > before.multiple
        why = f"samples take {'longer' if longer else 'less'}, the last one {took_s:.2g} s"
        told: dict[str, object] = {"from_s": before.seconds, "to_s": self.interval_s, "why": why}
        if longer and self._interval.is_too_long:
            told["hint"] = (
                f"Rates over {self._interval.window_s:g} s are incomplete at this interval: sample "
                f"fewer topics, or set measure.window_s to {self._interval.least_window_s:g}."
            )
        log.warning("sample_interval_changed", **told)

    def _age_s(self) -> float | None:
        """Age of the newest sample; None if there is none."""
        ts = self._newest_ts
        return None if ts is None else (self._clock() - ts) / 1e6

    def sample(self) -> TelemetrySample:
        """Takes one sample."""
        interest = self._interest
        if self._cluster is None:
            self._cluster = self._admin.cluster().cluster
        by_name = interest.topics and interest.pattern is None
        placed = self._admin.topics(interest.topics if by_name else None)
        names = interest.wanted({p.topic for p in placed})
        wanted = tuple(p for p in placed if p.topic in names)
        groups = self._admin.group_names() if interest.groups is None else interest.groups
        committed = self._admin.committed(groups)
        ts = self._clock()
        return TelemetrySample(
            id=self._new_id(),
            ts=ts,
            cluster=self._cluster,
            partitions=self._measured(wanted),
            committed=committed,
            named_groups=interest.groups or (),
        )

    def _measured(self, wanted: tuple[Replicas, ...]) -> tuple[Replicas, ...]:
        """The partitions with sizes and offsets; first offsets are requested once in a while."""
        now = self._stopwatch()
        if now >= self._begins_until:
            self._begins, self._begins_until = {}, now + BEGIN_OFFSETS_S
        measured = with_sizes(self._admin, wanted, begins=self._begins)
        self._begins = {p.name: p.begin_offset for p in measured if p.begin_offset is not None}
        return measured


def next_sample_time(start: float, period: float, now: float) -> float:
    """The first sample time after `now`; sample times are whole periods after `start`.

    >>> next_sample_time(100.0, 1.0, 100.3), next_sample_time(100.0, 1.0, 103.9)
    (101.0, 104.0)
    """
    return start + (math.floor((now - start) / period) + 1) * period


@contextmanager
def open_monitor(
    cluster: Cluster,
    *,
    interest: MonitorScope,
    period_s: float = 1.0,
    window_s: float | None = None,
) -> Iterator[Monitor]:
    """A monitor of a real cluster; its telemetry topic must exist."""
    publisher = RecordPublisher(cluster, client_id="trimtab-monitor", linger_ms=5)
    # A broker that does not answer delays by at most one period.
    with cluster.admin(patience_s=max(period_s, 0.5)) as admin:
        yield Monitor(
            admin,
            publisher,
            interest,
            topic=cluster.topics.telemetry,
            interval=SampleInterval(period_s=period_s, window_s=window_s),
        )


@contextmanager
def in_background(monitor: Monitor) -> Iterator[Monitor]:
    """Runs a monitor in its own thread while the block runs; it is flushed at the end."""
    stop = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="trimtab-monitor") as thread:
        running = thread.submit(monitor.run, stop)
        try:
            yield monitor
        finally:
            stop.set()
            running.result()
