"""Keys that come and go: hand-overs, records that wait for them, and the limits of waiting."""

from __future__ import annotations

import pytest

from tests.unit.apply.keys.task_bench import HERE, SINGLE, Bench, both, joined
from trimtab.apply.keys.handover_layout import handover_writes
from trimtab.apply.keys.key_entry import (
    AwaitedEnd,
    DropReason,
    EntryStatus,
    KeyEntry,
    KeyHandover,
)
from trimtab.apply.keys.keyed_handler import KeyedHandler, Output
from trimtab.apply.keys.state_layout import (
    parked_key,
)
from trimtab.apply.keys.task import ParkingLimits
from trimtab.apply.keys.task_round import HandoverWrite, TaskLimits


@both
def test_end_sends_the_state_and_leaves_a_mark(handler):
    bench = Bench(handler, limit=2)
    for src in (1, 2, 3):
        bench.data(src)
    bench.finish()
    bench.end(7)

    assert bench.task.urgent
    finished = bench.finish()

    sent = KeyHandover(set_id=7, source=HERE, value=b"123", last_src=((0, 3),))
    writes = [HandoverWrite(2, *write) for write in handover_writes(b"a", sent, 2)]
    assert finished.handovers == writes
    assert finished.state == {
        b"ka\0\0\0\0": b'{"v":1,"status":"left","set":7}',
        b"ka\0\0\0\x01": None,
    }
    assert bench.held() == dict.fromkeys(bench.held(), 0) | {"left": 1}
    assert (bench.task.counts.handovers_out, bench.task.counts.handover_bytes_out) == (1, 3)
    assert not bench.task.urgent


def test_end_of_a_key_that_was_never_seen_sends_the_empty_state():
    bench = Bench()
    bench.end(7)

    (write,) = bench.finish().handovers
    assert b'"last_src":{},"chunk":0,"of":1,"value_b64":null' in (write.value or b"")


def test_a_key_that_has_left_drops_copies_repeats_and_refuses_plain_records():
    bench = Bench()
    bench.data(1)
    bench.end(7)
    bench.finish()
    bench.task = bench.restored()
    bench.data(2)
    bench.end(7)
    bench.plain(b"x")
    finished = bench.finish()

    assert bench.task.counts.dropped == {DropReason.LEFT: 1, DropReason.REPEATED_END: 1}
    assert "does not have the key" in finished.dead_letters[0].reason
    assert (finished.handovers, finished.state) == ([], {})


def test_close_is_told_of_states_that_leave_and_its_failure_stops_nothing():
    def close(key, state):
        if key == b"b":
            raise ValueError("cannot close")
        return [Output("closed", state)]

    bench = Bench(KeyedHandler(joined, close=close, codec=SINGLE.codec))
    bench.data(1)
    bench.data(2, key=b"b")
    bench.end(7)
    bench.end(8, key=b"b")
    bench.end(9, key=b"never seen")
    finished = bench.finish()

    assert finished.outputs[-1] == Output("closed", b"1")
    assert bench.task.close_errors == ["ValueError: cannot close"]
    assert len(finished.handovers) == 3
    assert bench.held()["left"] == 3


@both
def test_records_wait_for_their_state_and_follow_it_in_order(handler):
    bench = Bench(handler)
    bench.start(3)
    bench.data(4, set_id=3)
    bench.data(5, set_id=3)
    parked = bench.finish()

    assert parked.receipts == []
    assert set(parked.state) == {b"ka\0\0\0\0", parked_key(b"a", 0), parked_key(b"a", 1)}
    assert bench.held()["waiting"] == 1
    assert bench.held()["parked_records"] == 2

    bench.now_s += 2.5
    assert bench.task.oldest_wait_s == 2.5
    bench.hand_over(3, b"s")
    assert bench.task.is_replaying
    bench.data(6, set_id=3)  # behind what is parked
    bench.replay(most=2)
    assert bench.task.is_replaying
    bench.replay()
    finished = bench.finish()

    assert not bench.task.is_replaying
    assert bench.entry() == KeyEntry(set_id=3, value=b"s456", last_src=((0, 6),))
    assert [receipt.set_id for receipt in finished.receipts] == [3, 3, 3]
    assert [write.value for write in finished.handovers] == [None]
    assert finished.adoptions == [(1, 1.0, 2.5, False)]
    assert not any(key[:1] == b"p" and value for key, value in bench.state.items())
    assert bench.held() == dict.fromkeys(bench.held(), 0) | {"owned": 1}
    assert bench.task.oldest_wait_s == 0


