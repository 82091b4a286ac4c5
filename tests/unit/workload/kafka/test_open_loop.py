"""Open-loop sending, with a clock moved by hand and a producer that does as it is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab.errors import ConfigError
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep, Unit
from trimtab.workload import due
from trimtab.workload.due import Acks, DueRecords, SequenceNumbers
from trimtab.workload.kafka.load import Delivery
from trimtab.workload.kafka.open_loop import send_through
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab.workload.load_summary import Ack, LoadProgress
from trimtab.workload.rate_streams import RateSchedule
from trimtab.workload.traces import SentRecords

STARTED_TS = 1_700_000_000_000_000


class Clock:
    """Seconds that pass only when somebody waits."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Message:
    at: int
    where: int

    def partition(self) -> int:
        return self.where

    def offset(self) -> int:
        return self.at


@dataclass
class FakeProducer:
    """Acknowledges `acks_per_poll` records at a poll that waits, and all of them at a flush."""

    clock: Clock
    room: int = 10**9
    acks_per_poll: int = 10**9
    fails: dict[int, KafkaError] = field(default_factory=dict)
    refuses: dict[int, KafkaError] = field(default_factory=dict)
    newest_first: bool = False
    flush_s: float = 0.0
    taken: list[dict[str, Any]] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def produce(self, topic, **record):
        if len(self.waiting) >= self.room:
            raise BufferError
        at = len(self.taken)
        self.taken.append({"topic": topic, **record})
        self.times_s.append(self.clock.now - 50.0)
        if at in self.refuses:
            raise KafkaException(self.refuses[at])
        self.waiting.append(at)

    def poll(self, timeout):
        self.clock.now += timeout
        return self._acknowledge(self.acks_per_poll) if timeout else 0

    def flush(self, timeout):
        self.clock.now += self.flush_s
        self._acknowledge(len(self.waiting))
        return len(self.waiting)

    def _acknowledge(self, count):
        some, self.waiting = self.waiting[:count], self.waiting[count:]
        for at in reversed(some) if self.newest_first else some:
            record = self.taken[at]
            message = Message(at, max(record["partition"], 0))
            record["on_delivery"](self.fails.get(at), message)
        return len(some)


def run(blocks, *, clock=None, producer=None, **more):
    clock = clock or Clock()
    producer = producer or FakeProducer(clock)
    more.setdefault("now_ts", lambda: STARTED_TS)
    summary = send_through(producer, blocks, topic="t", clock=producer.clock, **more)
    return producer, summary


def block(times_s, *, keys=None, partitions=None, value_bytes=10):
    return DueRecords(
        times_s=np.array(times_s, dtype=np.float64),
        keys=keys,
        partitions=None if partitions is None else np.array(partitions),
        value_bytes=value_bytes,
    )


def every(step_s, count, **more):
    return block(np.arange(count) * step_s, **more)


def headers(producer, name):
    return [
        int.from_bytes(value, "big", signed=True)
        for record in producer.taken
        for header, value in record["headers"].items()
        if header == name
    ]


# ---- the schedule -------------------------------------------------------------------------------


def test_no_record_is_sent_before_it_is_due_and_all_are_sent_soon_after():
    producer, summary = run([every(0.25, 8), block([2.0, 2.0, 7.5])])

    due_s = [*np.arange(8) * 0.25, 2.0, 2.0, 7.5]
    behind = np.array(producer.times_s) - due_s
    assert (behind >= 0).all()
    assert (behind <= 0.001 + 1e-9).all()
    assert (summary.asked, summary.sent, summary.late) == (11, 11, 0)
    assert summary.shortfall is None


def test_slow_acknowledgements_do_not_slow_the_arrivals():
    clock = Clock()
    silent = FakeProducer(clock, acks_per_poll=0, flush_s=30.0)

    producer, summary = run([every(0.01, 500)], producer=silent, duration_s=5.0)

    assert producer.times_s == pytest.approx(np.arange(500) * 0.01, abs=0.0011)
    assert summary.achieved_rate == summary.asked_rate == 100.0
    assert summary.acknowledged == 500
    assert summary.latency_p50_ms == pytest.approx(32_500, rel=0.01)


