from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.apply.consumers.cycle import SETTLE_S, Cycle
from trimtab.apply.consumers.work import Limits, Work
from trimtab.apply.totals import Totals
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NO_PAUSES = Retry(attempts=3, first_s=0.0, most_s=0.0)


def record(partition: int, offset: int, *, topic: str = "orders", ms: int = 0, size: int = 10):
    return Record(topic, partition, offset, None, b"v" * size, (), ms)


class World:
    """A reader, a sink, dead letters, receipts and a clock in memory; all that happens is logged.

    `before[name]` is called before the event of that name, once per call: there a test fails it.
    """

    def __init__(self, *arrivals: Sequence[Record]) -> None:
        self.now = 0.0
        self.arrivals = deque(arrivals)
        self.ends: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.events: list[tuple[object, ...]] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.stop = threading.Event()

    def _log(self, name: str, *what: object) -> None:
        self.before.get(name, lambda: None)()
        self.events.append((name, *what))

    def read(self, timeout_s: float) -> Sequence[Record]:
        self.before.get("read", lambda: None)()
        if not self.arrivals:
            self.now += timeout_s
            return ()
        chunk = self.arrivals.popleft()
        for r in chunk:
            self.positions[r.source] = r.offset + 1
        return chunk

    def position(self, partition: TopicPartition) -> int | None:
        return self.ends.get(partition, self.positions.get(partition))

    def behind(self) -> int:
        return sum(len(chunk) for chunk in self.arrivals)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._log("commit", dict(offsets))

    def stay_active(self) -> None:
        self._log("stay_active")

    def close(self) -> None: ...

    def write(self, table: str, records: Sequence[Record]) -> None:
        self._log("write", table, [(r.partition, r.offset) for r in records])

    def forget(self, partitions) -> None:
        self._log("forget", sorted(partitions))

    def send(self, dead: Record, error: Exception) -> None:
        self._log("send", dead.source, dead.offset, str(error))

    def note(self, done: Record, started_ts: int, finished_ts: int) -> None:
        self._log("note", done.source, done.offset)

    def confirm(self) -> None:
        self._log("confirm")

    def handle(self, one: Record) -> None:
        self._log("handle", one.source, one.offset)

    def of(self, name: str) -> list[tuple[object, ...]]:
        return [event[1:] for event in self.events if event[0] == name]


def cycle_of(world: World, **work) -> Cycle:
    work.setdefault("limits", Limits(batch_bytes=1000, wait_s=1.0))
    work.setdefault("retry", NO_PAUSES)
    return Cycle(
        world,
        Work(**work),
        stop=world.stop,
        on_trouble=lambda what, error: world.events.append(("trouble", what)),
        clock=lambda: world.now,
        now_us=lambda: round(world.now * 1e6),
    )


def test_records_are_handled_written_noted_and_only_then_committed():
    world = World([record(0, 5), record(0, 6)])
    cycle = cycle_of(world, handler=world.handle, sink=world, receipts=world)
    cycle.turn()
    assert [event[0] for event in world.events] == [
        *("handle", "handle", "write", "note", "note", "confirm", "commit"),
    ]
    assert world.of("commit") == [({P0: 7},)]
    assert cycle.committed == {P0: 7}
    assert cycle.totals == Totals(records=2, bytes=20, batches=1)


def test_a_batch_is_full_at_its_bytes_and_over_after_the_wait():
    world = World([record(0, n) for n in range(60)], [record(0, n) for n in range(60, 120)])
    cycle = cycle_of(world, limits=Limits(batch_bytes=1000, wait_s=1.0))
    cycle.turn()
    assert (world.now, cycle.totals.records) == (0.0, 120)

    world.arrivals.append([record(0, 120)])
    cycle.turn()
    assert world.now == pytest.approx(1.0)
    assert cycle.totals.records == 121


def test_every_topic_is_a_table_of_its_own():
    other = record(0, 3, topic="bills")
    world = World([record(0, 5), other, record(1, 2)])
    cycle_of(world, sink=world).turn()
    assert sorted(world.of("write"), key=str) == [
        ("bills", [(0, 3)]),
        ("orders", [(0, 5), (1, 2)]),
    ]
    assert world.of("commit") == [({P0: 6, P1: 3, TopicPartition("bills", 0): 4},)]


