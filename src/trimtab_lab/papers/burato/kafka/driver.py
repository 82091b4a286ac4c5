"""Sends one run's records, as fast as possible or at given times, and measures each of them.

Promise  Latency is from the time a record was due to its acknowledgement, so lateness is included.
         Records not acknowledged at the end count as failed, with their latency up to then. The
         first part of a run is discarded: figures cover records due, or acknowledged, after it.
         All percentiles are from one sample set. Late records are *held* if the buffer was full
         (until all that waited for it were sent), otherwise *late* because of the client.
Cost     About 5 µs of one core per record; two numbers per record in memory.
"""

from __future__ import annotations

import gc
import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.model.cluster import TopicPartition
from trimtab.observe.clock import TimedOut, wait_until
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.ratios import ratios
from trimtab_lab.papers.burato.design import WARM_UP

LATE_S = 0.02
"""A record sent this long after its due time counts as held or late."""

_CHUNK = 200
_WAIT_S = 0.001
_DRAINED_WITHIN_S = 60.0
MIB = 2**20
_IT = "it"  # the only topic of a run


class Sender(Protocol):
    """The methods that are needed of a producer."""

    def produce(
        self, topic: str, value: bytes, *, on_delivery: Callable[[Any, Any], None]
    ) -> object:
        """Queues a record; raises BufferError when the queue is full."""
        ...

    def poll(self, timeout: float) -> int:
        """Waits up to `timeout` seconds for acknowledgements, and calls their callbacks."""
        ...

    def flush(self, timeout: float) -> int:
        """Waits until no records are in flight; returns how many still are."""
        ...

    def purge(self) -> None:
        """Drops what is queued and was not sent yet."""
        ...