def test_a_full_queue_makes_records_late_but_loses_and_reorders_none():
    # due    |····| 400 at once, room for 50, and 10 acknowledged each millisecond
    # sent   |50|10|10|10|…|10|
    clock = Clock()
    narrow = FakeProducer(clock, room=50, acks_per_poll=10)
    keys = [b"%d" % at for at in range(400)]

    producer, summary = run([block([0.0] * 400, keys=keys)], producer=narrow, late_after_s=0.010)

    assert [record["key"] for record in producer.taken] == keys
    assert (summary.sent, summary.acknowledged, summary.failed) == (400, 400, 0)
    assert summary.max_late_ms == pytest.approx(35.0, abs=1.1)
    assert summary.late == 400 - 50 - 10 * 10
    assert summary.queue_full_s == pytest.approx(0.035, abs=0.0011)
    assert "fell 0.035 s behind" in (summary.shortfall or "")
    assert "queue was full" in (summary.shortfall or "")


def test_a_process_too_slow_for_its_schedule_says_so():
    clock = Clock()
    producer = FakeProducer(clock)
    hand_over = producer.produce

    def slowly(topic, **record):
        clock.now += 0.01
        hand_over(topic, **record)

    producer.produce = slowly  # type: ignore[method-assign]
    _, summary = run([every(0.001, 2000)], producer=producer, duration_s=2.0)

    assert summary.sent == 2000
    assert summary.asked_rate == 1000.0
    assert summary.achieved_rate == pytest.approx(100, rel=0.4)
    assert summary.queue_full_s == 0
    assert "could not send faster" in (summary.shortfall or "")


def test_a_stopped_load_delivers_what_is_under_way_and_asks_only_for_what_was_due():
    stop = threading.Event()

    def at_three(progress):
        if progress.time_s >= 3.0:
            stop.set()

    blocks = [every(0.5, 8), block(np.arange(4.0, 60.0))]
    producer, summary = run(blocks, stop=stop, on_progress=at_three, duration_s=60.0)

    assert summary.interrupted
    assert summary.asked == summary.sent == summary.acknowledged == 7
    assert summary.duration_s == pytest.approx(3.0, abs=0.11)
    assert len(producer.taken) == 7


def test_records_due_but_unsent_when_stopped_are_asked_for():
    clock, stop = Clock(), threading.Event()
    stuck = FakeProducer(clock, room=3, acks_per_poll=0)

    def later(progress):
        if progress.behind_s >= 1.0:
            stop.set()

    blocks = [block([0.0] * 5), block([0.5, 0.5]), block([90.0])]
    _, summary = run(blocks, producer=stuck, stop=stop, on_progress=later)

    assert (summary.asked, summary.sent, summary.acknowledged) == (7, 3, 3)


def test_progress_counts_up_to_what_the_summary_says():
    seen: list[LoadProgress] = []

    _, summary = run([every(0.05, 100)], on_progress=seen.append)

    times = [progress.time_s for progress in seen]
    assert times == sorted(times)
    assert len(seen) > 20
    assert (seen[-1].sent, seen[-1].acknowledged) == (summary.sent, summary.acknowledged)


# ---- what became of the records -----------------------------------------------------------------


def test_latency_runs_from_when_a_record_was_due():
    # first   |due, sent|──1 ms──|acknowledged|
    # second  |due|────no room───|sent|────4 ms────|acknowledged|
    clock = Clock()
    narrow = FakeProducer(clock, room=1, flush_s=0.004)

    _, summary = run([block([0.0, 0.0])], producer=narrow)

    assert summary.latency_p50_ms == pytest.approx(1.0, rel=0.01)
    assert summary.latency_p99_ms == pytest.approx(5.0, rel=0.01)


def test_failed_records_are_counted_by_reason_and_the_others_as_acknowledged():
    clock = Clock()
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    producer = FakeProducer(clock, fails={2: timed_out, 3: timed_out}, refuses={5: too_large})
    acks: list[Ack] = []

    _, summary = run([every(0.1, 9)], producer=producer, on_ack=acks.append)

    assert (summary.asked, summary.sent) == (9, 9)
    assert (summary.acknowledged, summary.failed) == (6, 3)
    assert summary.failures == {"MSG_SIZE_TOO_LARGE": 1, "_MSG_TIMED_OUT": 2}
    assert [ack.offset for ack in acks] == [0, 1, 4, 6, 7, 8]
    assert summary.fatal is None