def test_transaction_markers_behind_the_last_record_leave_no_lag():
    world = World([record(0, 5)])
    world.ends[P0] = 8
    cycle_of(world).turn()
    assert world.of("commit") == [({P0: 8},)]


def test_markers_that_come_later_are_committed_without_a_record():
    world = World([record(0, 5)])
    cycle = cycle_of(world)
    cycle.turn()
    world.ends[P0] = 7
    cycle.turn()
    cycle.turn()
    assert world.of("commit") == [({P0: 6},), ({P0: 7},)]


def test_a_slow_handler_is_interrupted_after_the_wait_and_goes_on_where_it_was():
    #  four records of 0.4 s each, a wait of 1 s: three are handled, then others are listened to
    world = World([record(0, n) for n in range(4)])
    world.before["handle"] = lambda: setattr(world, "now", world.now + 0.4)
    cycle = cycle_of(world, handler=world.handle)
    cycle.turn()
    assert (world.of("commit"), cycle.waiting) == ([({P0: 3},)], 1)

    world.arrivals.append([record(0, 4)])
    cycle.turn()
    assert world.of("commit")[1:] == [({P0: 4},)]
    assert world.of("stay_active") == [()]
    assert list(world.arrivals), "nothing more is read while records wait"


def test_a_released_partition_is_dropped_from_the_batch_and_never_committed():
    world = World([record(0, 0), record(1, 7), record(0, 1), record(1, 8)])
    world.before["handle"] = lambda: setattr(world, "now", world.now + 0.6)
    cycle = cycle_of(world, handler=world.handle, sink=world)
    cycle.turn()
    assert dict(cycle.committed) == {P0: 1, P1: 8}

    cycle.release([P1])
    cycle.turn()
    assert world.of("handle") == [(P0, 0), (P1, 7), (P0, 1)]
    assert world.of("commit")[1:] == [({P0: 2},)]
    assert P1 not in cycle.committed
    assert world.of("forget") == [([P1],)]


def test_a_partition_that_is_revoked_during_a_read_leaves_nothing_behind():
    world = World([record(0, 0), record(1, 7)], [record(0, 1)])
    cycle = cycle_of(world, handler=world.handle)
    world.before["read"] = lambda: cycle.release([P1]) if len(world.arrivals) == 1 else None
    cycle.turn()
    assert world.of("handle") == [(P0, 0), (P0, 1)]
    assert world.of("commit") == [({P0: 2},)]


def test_a_partition_that_is_revoked_during_the_commit_is_not_taken_for_committed():
    world = World([record(0, 0), record(1, 7)])
    cycle = cycle_of(world)
    world.before["commit"] = lambda: cycle.release([P1])
    cycle.turn()
    assert cycle.committed == {P0: 1}


def test_what_waited_longest_comes_first_and_a_partition_keeps_its_order():
    #  p0:  t=50, t=10 (late)      p1:  t=20, t=60
    late = [record(0, 0, ms=50), record(0, 1, ms=10)]
    world = World([*late, record(1, 0, ms=20), record(1, 1, ms=60)])
    cycle_of(world, handler=world.handle).turn()
    assert world.of("handle") == [(P1, 0), (P0, 0), (P0, 1), (P1, 1)]


def test_an_offset_never_goes_back():
    world = World([record(0, 3)])
    cycle = cycle_of(world)
    cycle.begin(P0, 100)
    cycle.turn()
    assert world.of("commit") == []
    assert cycle.committed == {P0: 100}


def test_unchanged_offsets_are_committed_again_once_a_day():
    world = World()
    cycle = cycle_of(world, limits=Limits(renew_s=1000.0))
    cycle.begin(P0, 42)
    cycle.begin(P1, None)
    cycle.turn()
    assert world.of("commit") == []
    world.now += 1000
    cycle.turn()
    cycle.turn()
    assert world.of("commit") == [({P0: 42},)]


