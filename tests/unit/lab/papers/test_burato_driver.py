"""What a run's records come to, with a producer that acknowledges by a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from trimtab_lab.papers.burato.kafka.driver import open_loop, saturate

LEADERS = {0: 1, 1: 2, 2: 2}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Message:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition


class FakeSender:
    """Round robin; a record is acknowledged `delay_s` after it was sent, by its partition."""

    def __init__(self, clock: Clock, *, delay_s: dict[int, float], room: int = 10**9) -> None:
        self.clock, self.delay_s, self.room = clock, delay_s, room
        self.waiting: deque[tuple[float, Callable[[Any, Any], None], int]] = deque()
        self.sent = 0
        self.purged = False

    def produce(self, topic: str, value: bytes, *, on_delivery: Callable[[Any, Any], None]) -> None:
        if len(self.waiting) >= self.room:
            raise BufferError
        partition = self.sent % 3
        self.sent += 1
        self.waiting.append((self.clock.now + self.delay_s[partition], on_delivery, partition))

    def poll(self, timeout: float) -> int:
        self.clock.now += max(timeout, 1e-4)
        ready = [entry for entry in self.waiting if entry[0] <= self.clock.now]
        self.waiting = deque(entry for entry in self.waiting if entry[0] > self.clock.now)
        for _, told, partition in ready:
            told(None, Message(partition))
        return len(ready)

    def flush(self, timeout: float) -> int:
        while self.waiting:
            self.poll(0.01)
        return 0

    def purge(self) -> None:
        self.purged = True


class Slow(FakeSender):
    """A client that takes long for every record."""

    def produce(self, topic: str, value: bytes, *, on_delivery: Callable[[Any, Any], None]) -> None:
        self.clock.now += 0.004
        super().produce(topic, value, on_delivery=on_delivery)


class GivesUp(FakeSender):
    def flush(self, timeout: float) -> int:
        return 0


def sent_by_the_clock(sender: FakeSender, *, duration_s: float, rate: float) -> dict[str, Any]:
    """An open loop to the topic, by the sender's own clock."""
    return open_loop(
        sender,
        "U2",
        value_bytes=100,
        duration_s=duration_s,
        rate=rate,
        seed=1,
        leaders=LEADERS,
        clock=sender.clock,
    )


def test_an_open_loop_measures_from_the_time_a_record_was_due():
    clock = Clock()
    sender = FakeSender(clock, delay_s={0: 0.010, 1: 0.010, 2: 0.200})
    found = sent_by_the_clock(sender, duration_s=5.0, rate=300)
    assert found["p50_ms"] == pytest.approx(10, abs=3)
    assert found["p95_ms"] == pytest.approx(200, abs=3)
    assert found["failed"] == 0
    assert found["records"] == pytest.approx(0.8 * sender.sent, rel=0.05)
    assert found["broker_ratio"] == pytest.approx(4 / 3, rel=0.02)
    assert found["partition_ratio"] == pytest.approx(1.0, rel=0.02)


def test_what_was_never_acknowledged_counts_as_slow_not_as_nothing():
    clock = Clock()
    sender = GivesUp(clock, delay_s={0: 0.010, 1: 0.010, 2: 1e9})
    found = sent_by_the_clock(sender, duration_s=3.0, rate=300)
    assert found["failed"] == pytest.approx(found["records"] / 2, rel=0.1)
    assert found["p95_ms"] > 500


def test_a_full_buffer_holds_records_and_the_wait_is_in_their_latency():
    clock = Clock()
    sender = FakeSender(clock, delay_s=dict.fromkeys(range(3), 0.1), room=10)
    found = sent_by_the_clock(sender, duration_s=2.0, rate=500)
    assert found["held"] > 0.5
    assert found["late"] == 0.0
    assert found["p95_ms"] > 1000
    assert found["failed"] == 0


def test_a_slow_client_makes_records_late_and_not_held():
    clock = Clock()
    found = sent_by_the_clock(
        Slow(clock, delay_s=dict.fromkeys(range(3), 0.01)), duration_s=2.0, rate=500
    )
    assert found["late"] > 0.5
    assert found["held"] == 0.0


def test_a_saturating_run_counts_what_was_acknowledged_after_the_warm_up():
    clock = Clock()
    sender = FakeSender(clock, delay_s=dict.fromkeys(range(3), 0.1), room=100)
    found = saturate(sender, "U2", value_bytes=2**20, duration_s=5.0, leaders=LEADERS, clock=clock)
    assert found["records_s"] == pytest.approx(1000, rel=0.1)
    assert found["mb_s"] == pytest.approx(found["records_s"])
    assert sender.purged