@both
def test_a_chain_of_moves_resolves_from_the_front(handler):
    """START 3, data, END 4, START 5, data: the state of 3 comes, later that of 5."""
    bench = Bench(handler)
    bench.start(3)
    bench.data(4, set_id=3)
    bench.end(4)
    bench.start(5, source=2)
    bench.data(9, set_id=5)
    bench.hand_over(3, b"s")
    bench.replay()
    finished = bench.finish()

    assert b'"value_b64":"czQ="' in (finished.handovers[-1].value or b"")
    assert bench.held()["waiting"] == 1
    assert bench.held()["parked_records"] == 1
    found = bench.entry()
    assert found is not None
    assert (found.status, found.awaited) == (EntryStatus.WAIT, AwaitedEnd(2, 40))

    bench.task = bench.restored()
    bench.hand_over(5, b"t")
    bench.replay()
    bench.finish()
    assert bench.entry() == KeyEntry(set_id=5, value=b"t9", last_src=((0, 9),))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_an_early_handover_waits_for_its_start_whatever_the_limits_are(restart, limit):
    bench = Bench(limit=limit)
    bench.hand_over(3, b"state", limit=2)
    held = bench.finish()

    assert len(held.state) == 3
    assert bench.held()["early"] == 1
    if restart:
        before = bench.held()
        bench.task = bench.restored()
        assert bench.held() == before
    bench.start(3)
    finished = bench.finish()

    assert bench.entry() == KeyEntry(set_id=3, value=b"state", last_src=((0, 3),))
    assert {key: bench.state[key] for key in held.state} == dict.fromkeys(held.state)
    assert [write.value for write in finished.handovers] == [None] * 3
    assert bench.held()["early"] == 0
    assert finished.adoptions == [(5, 0.0, 0.0, False)]


def test_a_handover_of_several_chunks_holds_its_offset_until_it_is_complete():
    bench = Bench()
    bench.start(3)
    bench.hand_over(3, b"state", limit=2, chunks=[0])
    bench.hand_over(4, b"x", key=b"b")
    assert bench.finish().handover_offset == 50
    bench.task.pass_handovers(60)
    assert bench.finish().handover_offset == 50

    bench.hand_over(3, b"state", limit=2, chunks=[1, 2])
    assert bench.finish().handover_offset == 54


def test_a_repeated_handover_gets_its_tombstones_again():
    bench = Bench()
    bench.start(3)
    bench.hand_over(3, b"state", limit=2)
    bench.hand_over(9, b"early")
    bench.finish()
    bench.task = bench.restored()
    bench.hand_over(3, b"state", limit=2)
    finished = bench.finish()

    assert [write.value for write in finished.handovers] == [None] * 3
    assert all(write.partition == HERE for write in finished.handovers)
    assert bench.task.counts.dropped == {DropReason.REPEATED_HANDOVER: 1}
    assert bench.held()["early"] == 1


def test_a_state_that_cannot_come_is_replaced_by_the_empty_one():
    bench = Bench()
    bench.start(3)
    bench.data(4, set_id=3)
    bench.now_s += 10

    assert bench.task.awaited_set(b"a") == 3
    assert bench.task.overdue(10) == {b"a": AwaitedEnd(0, 40)}
    assert bench.task.overdue(11) == {}
    bench.task.adopt_lost(b"a")
    bench.replay()
    finished = bench.finish()

    assert bench.entry() == KeyEntry(set_id=3, value=b"4", last_src=((0, 4),))
    assert finished.handovers == []
    assert finished.adoptions == [(0, 0.0, 10.0, True)]
    assert bench.task.counts.lost_states == 1
    assert bench.task.awaited_set(b"a") is None


# ------------------------------------------------------------ parking limits


def test_a_task_pauses_when_it_has_parked_enough_and_goes_on_when_less_is_parked():
    bench = Bench(parked=2)
    bench.start(3)
    bench.data(4, set_id=3)
    assert not bench.task.is_paused
    bench.data(5, set_id=3)
    assert bench.task.is_paused
    bench.finish()
    bench.task = bench.restored()
    assert bench.task.is_paused

    bench.hand_over(3, b"s")
    assert bench.task.is_paused
    bench.replay(most=1)
    assert not bench.task.is_paused


def test_a_task_pauses_by_bytes():
    bench = Bench()
    bench.limits = TaskLimits(parking=ParkingLimits(100, 300))
    bench.task = bench.restored()
    bench.start(3)
    bench.data(4, bytes(100), set_id=3)
    assert not bench.task.is_paused
    bench.data(5, bytes(100), set_id=3)
    assert bench.task.is_paused


def test_the_size_of_a_round_counts_the_states_that_it_writes():
    bench = Bench(KeyedHandler(lambda *_: (bytes(9000), ()), codec=SINGLE.codec))
    bench.data(1)
    once = bench.task.size_bytes
    bench.data(2)

    assert once > 12_000
    assert bench.task.size_bytes < once + 1000
    bench.finish()
    assert bench.task.size_bytes == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_a_chunk_must_hold_something(limit):
    with pytest.raises(ValueError, match="at least one byte"):
        TaskLimits(max_state_bytes=limit)