def fails(times: int, error: Exception) -> Callable[[], None]:
    left = [error] * times

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("write", OSError("disk full")),
        ("commit", BrokerUnavailable("nobody answered")),
        ("confirm", BrokerUnavailable("nobody answered")),
    ],
)
def test_what_fails_for_a_while_keeps_the_batch_and_is_tried_again(name, error):
    world = World([record(0, 0)])
    world.before[name] = fails(2, error)
    cycle = cycle_of(world, sink=world, receipts=world)
    cycle.turn()
    assert len(world.of("trouble")) == 2
    assert [event[0] for event in world.events if event[0] != "trouble"] == [
        *("write", "note", "confirm", "commit"),
    ]
    assert cycle.committed == {P0: 1}


def test_a_broker_that_does_not_answer_is_read_from_again():
    world = World([record(0, 0)])
    world.before["read"] = fails(2, BrokerUnavailable("nobody answered"))
    cycle = cycle_of(world)
    cycle.turn()
    assert world.of("trouble") == [("reading",), ("reading",)]
    assert cycle.committed == {P0: 1}


def test_a_consumer_stopped_while_a_write_fails_commits_nothing():
    world = World([record(0, 0)])
    world.before["write"] = fails(99, OSError("disk full"))
    cycle = cycle_of(world, sink=world)

    def trouble(what: str, error: Exception) -> None:
        world.stop.set()

    cycle._on_trouble = trouble
    with pytest.raises(ApplyError, match="disk full"):
        cycle.turn()
    assert world.of("commit") == []


def test_a_write_that_can_never_go_well_ends_the_consumer_without_a_commit():
    world = World([record(0, 0)])
    world.before["write"] = fails(1, TypeError("a fault"))
    with pytest.raises(TypeError):
        cycle_of(world, sink=world).turn()
    assert world.of("commit") == []


def test_a_record_that_cannot_be_handled_is_buried_and_confirmed_before_the_commit():
    world = World([record(0, 0), record(0, 1)])

    def handle(one: Record) -> None:
        world.handle(one)
        if one.offset == 0:
            raise ValueError("bad")

    cycle = cycle_of(world, handler=handle, sink=world, dead_letters=world)
    cycle.turn()
    assert [event[0] for event in world.events] == [
        *("handle", "handle", "handle", "send", "handle", "write", "confirm", "commit"),
    ]
    assert world.of("send") == [(P0, 0, "bad")]
    assert world.of("write") == [("orders", [(0, 1)])]
    assert world.of("commit") == [({P0: 2},)]
    assert cycle.totals == Totals(records=2, bytes=20, batches=1, dead_letters=1)


def test_the_record_in_hand_is_told_before_its_handler_and_none_afterwards():
    world = World([record(0, 5), record(0, 6)])
    told: list[object] = []
    cycle = cycle_of(
        world,
        handler=lambda one: told.append(("handle", one.offset)),
        in_hand=lambda one: told.append(one and one.offset),
    )
    cycle.turn()
    assert told[:5] == [5, ("handle", 5), 6, ("handle", 6), None]


def test_without_dead_letters_a_record_that_cannot_be_handled_ends_the_consumer():
    world = World([record(0, 17)])

    def handle(one: Record) -> None:
        raise ValueError("bad")

    with pytest.raises(ApplyError, match="orders-0, offset 17"):
        cycle_of(world, handler=handle).turn()
    assert world.of("commit") == []


def test_a_stop_finishes_the_record_in_hand_and_commits_it():
    world = World([record(0, n) for n in range(5)])
    world.before["handle"] = lambda: world.stop.set() if world.of("handle") else None
    cycle = cycle_of(world, handler=world.handle, sink=world, receipts=world)
    totals = cycle.run()
    assert totals.records == 2
    assert world.of("write") == [("orders", [(0, 0), (0, 1)])]
    assert world.of("commit") == [({P0: 2},)]


def test_others_are_listened_to_only_when_nothing_is_half_done():
    world = World([record(0, 0)], [record(0, 1)])
    cycle = cycle_of(world, handler=world.handle)

    def listen() -> None:
        world.events.append(("listen",))
        if len(world.of("listen")) == 2:
            world.stop.set()

    cycle.run(listen)
    assert [event[0] for event in world.events] == [
        "handle",
        "handle",
        "commit",
        "listen",
        "listen",
    ]