def saturate(
    sender: Sender,
    topic: str,
    *,
    value_bytes: int,
    duration_s: float,
    leaders: Mapping[int, int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Sends as fast as the client's buffer empties; counts acknowledged records."""
    value = bytes(value_bytes)
    counted: Counter[int] = Counter()
    failed = 0
    measuring = False

    def acked(error: Any, message: Any) -> None:
        nonlocal failed
        if error is not None:
            failed += measuring
        elif measuring:
            counted[message.partition()] += 1

    with _without_garbage_collection():
        start = clock()
        begin, end = start + WARM_UP * duration_s, start + duration_s
        began = begin
        while (now := clock()) < end:
            if not measuring and now >= begin:
                measuring, began = True, now
            for _ in range(_CHUNK):
                try:
                    sender.produce(topic, value, on_delivery=acked)
                except BufferError:
                    sender.poll(_WAIT_S)
                    break
            sender.poll(0)
        measuring, span_s = False, now - began
        sender.purge()
        _drained(sender)
    records = counted.total()
    return {
        "records": records,
        "records_s": records / span_s,
        "mb_s": records * value_bytes / span_s / MIB,
        "failed": failed,
        "held": 0.0,
        "late": 0.0,
        **_balance(counted, leaders, value_bytes),
    }


def open_loop(
    sender: Sender,
    topic: str,
    *,
    value_bytes: int,
    duration_s: float,
    rate: float,
    seed: int,
    leaders: Mapping[int, int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Sends each record when it is due, with Poisson arrivals, independently of the brokers."""
    times = arrivals(rate, duration_s, seed=seed)
    due, count = times.tolist(), len(times)
    sent_s, acked_s = [math.nan] * count, [math.nan] * count
    went = [-1] * count
    waited = [False] * count
    full_from = math.inf  # records that become due after the buffer is full are held by it
    value = bytes(value_bytes)

    with _without_garbage_collection():
        start = clock()

        def acked(at: int, error: Any, message: Any) -> None:
            if error is None:
                acked_s[at] = clock() - start
                went[at] = message.partition()

        at = 0
        while at < count:
            now = clock() - start
            if due[at] > now:
                sender.poll(min(_WAIT_S, due[at] - now))
                continue
            until = min(bisect_right(due, now, at), at + _CHUNK)
            while at < until:
                try:
                    sender.produce(topic, value, on_delivery=partial(acked, at))
                except BufferError:
                    full_from = min(full_from, now - LATE_S)
                    sender.poll(_WAIT_S)
                    break
                sent_s[at] = now
                waited[at] = due[at] >= full_from
                if now - due[at] <= LATE_S:
                    full_from = math.inf
                at += 1
            sender.poll(0)
        _drained(sender)
        over_s = clock() - start
    return _delays(
        times,
        *(np.array(each) for each in (sent_s, acked_s, went, waited)),
        over_s=over_s,
        duration_s=duration_s,
        value_bytes=value_bytes,
        leaders=leaders,
    )


def arrivals(rate: float, duration_s: float, *, seed: int) -> NDArray[np.float64]:
    """The times of a Poisson stream from 0 to `duration_s`, at least one.

    >>> len(arrivals(1000.0, 10.0, seed=1))
    10003
    """
    rng = np.random.default_rng(seed)
    count = max(1, int(rng.poisson(rate * duration_s)))
    return np.sort(rng.uniform(0.0, duration_s, count))


def _delays(  # noqa: PLR0913 - one array per property of a record
    due: NDArray[np.float64],
    sent: NDArray[np.float64],
    acked: NDArray[np.float64],
    went: NDArray[np.int64],
    waited: NDArray[np.bool_],
    *,
    over_s: float,
    duration_s: float,
    value_bytes: int,
    leaders: Mapping[int, int],
) -> dict[str, Any]:
    """The figures of an open loop, over all records that were due after the warm-up."""
    kept = due >= WARM_UP * duration_s
    here = kept & ~np.isnan(acked)
    records = int(np.count_nonzero(here))
    failed = int(np.count_nonzero(kept)) - records
    delays_ms = 1000 * (np.where(np.isnan(acked), over_s, acked) - due)[kept]
    quantiles = np.quantile(delays_ms, (0.5, 0.95, 0.99, 0.999), method="inverted_cdf")
    span_s = (1 - WARM_UP) * duration_s
    after = (sent - due > LATE_S)[kept]
    counted = Counter(went[here].tolist())
    return {
        "records": records,
        "records_s": records / span_s,
        "mb_s": records * value_bytes / span_s / MIB,
        "failed": failed,
        "held": float(np.mean(after & waited[kept])),
        "late": float(np.mean(after & ~waited[kept])),
        "mean_ms": float(delays_ms.mean()),
        "max_ms": float(delays_ms.max()),
        **dict(
            zip(
                ("p50_ms", "p95_ms", "p99_ms", "p999_ms"),
                (float(q) for q in quantiles),
                strict=True,
            )
        ),
        **_balance(counted, leaders, value_bytes),
    }


def _balance(
    counted: Mapping[int, int], leaders: Mapping[int, int], value_bytes: int
) -> dict[str, Any]:
    """Bytes by broker and by partition, and the ratio of maximum to mean for each."""
    by_partition = {p: counted.get(p, 0) * value_bytes for p in sorted(leaders)}
    by_broker: dict[int, int] = {}
    for partition, amount in by_partition.items():
        broker = leaders[partition]
        by_broker[broker] = by_broker.get(broker, 0) + amount
    found = ratios(
        {TopicPartition(_IT, partition): amount for partition, amount in by_partition.items()},
        LeaderSnapshot({_IT: leaders}),
    )
    return {
        "by_broker": {str(broker): by_broker[broker] for broker in sorted(by_broker)},
        "by_partition": {str(partition): amount for partition, amount in by_partition.items()},
        "broker_ratio": found.brokers,
        "partition_ratio": found.partitions,
    }


def _drained(sender: Sender) -> None:
    with suppress(TimedOut):
        wait_until(lambda: not sender.flush(0.5), within_s=_DRAINED_WITHIN_S, every_s=0.0)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disables garbage collection while the block runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