def test_a_producer_that_gave_up_ends_the_load():
    clock = Clock()
    fatal = KafkaError(KafkaError._FATAL, "lost its place", True)
    producer = FakeProducer(clock, refuses={4: fatal})

    _, summary = run([every(0.1, 9), every(1.0, 5)], producer=producer)

    assert summary.fatal == "lost its place"
    assert (summary.sent, summary.acknowledged, summary.failed) == (5, 4, 1)
    assert not summary.interrupted


def test_without_acknowledgements_nothing_is_called_acknowledged():
    _, summary = run([every(0.1, 5)], acks=Acks.NONE)

    assert (summary.sent, summary.acknowledged) == (5, None)
    assert summary.latency_p50_ms is None
    assert summary.latency_p99_ms is None


def test_acknowledged_records_are_recorded_in_the_order_they_were_due():
    clock = Clock()
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    backwards = FakeProducer(clock, newest_first=True, acks_per_poll=0, fails={1: timed_out})
    kept: list[SentRecords] = []
    first = block([0.0, 0.5, 1.0], keys=[b"a", b"b", None], partitions=[0, 1, 2], value_bytes=7)
    second = block([2.0], keys=[b"a"], value_bytes=np.array([9]))

    run([first, second], producer=backwards, record=kept.append)

    assert np.concatenate([sent.times_s for sent in kept]).tolist() == [0.0, 1.0, 2.0]
    assert [key for sent in kept for key in sent.keys] == [b"a", None, b"a"]
    assert [p for sent in kept for p in sent.partitions.tolist()] == [0, 2, 0]
    assert [o for sent in kept for o in sent.offsets.tolist()] == [0, 2, 3]
    assert [size for sent in kept for size in sent.value_bytes.tolist()] == [7, 7, 9]


# ---- the records --------------------------------------------------------------------------------


def test_each_keys_records_are_numbered_from_one_across_blocks():
    blocks = [every(0.0, 4, keys=[b"a", b"b", b"a", b"a"]), every(0.0, 2, keys=[b"b", b"a"])]
    acks: list[Ack] = []

    producer, _ = run(blocks, on_ack=acks.append)

    assert headers(producer, "tt-seq") == [1, 1, 2, 3, 2, 4]
    assert [(ack.key, ack.seq) for ack in acks][-2:] == [(b"b", 2), (b"a", 4)]


def test_records_without_a_key_are_numbered_in_the_partition_they_are_meant_for():
    producer, _ = run([every(0.0, 5, partitions=[1, 0, 1, -1, 0])])

    assert headers(producer, "tt-seq") == [1, 1, 2, 2]
    assert [record["partition"] for record in producer.taken] == [1, 0, 1, -1, 0]
    assert list(producer.taken[3]["headers"]) == ["tt-ts"]


def test_keyless_records_have_no_number():
    producer, _ = run([every(0.0, 3)])

    assert headers(producer, "tt-seq") == []
    assert {record["key"] for record in producer.taken} == {None}
    assert {record["partition"] for record in producer.taken} == {-1}


def test_event_time_is_when_a_record_was_due_not_when_it_was_sent():
    clock = Clock()
    narrow = FakeProducer(clock, room=1)

    producer, _ = run([block([0.0, 0.0, 0.25])], producer=narrow)

    assert headers(producer, "tt-ts") == [STARTED_TS, STARTED_TS, STARTED_TS + 250_000]
    assert producer.taken[2]["timestamp"] == (STARTED_TS + 250_000) // 1000


def test_numbers_in_headers_are_eight_bytes_big_endian():
    producer, _ = run([every(0.0, 2, keys=[b"k", b"k"])])

    assert producer.taken[1]["headers"]["tt-seq"] == b"\0\0\0\0\0\0\0\2"
    assert all(len(value) == 8 for r in producer.taken for value in r["headers"].values())