SHORT_PAUSES = Retry(attempts=3, first_s=1e-6, most_s=1e-6)


def _fails(world: World) -> Callable[[Record], None]:
    def handle(one: Record) -> None:
        world.handle(one)
        if one.offset == 1:
            raise ValueError("no such account")

    return handle


def test_between_attempts_the_reader_does_what_it_owes_to_others():
    world = World([record(0, n) for n in range(3)])
    cycle = cycle_of(world, handler=_fails(world), dead_letters=world, retry=SHORT_PAUSES)
    world.before["stay_active"] = _raising(BrokerUnavailable("nobody answers"))
    cycle.turn()
    assert [event[0] for event in world.events if event[0] != "confirm"] == [
        *("handle", "handle", "commit", "trouble", "handle", "trouble", "handle", "send"),
        *("handle", "commit"),
    ]
    assert world.of("trouble") == [("staying in the group",)] * 2
    assert world.of("commit") == [({P0: 1},), ({P0: 3},)]


def test_while_a_sink_has_records_to_write_no_partition_goes_between_attempts():
    world = World([record(0, n) for n in range(3)])
    cycle = cycle_of(
        world, handler=_fails(world), sink=world, dead_letters=world, retry=SHORT_PAUSES
    )
    cycle.turn()
    assert world.of("stay_active") == []
    assert world.of("commit") == [({P0: 3},)]


def test_a_record_that_goes_to_another_between_attempts_is_left_to_it():
    world = World([record(0, 0), record(0, 1), record(1, 0)])
    cycle = cycle_of(world, handler=_fails(world), dead_letters=world, retry=SHORT_PAUSES)
    world.before["stay_active"] = lambda: cycle.release([P0])
    cycle.turn()
    cycle.turn()
    assert world.of("send") == []
    assert world.of("commit") == [({P0: 1},), ({P1: 1},)]
    assert world.of("handle").count((P0, 1)) == 1
    assert world.of("handle").count((P1, 0)) == 1


def _raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def _take(world: World, seconds: float) -> Callable[[], None]:
    return lambda: setattr(world, "now", world.now + seconds)


def test_the_capacity_of_a_slow_handler_is_known_once_it_has_a_batch_to_work_on():
    world = World([record(0, n) for n in range(300)])
    world.before["handle"] = _take(world, 0.02)
    cycle = cycle_of(world, handler=world.handle)
    while world.now < 10:
        cycle.turn()
    assert cycle.capacity.records_s == pytest.approx(50.0, rel=0.05)


def test_a_consumer_that_waits_for_records_does_not_show_its_capacity():
    world = World(*([record(0, n)] for n in range(20)))
    world.before["read"] = _take(world, 0.4)  # a record now and then, each handled at once
    cycle = cycle_of(world, handler=world.handle)
    world.behind = lambda: 0  # type: ignore[method-assign]
    while world.arrivals:
        cycle.turn()
    assert cycle.totals.records == 20
    assert cycle.capacity.records_s is None


@pytest.mark.parametrize("batch_bytes", [10_000_000, 1000], ids=["in time", "full"])
def test_a_burst_that_ends_a_wait_does_not_make_the_wait_a_fetch(batch_bytes):
    world = World()
    bursts, began = 0, 0.0

    def arrive(timeout_s: float) -> Sequence[Record]:
        """A burst ten milliseconds before the wait is over, of which a part is read in time."""
        nonlocal bursts
        if world.arrivals or world.now - began < 0.85 or bursts > world.now / 10:
            world.now += 0.006 if world.arrivals else 0.0
            return world.read(timeout_s)
        world.now += timeout_s - 0.01
        first = 1000 * bursts
        chunks = [range(first + n, first + n + 100) for n in range(0, 1000, 100)]
        world.arrivals.extend([record(0, n) for n in chunk] for chunk in chunks)
        bursts += 1
        return world.read(0.0)

    cycle = Cycle(
        reading(world, arrive),
        Work(handler=world.handle, limits=Limits(batch_bytes=batch_bytes, wait_s=1.0)),
        stop=world.stop,
        clock=lambda: world.now,
    )
    while bursts < 10:
        began = world.now
        cycle.turn()
    assert cycle.totals.records > 9000
    assert cycle.capacity.records_s is None


