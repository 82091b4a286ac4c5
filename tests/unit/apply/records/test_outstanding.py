"""What is under way: queues in batches, and brokers that say nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.plan.records.leaders import LeaderSnapshot


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(clock: Clock) -> OutstandingBytes:
    under_way = OutstandingBytes(stuck_after_s=2.0, clock=clock)
    under_way.follow(lambda: LeaderSnapshot({"t": {0: 1, 1: 1, 2: 2}, "gone": {0: -1}}))
    return under_way


def test_a_queue_is_counted_in_batches_begun() -> None:
    under_way = OutstandingBytes(batch_bytes=100)
    for partition, size in [(0, 100), (1, 101), (2, 1)]:
        under_way.sent("t", partition, size)
    under_way.done("t", 2, 1)

    assert under_way.queues("t") == {0: 1, 1: 2, 2: 0}
    assert under_way.queues("other") == {}


def test_threads_do_not_lose_a_byte() -> None:
    under_way = OutstandingBytes(batch_bytes=1)

    def send_and_acknowledge(_: int) -> None:
        for _ in range(2000):
            under_way.sent("t", 0, 3)
            under_way.done("t", 0, 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send_and_acknowledge, range(4)))

    assert under_way.queues("t") == {0: 8000}


def test_a_broker_is_stuck_when_none_of_its_partitions_moves() -> None:
    clock = Clock()
    under_way = watched(clock)
    for partition in (0, 1, 2):
        under_way.sent("t", partition, 10)
        under_way.sent("t", partition, 10)
    clock.now = 2.0
    assert under_way.stuck() == frozenset()

    under_way.done("t", 1, 10)
    clock.now = 2.1
    assert under_way.stuck() == {2}

    under_way.done("t", 2, 20)
    assert under_way.stuck() == frozenset()


def test_a_broker_that_just_acknowledged_another_partition_is_not_stuck() -> None:
    clock = Clock()
    under_way = watched(clock)
    under_way.sent("t", 0, 10)
    under_way.sent("t", 1, 10)
    clock.now = 2.5
    assert under_way.stuck() == {1}
    under_way.done("t", 1, 10)
    clock.now = 2.6

    assert under_way.stuck() == frozenset()


def test_what_was_only_just_sent_is_no_sign_of_life() -> None:
    clock = Clock()
    under_way = watched(clock)
    under_way.sent("t", 0, 10)
    clock.now = 1.9
    under_way.sent("t", 1, 10)
    clock.now = 2.1

    assert under_way.stuck() == {1}


@pytest.mark.parametrize("stuck_after_s", [None, 2.0])
def test_what_nobody_asks_for_is_not_kept_for_ever(stuck_after_s: float | None) -> None:
    under_way = OutstandingBytes(batch_bytes=1, stuck_after_s=stuck_after_s)
    for _ in range(50_000):
        under_way.sent("t", 0, 3)
        under_way.done("t", 0, 2)

    place = under_way.place("t", 0)
    assert len(getattr(place, "_timed", place._entries)) <= 1001
    assert under_way.queues("t") == {0: 50_000}


def test_a_pause_without_records_is_no_silence() -> None:
    clock = Clock()
    under_way = watched(clock)
    under_way.sent("t", 2, 10)
    under_way.done("t", 2, 10)

    clock.now = 100.0
    under_way.sent("t", 2, 10)

    assert under_way.stuck() == frozenset()


def test_what_nobody_leads_makes_nobody_stuck() -> None:
    clock = Clock()
    under_way = watched(clock)
    under_way.sent("gone", 0, 10)
    under_way.sent("never-seen", 0, 10)

    clock.now = 100.0

    assert under_way.stuck() == frozenset()


def test_nobody_is_stuck_unless_it_was_asked_for() -> None:
    clock = Clock()
    under_way = OutstandingBytes(clock=clock)
    under_way.follow(lambda: LeaderSnapshot({"t": {0: 1}}))
    under_way.sent("t", 0, 10)

    clock.now = 1e6

    assert under_way.stuck() == frozenset()
