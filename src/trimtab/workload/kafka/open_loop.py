"""Sends records when they are due, through a producer that is given.

Promise  Open loop: the schedule follows the clock, not the acknowledgements. Every record is sent
         when due or, if the client's queue is full or the machine too slow, as soon as possible,
         and then counts as late; none is dropped. Latency runs from due time to acknowledgement.
Headers of each record: `tt-seq` (its number in its key, or in its partition if it has no key) and
`tt-ts` (due time, microseconds since 1970; also its timestamp): 8 bytes, big-endian, signed.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from numpy.typing import NDArray

from trimtab.observe.clock import wall_clock_us
from trimtab.workload.due import Acks, DueRecords, SequenceNumbers
from trimtab.workload.kafka.sent_blocks import BlockInFlight, LoadTally
from trimtab.workload.load_summary import Ack, LoadProgress, LoadSummary
from trimtab.workload.traces import SentRecords

_CHUNK_RECORDS = 500  # between two checks of the clock and the acknowledgements
_LEAST_WAIT_S = 0.001  # the client waits for whole milliseconds
_LONGEST_WAIT_S = 0.1  # so that a stop takes effect soon


class RecordProducer(Protocol):
    """The methods needed of a producer: confluent-kafka's, or a fake in tests."""

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes | None,
        partition: int,
        on_delivery: Callable[[Any, Any], None],
        timestamp: int,
        headers: dict[str, str | bytes | None],
    ) -> None:
        """Queues a record; raises BufferError if the queue is full."""
        ...

    def poll(self, timeout: float) -> int:
        """Waits for acknowledgements up to `timeout` seconds, and runs their callbacks."""
        ...

    def flush(self, timeout: float) -> int:
        """Waits until no record is in flight; returns the number still in flight."""
        ...