def reading(world: World, read: Callable[[float], Sequence[Record]]) -> Any:
    """The world with another way to read."""
    names = ("position", "behind", "commit", "stay_active", "close")
    return SimpleNamespace(read=read, **{name: getattr(world, name) for name in names})


def test_time_spent_fetching_counts_while_there_is_a_backlog():
    #  fetch 0.3 s, handle 0.2 s: 10 records per half second, whatever the handler alone could do
    world = World(*([record(0, n) for n in range(10 * i, 10 * i + 10)] for i in range(40)))
    world.before["read"] = _take(world, 0.3)
    world.before["handle"] = _take(world, 0.02)
    cycle = cycle_of(world, handler=world.handle, limits=Limits(batch_bytes=100, wait_s=1.0))
    while len(world.arrivals) > 10:
        cycle.turn()
    assert cycle.capacity.records_s == pytest.approx(20.0, rel=0.02)


def test_writing_and_committing_count_too():
    world = World(*([record(0, n) for n in range(10 * i, 10 * i + 10)] for i in range(40)))
    world.before["write"] = _take(world, 0.3)
    world.before["commit"] = _take(world, 0.2)
    cycle = cycle_of(world, sink=world, limits=Limits(batch_bytes=100, wait_s=1.0))
    while len(world.arrivals) > 10:
        cycle.turn()
    assert cycle.capacity.records_s == pytest.approx(20.0, rel=0.02)


@pytest.mark.parametrize("wrong", [{"batch_bytes": 0}, {"wait_s": 0}, {"renew_s": -1}])
def test_senseless_limits_are_refused(wrong):
    with pytest.raises(ValueError, match="invalid limits"):
        Limits(**wrong)


def _slow(world: World) -> Callable[[Record], None]:
    """A handler that takes a tenth of a second."""

    def handle(one: Record) -> None:
        world.handle(one)
        world.now += 0.1

    return handle


def test_while_nobody_calls_batches_are_handled_without_waiting_for_the_brokers():
    world = World(*([record(0, n)] for n in range(20)))
    cycle = cycle_of(
        world,
        handler=_slow(world),
        receipts=world,
        limits=Limits(batch_bytes=10, wait_s=0.2),
    )
    cycle.turn(has_commands=lambda: False)
    assert [event[0] for event in world.events if event[0] in ("confirm", "commit")] == [
        "confirm",
        "commit",
    ]
    assert world.of("commit") == [({P0: 5},)]  # half a second of a tenth each
    assert world.now == pytest.approx(SETTLE_S)
    assert cycle.totals == Totals(records=5, bytes=50, batches=1)
    assert len(world.arrivals) == 15


def test_who_calls_in_the_middle_of_a_batch_is_listened_to_once_all_before_is_committed():
    world = World([record(0, n) for n in range(40)])
    cycle = cycle_of(world, handler=_slow(world), limits=Limits(batch_bytes=400, wait_s=0.2))

    def listen() -> None:
        world.events.append(("listen",))
        world.stop.set()

    cycle.run(listen, has_commands=lambda: len(world.of("handle")) >= 3)
    assert [event[0] for event in world.events if event[0] != "stay_active"] == [
        *["handle"] * 4,  # two pauses of two records
        *("commit", "listen"),
    ]
    assert world.of("commit") == [({P0: 4},)]


def test_a_sink_writes_after_every_batch_though_nobody_calls():
    world = World([record(0, 0)], [record(0, 1)])
    cycle = cycle_of(world, sink=world, limits=Limits(batch_bytes=10, wait_s=0.2))
    cycle.turn(has_commands=lambda: False)
    assert world.of("write") == [("orders", [(0, 0)])]
    assert world.of("commit") == [({P0: 1},)]


def test_an_idle_consumer_listens_though_nobody_calls():
    world = World()
    cycle = cycle_of(world, limits=Limits(batch_bytes=10, wait_s=0.2))
    cycle.turn(has_commands=lambda: False)
    assert world.now == pytest.approx(0.2)


