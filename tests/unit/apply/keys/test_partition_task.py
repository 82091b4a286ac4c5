"""The task of one partition: what a round holds after records, markers and hand-overs."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.unit.apply.keys.task_bench import BATCH, SINGLE, Bench, both, joined_batch
from trimtab.apply.handling import Interrupted
from trimtab.apply.keys.key_entry import (
    DropReason,
    KeyEntry,
)
from trimtab.apply.keys.keyed_handler import KeyedHandler
from trimtab.apply.keys.message_sets import (
    CloseMarker,
    EndMarker,
    FenceMarker,
    OpenMarker,
    StartMarker,
)
from trimtab.apply.keys.state_layout import (
    FENCE_KEY,
    TOPIC_KEY,
)

# ------------------------------------------------------------ records


@both
def test_a_round_holds_all_that_its_records_have_caused(handler):
    bench = Bench(handler)
    one, two = bench.data(1), bench.data(2, key=b"")
    three = bench.data(3)

    finished = bench.finish()

    assert bench.entry() == KeyEntry(value=b"13", last_src=((0, 3),))
    assert bench.entry(b"") == KeyEntry(value=b"2", last_src=((0, 2),))
    assert sorted(output.value or b"" for output in finished.outputs) == [b"1", b"2", b"3"]
    assert sorted(receipt.record.offset for receipt in finished.receipts) == [5, 6, 7]
    assert {receipt.set_id for receipt in finished.receipts} == {0}
    assert (finished.data_offset, finished.handover_offset, finished.records) == (8, None, 3)
    assert finished.record_bytes == one.size + two.size + three.size
    assert bench.held()["owned"] == 2


def test_the_state_of_a_key_is_written_once_per_round_and_only_if_it_changed():
    bench = Bench()
    for src in range(1, 6):
        bench.data(src)

    assert list(bench.finish().state) == [b"ka\0\0\0\0"]
    bench.data(5)  # a repeat
    assert bench.finish().state == {}
    assert bench.task.finish_round().is_empty


def test_the_topic_id_is_written_once():
    bench = Bench(topic_id="Zx")

    assert bench.finish().state == {TOPIC_KEY: b'{"v":1,"topic":"Zx"}'}
    bench.task = bench.restored()
    assert bench.finish().is_empty


@both
def test_a_record_that_the_handler_fails_at_is_a_dead_letter_with_a_receipt(handler):
    bench = Bench(handler)
    bench.data(1)
    bad = bench.data(2, b"bad")
    bench.data(3)
    bench.data(2, b"repeated")

    finished = bench.finish()

    assert finished.dead_letters == [(bad, "ValueError: bad record")]
    assert bench.entry() == KeyEntry(value=b"13", last_src=((0, 3),))
    assert [receipt.record.offset for receipt in finished.receipts] == [5, 6, 7]
    assert [output.value for output in finished.outputs] == [b"1", b"3"]
    assert bench.task.counts.dropped[DropReason.REPLAYED] == 1
    assert (bench.task.counts.applied, bench.task.counts.dead_letters) == (3, 1)


@both
def test_a_first_record_that_fails_is_not_tried_again_after_a_restart(handler):
    bench = Bench(handler)
    bench.data(1, b"bad")
    bench.finish()
    bench.task = bench.restored()
    bench.data(1, b"repeated")
    bench.finish()

    assert bench.entry() == KeyEntry(last_src=((0, 1),))


@both
def test_records_without_our_headers_are_applied_until_the_partition_closes(handler):
    bench = Bench(handler)
    bench.plain(b"x")
    bench.plain(b"y")
    bench.read(CloseMarker(0, 1), None)
    late = bench.plain(b"z")
    finished = bench.finish()

    assert bench.entry() == KeyEntry(value=b"xy")
    assert [letter.record for letter in finished.dead_letters] == [late]
    assert "takes only routed records" in finished.dead_letters[0].reason
    assert len(finished.receipts) == 2
    assert bench.held()["owned"] == 1

    bench.task = bench.restored()
    bench.plain(b"still closed")
    bench.read(OpenMarker(0, 1), None)
    bench.plain(b"z")
    assert len(bench.finish().dead_letters) == 1
    assert bench.entry() == KeyEntry(value=b"xyz")


def test_a_state_that_becomes_none_leaves_nothing_behind():
    bench = Bench(KeyedHandler(lambda *_: (None, None)))
    bench.state[b"ka\0\0\0\0"] = b'{"v":1,"status":"own","set":0,"last_src":{},"value_b64":"MQ=="}'
    bench.task = bench.restored()
    bench.plain(b"x")
    finished = bench.finish()

    assert finished.state == {b"ka\0\0\0\0": None}
    assert bench.held()["owned"] == 0


@pytest.mark.parametrize(
    ("what", "key", "reason"),
    [
        ((), None, "it has no key"),
        ((("tt-src", b"x"),), b"a", "tt-shard is missing"),
        (EndMarker(shard=0, gen=1, set_id=0, next_set=1, to=3), b"a", "tt-to names partition 3"),
        (EndMarker(shard=0, gen=1, set_id=0, next_set=1, to=-1), b"a", "tt-to names partition -1"),
        (
            StartMarker(shard=0, gen=1, set_id=1, source=3, end_offset=0),
            b"a",
            "tt-from names partition 3",
        ),
    ],
)
def test_a_record_that_cannot_be_followed_is_a_dead_letter_and_is_passed(what, key, reason):
    bench = Bench()
    record = bench.read(what, key)
    finished = bench.finish()

    assert [letter.record for letter in finished.dead_letters] == [record]
    assert finished.dead_letters[0].reason.startswith(f"invalid headers: {reason}")
    assert (finished.data_offset, finished.state, finished.receipts) == (6, {}, [])


# ------------------------------------------------------------ interruptions


def test_an_interrupted_record_counts_as_not_read():
    bench = Bench(stopped=True)
    bench.data(1)
    with pytest.raises(Interrupted):
        bench.data(2, b"bad")

    finished = bench.finish()
    assert (finished.data_offset, finished.records, len(finished.receipts)) == (6, 1, 1)
    assert bench.entry() == KeyEntry(value=b"1", last_src=((0, 1),))


def test_a_parked_record_that_is_interrupted_stays_parked():
    bench = Bench(stopped=True)
    bench.start(1)
    bench.data(2, b"bad", set_id=1)
    bench.hand_over(1, b"s")
    before = bench.held()
    with pytest.raises(Interrupted):
        bench.replay()

    assert bench.held() == before
    bench.finish()
    bench.task, bench.stopped = bench.restored(), False
    bench.replay()
    assert len(bench.finish().dead_letters) == 1


def test_a_full_batch_is_handled_before_the_next_record_joins_it():
    """An interrupted record must not be in the round: its offset is not."""
    failing: list[bool] = []

    def handle_batch(key, state, records):
        if failing:
            raise ValueError
        return joined_batch(key, state, records)

    bench = Bench(KeyedHandler(handle_batch=handle_batch, codec=BATCH.codec), stopped=True)
    for _ in range(500):
        bench.plain(b"x")
    failing.append(True)
    with pytest.raises(Interrupted):
        bench.plain(b"y")
    failing.clear()

    finished = bench.finish()
    assert finished.data_offset == 505
    assert len(finished.receipts) == 500
    found = bench.entry()
    assert found is not None
    assert found.value == b"x" * 500


def test_a_round_of_the_batch_form_that_is_interrupted_is_lost():
    bench = Bench(BATCH, stopped=True)
    bench.data(1, b"bad")

    with pytest.raises(Interrupted):
        bench.finish()


# ------------------------------------------------------------ the batch form


def test_the_batch_form_gets_the_records_of_a_key_at_once():
    seen = []

    def handle_batch(key, state, records):
        seen.append((key, [record.value for record in records]))
        return joined_batch(key, state, records)

    handler = KeyedHandler(handle_batch=handle_batch, codec=BATCH.codec, chain_of=bytes.decode)
    bench = Bench(handler)
    for src, key in enumerate([b"a", b"b", b"a", b"a"], 1):
        bench.data(src, key=key)
    bench.end(7)
    bench.data(9, key=b"b")
    finished = bench.finish()

    assert seen == [(b"a", [b"1", b"3", b"4"]), (b"b", [b"2", b"9"])]
    assert [receipt.chain for receipt in finished.receipts] == [None, None, "134", None, "29"]
    assert b'"value_b64":"MTM0"' in (finished.handovers[0].value or b"")


def test_a_batch_that_fails_is_handled_record_by_record():
    bench = Bench(BATCH)
    bench.data(1)
    bench.data(2, b"bad")
    bench.data(3)
    finished = bench.finish()

    assert bench.entry() == KeyEntry(value=b"13", last_src=((0, 3),))
    assert len(finished.dead_letters) == 1
    assert [output.value for output in finished.outputs] == [b"1", b"3"]


# ------------------------------------------------------------ fences


def test_records_of_a_fenced_generation_are_dropped_also_after_a_restart():
    bench = Bench()
    bench.data(1)
    bench.read(FenceMarker(shard=0, gen=2), None)
    bench.data(2)
    bench.end(7)
    finished = bench.finish()

    assert finished.state[FENCE_KEY] == b'{"v":1,"gen":{"0":2},"open":{"0":true}}'
    assert bench.task.counts.dropped == {DropReason.FENCED: 2}
    assert finished.handovers == []
    bench.task = bench.restored()
    bench.data(3)
    bench.data(4, gen=2)
    bench.finish()
    assert bench.entry() == KeyEntry(value=b"14", last_src=((0, 4),))


@pytest.mark.parametrize("restart", [False, True])
def test_a_fence_with_an_offset_forgets_entries_that_tell_nothing_more(restart):
    bench = Bench(KeyedHandler(lambda key, *_: (1 if key == b"valued" else None, ())))
    bench.data(1, key=b"old")
    bench.data(1, key=b"valued")
    bench.data(9, key=b"new")
    bench.data(1, key=b"other shard", shard=1)
    bench.start(3, key=b"moved")
    bench.hand_over(3, None, key=b"moved")
    bench.finish()
    if restart:
        bench.task = bench.restored()
    before = bench.held()["owned"]
    bench.read(FenceMarker(shard=0, gen=2, committed=5), None)
    finished = bench.finish()

    assert [key for key, value in finished.state.items() if value is None] == [b"kold\0\0\0\0"]
    assert bench.held()["owned"] == before - 1
    bench.task = bench.restored()
    assert bench.held()["owned"] == before - 1


def test_a_key_that_was_forgotten_begins_anew():
    bench = Bench(KeyedHandler(lambda key, *_: (None, ())))
    bench.data(1)
    bench.finish()
    bench.read(FenceMarker(shard=0, gen=2, committed=5), None)
    bench.data(6, gen=2)
    finished = bench.finish()

    assert bench.entry() == KeyEntry(last_src=((0, 6),))
    assert len(finished.receipts) == 1
    assert bench.held()["owned"] == 1


def test_a_fence_without_an_offset_forgets_nothing():
    bench = Bench(KeyedHandler(lambda *_: (None, ())))
    bench.data(1)
    bench.finish()
    bench.read(FenceMarker(shard=0, gen=2), None)

    assert list(bench.finish().state) == [FENCE_KEY]


# ------------------------------------------------------------ restoring


def test_counts_after_a_restore_are_those_before():
    bench = Bench(limit=2)
    bench.data(1, b"a large state", key=b"large")
    bench.data(1, b"bad", key=b"empty")
    bench.data(1, key=b"gone")
    bench.end(7, key=b"gone")
    bench.start(3)
    bench.data(4, set_id=3)
    bench.end(9)
    bench.hand_over(5, b"early", key=b"early")
    bench.finish()
    before = bench.held()

    bench.task = bench.restored()

    assert before == bench.held()
    assert {name: n for name, n in before.items() if name != "parked_bytes"} == {
        "owned": 2,
        "waiting": 1,
        "left": 1,
        "parked_records": 2,
        "early": 1,
    }
    assert bench.task.finish_round().is_empty


def test_a_task_that_was_restored_goes_on_with_its_replay():
    bench = Bench()
    bench.start(3)
    for src in (4, 5, 6):
        bench.data(src, set_id=3)
    bench.hand_over(3, b"s")
    bench.replay(most=1)
    bench.finish()
    bench.task = bench.restored()

    assert bench.task.is_replaying
    bench.data(7, set_id=3)
    bench.replay()
    bench.finish()
    assert bench.entry() == KeyEntry(set_id=3, value=b"s4567", last_src=((0, 7),))


def test_a_smaller_state_takes_away_the_chunks_of_a_larger_one_after_a_restore():
    bench = Bench(
        KeyedHandler(lambda k, s, record: (record.value, ()), codec=SINGLE.codec), limit=2
    )
    bench.data(1, b"abcdef")
    bench.finish()
    bench.task = bench.restored()
    bench.data(2, b"ab")
    finished = bench.finish()

    assert [value is None for value in finished.state.values()] == [False, True, True]


def test_an_empty_round_writes_nothing():
    finished = Bench().task.finish_round()

    assert finished.is_empty
    assert not finished.writes
    assert all(not getattr(finished, field.name) for field in fields(finished))