def send_through(  # noqa: PLR0913 - independent options
    producer: RecordProducer,
    blocks: Iterable[DueRecords],
    *,
    topic: str,
    acks: Acks = Acks.ALL,
    seed: int = 0,
    late_after_s: float = 0.1,
    duration_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    now_ts: Callable[[], int] = wall_clock_us,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_ack: Callable[[Ack], None] | None = None,
    record: Callable[[SentRecords], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadSummary:
    """Like `send`, with an existing producer; it waits only inside the producer's methods."""
    coming = iter(blocks)
    first = list(islice(coming, 1))  # prepared before the clock starts
    run = _Run(
        producer=producer,
        topic=topic,
        clock=clock,
        stop=stop or threading.Event(),
        tally=LoadTally(clock=clock, late_after_s=late_after_s, on_ack=on_ack, record=record),
        on_progress=on_progress,
        values=_Values(seed),
        started_ts=now_ts(),
    )
    unsent = 0
    for block in chain(first, coming):
        sent = run.send(block)
        if sent < len(block):
            unsent = _unsent(block, sent, coming, run)
            break
    ended = run.now
    run.deliver()
    return _summary(run, acks, ended=ended, unsent=unsent, duration_s=duration_s)


def _unsent(block: DueRecords, sent: int, coming: Iterator[DueRecords], run: _Run) -> int:
    """How many records were due when sending stopped, in this block and in later ones."""
    unsent = _due_by(block, run.now, skip=sent)
    while unsent and (later := next(coming, None)) is not None:
        if not (more := _due_by(later, run.now)):
            break
        unsent += more
    return unsent


def _summary(
    run: _Run, acks: Acks, *, ended: float, unsent: int, duration_s: float | None
) -> LoadSummary:
    tally = run.tally
    whole = duration_s if duration_s is not None else run.last_due_s
    interrupted = run.stop.is_set()
    span = min(whole, ended) if interrupted or run.fatal else whole
    asked = run.sent + unsent
    return LoadSummary(
        asked=asked,
        sent=run.sent,
        acknowledged=None if acks is Acks.NONE else tally.acknowledged,
        failed=tally.failed,
        asked_rate=_rate(asked, span),
        achieved_rate=_rate(run.sent, max(span, run.last_sent_s)),
        duration_s=span,
        late=tally.late,
        late_after_ms=tally.late_after_s * 1000,
        max_late_ms=tally.max_late_s * 1000,
        queue_full_s=run.queue_full_s,
        latency_p50_ms=None if acks is Acks.NONE else tally.latencies.percentile_ms(50),
        latency_p99_ms=None if acks is Acks.NONE else tally.latencies.percentile_ms(99),
        failures=dict(sorted(tally.failures.items())),
        fatal=run.fatal,
        interrupted=interrupted,
    )


def _rate(records: int, span_s: float) -> float:
    return records / span_s if span_s > 0 else 0.0


def _due_by(block: DueRecords, time_s: float, *, skip: int = 0) -> int:
    """Returns how many records are due by a time, without the first `skip`."""
    return max(0, int(np.searchsorted(block.times_s, time_s, side="right")) - skip)


class _Prepared(NamedTuple):
    """A block ready to send: columns, since one object per record would slow garbage collection."""

    values: list[bytes]
    keys: list[bytes | None]
    partitions: list[int]
    callbacks: list[Callable[[Any, Any], None]]
    timestamps_ms: list[int]
    headers: list[dict[str, str | bytes | None]]


class _Run:
    """A running load."""

    def __init__(
        self,
        *,
        producer: RecordProducer,
        topic: str,
        clock: Callable[[], float],
        stop: threading.Event,
        tally: LoadTally,
        on_progress: Callable[[LoadProgress], None] | None,
        values: _Values,
        started_ts: int,
    ) -> None:
        self.stop = stop
        self.tally = tally
        self.sent = 0
        self.queue_full_s = 0.0
        self.last_due_s = 0.0
        self.last_sent_s = 0.0
        self.fatal: str | None = None
        self._producer = producer
        self._topic = topic
        self._on_progress = on_progress
        self._values = values
        self._numbering = SequenceNumbers()
        self._started_ts = started_ts
        self._clock = clock
        self._start = tally.start = clock()
        self._reported_s = -math.inf

    @property
    def now(self) -> float:
        """Seconds since the start of the load."""
        return self._clock() - self._start

    def send(self, block: DueRecords) -> int:
        """Sends a block, each record when due; returns how many were sent, fewer if stopped."""
        flight = self.tally.begin(block, self._numbering.of(block))
        records = self._prepared(block, flight)
        times = block.times_s.tolist()
        at, count = 0, len(times)
        while at < count and not self.stop.is_set() and self.fatal is None:
            now = self.now
            if times[at] > now:
                wait = min(max(times[at] - now, _LEAST_WAIT_S), _LONGEST_WAIT_S)
                self._producer.poll(wait)
            else:
                due = min(bisect_right(times, now, at), at + _CHUNK_RECORDS)
                reached = self._send_some(records, at, due, flight)
                now = self.now
                flight.sent_at[at:reached] = now
                self.sent += reached - at
                if reached > at:
                    self.last_sent_s = now
                at = reached
                if at < due and self.fatal is None:
                    self._wait_for_room()
                else:
                    self._producer.poll(0)
            self.tally.settle()
            self._report_progress(max(0.0, now - times[min(at, count - 1)]))
        self.last_due_s = times[-1] if at == count else self.now
        flight.close(sent=at)
        return at

    def deliver(self) -> None:
        """Waits until every record is acknowledged or has failed."""
        while self._producer.flush(_LONGEST_WAIT_S):
            self._report_progress(0.0)
        self.tally.settle()
        self._report_progress(0.0, always=True)

    def _send_some(self, records: _Prepared, first: int, end: int, flight: BlockInFlight) -> int:
        """Queues records until `end`; returns the index of the first that did not fit the queue."""
        produce, topic = self._producer.produce, self._topic
        at = first
        for value, key, partition, callback, timestamp, headers in zip(
            *(column[first:end] for column in records), strict=True
        ):
            try:
                produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    on_delivery=callback,
                    timestamp=timestamp,
                    headers=headers,
                )
            except BufferError:
                return at
            except KafkaException as error:
                cause = error.args[0]
                flight.delivered(at, cause, None)
                if cause.fatal() or cause.code() == KafkaError._FATAL:
                    self.fatal = cause.str()
                    return at + 1
            at += 1
        return end

    def _wait_for_room(self) -> None:
        since = self._clock()
        self._producer.poll(_LEAST_WAIT_S)
        self.queue_full_s += self._clock() - since

    def _prepared(self, block: DueRecords, flight: BlockInFlight) -> _Prepared:
        due_ts = self._started_ts + np.rint(block.times_s * 1e6).astype(np.int64)
        numbers = np.array([number or 0 for number in flight.numbers], dtype=np.int64)
        return _Prepared(
            values=self._values.of(block),
            keys=list(block.each_key()),
            partitions=list(block.each_partition()),
            callbacks=[partial(flight.delivered, at) for at in range(len(block))],
            timestamps_ms=(due_ts // 1000).tolist(),
            headers=[
                {"tt-ts": ts} if number is None else {"tt-seq": seq, "tt-ts": ts}
                for number, seq, ts in zip(
                    flight.numbers, _eight_bytes(numbers), _eight_bytes(due_ts), strict=True
                )
            ],
        )

    def _report_progress(self, behind_s: float, *, always: bool = False) -> None:
        now = self.now
        if self._on_progress is None or not (always or now - self._reported_s >= _LONGEST_WAIT_S):
            return
        self._reported_s = now
        tally = self.tally
        self._on_progress(LoadProgress(now, self.sent, tally.acknowledged, tally.failed, behind_s))


def _eight_bytes(numbers: NDArray[np.int64]) -> list[bytes]:
    """Returns each number as 8 bytes, big-endian, signed."""
    raw = numbers.astype(">i8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


class _Values:
    """Record values: slices of one seeded buffer."""

    __slots__ = ("_buffer", "_pieces", "_rng")
    _PIECES = 64

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._buffer = b""
        self._pieces: list[bytes] = []

    def of(self, block: DueRecords) -> list[bytes]:
        """Returns a value for every record."""
        size = block.value_bytes
        if isinstance(size, int):
            if not self._pieces or len(self._pieces[0]) != size:
                self._pieces = self._cut([size] * self._PIECES)
            return list(islice(cycle(self._pieces), len(block)))
        return self._cut(size.tolist())

    def _cut(self, sizes: list[int]) -> list[bytes]:
        if (missing := max(sizes, default=0) + self._PIECES - len(self._buffer)) > 0:
            self._buffer += self._rng.bytes(missing)
        buffer, starts = self._buffer, cycle(range(self._PIECES))
        return [buffer[at : at + size] for at, size in zip(starts, sizes, strict=False)]