def test_an_error_in_a_later_read_does_not_undo_what_was_handled_before_it():
    world = World([record(0, 0)], [record(0, 1)])
    cycle = cycle_of(
        world,
        handler=world.handle,
        receipts=world,
        limits=Limits(batch_bytes=10, wait_s=0.2),
    )

    def fail() -> None:
        if len(world.of("handle")) == 2:
            world.positions[P0] = 9  # as far as the reader came before it failed
            raise ApplyError("a record cannot be read")

    world.before["read"] = fail
    with pytest.raises(ApplyError, match="cannot be read"):
        cycle.turn(has_commands=lambda: False)
    assert [event[0] for event in world.events][-2:] == ["confirm", "commit"]
    assert world.of("commit") == [({P0: 2},)]


def test_settled_while_more_is_read_only_what_was_handled_is_committed():
    world = World([record(0, 0)], [record(0, 1)])
    cycle = cycle_of(world, handler=world.handle, limits=Limits(batch_bytes=10, wait_s=0.2))

    def revoke() -> None:
        if len(world.of("handle")) == 1 and not world.of("commit"):
            world.positions[P0] = 5
            cycle.settle()

    world.before["read"] = revoke
    cycle.turn(has_commands=lambda: False)
    assert world.of("commit") == [({P0: 1},), ({P0: 2},)]


def test_a_sink_that_has_not_written_has_nothing_to_settle():
    world = World([record(0, 0)])
    cycle = cycle_of(world, handler=world.handle, sink=world)
    world.before["handle"] = cycle.settle
    cycle.turn()
    assert world.of("commit") == [({P0: 1},)]
    assert [event[0] for event in world.events] == ["handle", "write", "commit"]


def test_capacity_is_that_of_all_batches_of_a_turn():
    world = World(*([record(0, n)] for n in range(50)))
    cycle = cycle_of(world, handler=_slow(world), limits=Limits(batch_bytes=10, wait_s=0.2))
    while world.arrivals:
        cycle.turn(has_commands=lambda: False)
    assert cycle.capacity.records_s == pytest.approx(10.0)
    assert cycle.capacity.bytes_s == pytest.approx(100.0)


def test_a_dead_letter_is_confirmed_before_more_is_handled():
    world = World(*([record(0, n)] for n in range(9)))

    def handle(one: Record) -> None:
        if one.offset == 3:
            raise ValueError("bad")

    cycle = cycle_of(
        world, handler=handle, dead_letters=world, limits=Limits(batch_bytes=10, wait_s=0.2)
    )
    cycle.turn(has_commands=lambda: False)
    assert [event[0] for event in world.events] == ["send", "confirm", "commit"]
    assert world.of("commit") == [({P0: 4},)]
    assert cycle.totals == Totals(records=4, bytes=40, batches=1, dead_letters=1)


def test_told_to_stop_in_a_later_batch_it_commits_all_of_them():
    world = World(*([record(0, n)] for n in range(9)))
    cycle = cycle_of(world, handler=world.handle, limits=Limits(batch_bytes=10, wait_s=0.2))

    def stop() -> None:
        if len(world.of("handle")) == 2:
            world.stop.set()

    world.before["handle"] = stop
    cycle.run(has_commands=lambda: False)
    assert world.of("commit") == [({P0: 3},)]


def test_markers_of_a_keyed_topic_are_skipped_and_their_offsets_committed():
    marker = record(0, 1)._replace(headers=(("tt-kind", b"\x01"),), value=None)
    last = record(0, 3)._replace(headers=(("tt-kind", b"\x03"),), value=None)
    data = record(0, 2)._replace(headers=(("tt-seq", bytes(8)),))
    world = World([record(0, 0), marker, data, last])
    handled: list[int] = []
    cycle = cycle_of(world, handler=lambda r: handled.append(r.offset))

    cycle.begin(P0, 0)
    cycle.turn()

    assert handled == [0, 2]
    assert cycle.totals.records == 2
    assert cycle.committed == {P0: 4}


def test_a_batch_of_markers_only_is_passed_over():
    marker = record(0, 7)._replace(headers=(("tt-kind", b"\x03"),), value=None)
    world = World([marker])
    cycle = cycle_of(world, handler=lambda _: None)

    cycle.begin(P0, 7)
    cycle.turn()

    assert cycle.committed == {P0: 8}