def test_values_have_the_size_asked_for_and_come_from_the_seed():
    blocks = [every(0.0, 3, value_bytes=np.array([5, 0, 200])), every(0.0, 200, value_bytes=64)]

    one, again, other = (run(blocks, seed=seed)[0].taken for seed in (1, 1, 2))

    assert [len(record["value"]) for record in one] == [5, 0, 200, *[64] * 200]
    assert [r["value"] for r in one] == [r["value"] for r in again]
    assert [r["value"] for r in one] != [r["value"] for r in other]
    assert len({record["value"] for record in one[3:]}) > 30


def test_a_seeded_stream_is_sent_the_same_way_twice():
    stream = KeyStream(rate_s=500.0, seed=3, distribution=ZipfMandelbrot(keys=50))

    def sent():
        producer, _ = run(due.keyed(stream, duration_s=10.0, value_bytes=20))
        return [(r["key"], r["headers"], r["value"]) for r in producer.taken]

    assert len(sent()) > 4000
    assert sent() == sent()


@pytest.mark.parametrize(
    ("acks", "settings"),
    [
        (Acks.ALL, {"acks": "all", "enable.idempotence": True}),
        (Acks.LEADER, {"acks": "1", "max.in.flight.requests.per.connection": 1}),
        (Acks.NONE, {"acks": "0", "max.in.flight.requests.per.connection": 1}),
    ],
)
def test_no_choice_of_acknowledgement_lets_a_retry_reorder(acks, settings):
    assert settings.items() <= Delivery(acks=acks).config().items()


# ---- what is due --------------------------------------------------------------------------------


def test_a_schedule_gives_every_partition_as_many_records_as_its_rate_asks_for():
    schedule = RateSchedule.ramp([10.0, 0.0, 4.0], [30.0, 0.0, 4.0], duration_s=10.0)

    blocks = list(due.partitioned(schedule, seed=5, value_bytes=10))

    counts = np.bincount(np.concatenate([b.partitions for b in blocks]), minlength=3)
    assert counts.tolist() == [200, 0, 40]


def test_what_is_due_is_cut_at_a_time_and_later_blocks_are_not_even_made():
    def blocks():
        yield every(0.5, 4, keys=[b"a", b"b", b"c", b"d"])
        yield block([2.0, 3.0], keys=[b"e", b"f"])
        raise AssertionError("made without need")

    cut = list(due.until(blocks(), 3.0))

    assert [b.times_s.tolist() for b in cut] == [[0.0, 0.5, 1.0, 1.5], [2.0]]
    assert cut[1].keys == [b"e"]


def test_numbering_goes_on_where_it_was():
    numbering = SequenceNumbers()

    first = numbering.of(every(0.0, 2, keys=[b"0", None], partitions=[0, 0]))
    second = numbering.of(every(0.0, 2, keys=[b"0", None], partitions=[0, 0]))

    assert (first, second) == ([1, 1], [2, 2])


def loads(*steps, unit=Unit.BYTES_S):
    return Loads(
        capacity=1000,
        unit=unit,
        steps=tuple(
            LoadStep(loads={TopicPartition(t, p): load for (t, p), load in step.items()})
            for step in steps
        ),
    )


def test_byte_rates_become_record_rates_by_the_size_of_a_value():
    found = loads({("orders", 0): 400, ("orders", 2): 100}, {("orders", 0): 200})

    schedule = due.schedule_of(found, origin="f", topic="copy", step_s=5.0, value_bytes=50)

    assert schedule.duration_s == 10.0
    assert [schedule.rate_at(p, 0.0) for p in range(3)] == [8.0, 0.0, 2.0]
    assert [schedule.rate_at(p, 5.0) for p in range(3)] == [4.0, 0.0, 0.0]


def test_record_rates_are_taken_as_they_are():
    found = loads({("orders", 0): 7}, unit=Unit.RECORDS_S)

    schedule = due.schedule_of(found, origin="f", topic="orders", step_s=1.0, value_bytes=50)

    assert schedule.rate_at(0, 0.5) == 7.0


def test_a_file_of_several_topics_must_name_the_one_that_is_loaded():
    found = loads({("a", 0): 1, ("b", 0): 2}, unit=Unit.RECORDS_S)

    assert due.schedule_of(found, origin="f", topic="b", step_s=1.0, value_bytes=1).records == 2.0
    with pytest.raises(ConfigError, match="f has loads of a, b, none of c"):
        due.schedule_of(found, origin="f", topic="c", step_s=1.0, value_bytes=1)
