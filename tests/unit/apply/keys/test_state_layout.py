"""What a task writes to `.state` is what its successor restores, with the bytes of the contract."""

from __future__ import annotations

import json
from base64 import b64encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.apply.keys.handover_layout import held_tombstones, held_writes
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry, KeyHandover
from trimtab.apply.keys.partition_fences import PartitionFences, ShardFence
from trimtab.apply.keys.state_layout import (
    FENCE_KEY,
    TOPIC_KEY,
    RestoredState,
    chunk_count,
    entry_of,
    entry_text,
    entry_writes,
    fence_text,
    fences_of,
    has_left,
    has_no_value,
    is_waiting,
    parked_key,
    parked_record,
    parked_text,
    topic_text,
)
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.model.record import Record

offsets = st.integers(0, 2**63 - 1)
sources = st.dictionaries(st.integers(0, 9), offsets, max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
owned = st.builds(
    KeyEntry,
    set_id=offsets,
    value=st.none() | st.binary(max_size=50),
    last_src=sources,
)
waiting = st.builds(
    KeyEntry,
    status=st.just(EntryStatus.WAIT),
    set_id=offsets,
    awaited=st.builds(AwaitedEnd, st.integers(0, 99), st.integers(-1, 2**62)),
)
left = st.builds(KeyEntry, status=st.just(EntryStatus.LEFT), set_id=offsets)
keys = st.binary(max_size=14) | st.sampled_from([b"", FENCE_KEY, TOPIC_KEY, b"k" + bytes(4)])


def restored(writes):
    found = RestoredState()
    for key, value in writes:
        found.add(key, value)
    found.finish()
    return found


# ------------------------------------------------------------ entries


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            KeyEntry(set_id=17, value=b"ab", last_src=((0, 812),)),
            b'{"v":1,"status":"own","set":17,"last_src":{"0":812},"value_b64":"YWI="}',
        ),
        (
            KeyEntry(last_src=((0, 1), (2, 3))),
            b'{"v":1,"status":"own","set":0,"last_src":{"0":1,"2":3}}',
        ),
        (KeyEntry(value=b""), b'{"v":1,"status":"own","set":0,"last_src":{},"value_b64":""}'),
        (KeyEntry(status=EntryStatus.LEFT, set_id=17), b'{"v":1,"status":"left","set":17}'),
        (
            KeyEntry(status=EntryStatus.WAIT, set_id=17, awaited=AwaitedEnd(3, 40)),
            b'{"v":1,"status":"wait","set":17,"from":3,"end":40}',
        ),
    ],
)
def test_an_entry_has_the_text_of_the_contract(entry, text):
    assert entry_text(entry) == text
    assert entry_of(text) == entry


@given(owned | waiting | left)
def test_an_entry_survives(entry):
    text = entry_text(entry)

    assert entry_of(text) == entry
    assert entry_of(json.dumps(json.loads(text)).encode()) == entry  # any JSON will do
    assert is_waiting(text) is (entry.status is EntryStatus.WAIT)
    assert has_left(text) is (entry.status is EntryStatus.LEFT)
    assert has_no_value(text) is (entry.value is None)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"v":2,"status":"own","set":1,"last_src":{}}',
        b'{"v":1}',
        b'{"v":1,"status":"gone","set":1}',
        b'{"v":1,"status":"own"}',
        b'{"v":1,"status":"own","set":"x","last_src":{}}',
        b'{"v":1,"status":"own","set":1,"last_src":[1]}',
        b'{"v":1,"status":"own","set":1,"last_src":{"a":1}}',
        b'{"v":1,"status":"own","set":1,"last_src":{},"value_b64":"a"}',
        b'{"v":1,"status":"own","set":1,"last_src":{},"value_b64":"=ab"}',
        b'{"v":1,"status":"own","set":1,"last_src":{},"value_b64":7}',
        b'{"v":1,"status":"own","set":1,"last_src":{},"of":2,"value_b64":"YWI="}',
        b'{"v":1,"status":"wait","set":1}',
    ],
)
def test_an_entry_that_cannot_be_read_is_a_broken_state(text):
    with pytest.raises(BrokenState):
        entry_of(text)


def writes_of(key, entry, *, limit, before=1):
    text = entry_text(entry)
    return list(entry_writes(key, entry, text, chunks_before=before, limit_bytes=limit))


def test_a_large_state_is_several_records_with_keys_of_their_own():
    entry = KeyEntry(set_id=17, value=b"abcde", last_src=((0, 8),))

    def part(text):
        return b64encode(text)

    assert writes_of(b"key", entry, limit=2, before=5) == [
        (
            b"kkey\0\0\0\0",
            b'{"v":1,"status":"own","set":17,"last_src":{"0":8},"of":3,"value_b64":"%b"}'
            % part(b"ab"),
        ),
        (b"kkey\0\0\0\x01", b'{"v":1,"value_b64":"%b"}' % part(b"cd")),
        (b"kkey\0\0\0\x02", b'{"v":1,"value_b64":"%b"}' % part(b"e")),
        (b"kkey\0\0\0\x03", None),
        (b"kkey\0\0\0\x04", None),
    ]


def test_the_chunks_of_a_value():
    assert [chunk_count(v, 2) for v in (None, b"", b"a", b"ab", b"abc")] == [1, 1, 1, 1, 2]


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"", b"k\0"]), owned | waiting | left), max_size=12),
    st.integers(1, 20),
    st.integers(0, 99),
)
def test_the_newest_entry_of_each_key_is_restored(history, limit, seed):
    log: list[tuple[bytes, bytes | None]] = []
    chunks: dict[bytes, int] = {}
    for key, entry in history:
        log += writes_of(key, entry, limit=limit, before=chunks.get(key, 1))
        chunks[key] = chunk_count(entry.value, limit)
    compacted = [(key, value) for key, value in dict(log).items() if value is not None]
    Random(seed).shuffle(compacted)

    for found in (restored(log), restored(compacted)):
        assert {key: entry_of(text) for key, text in found.entries.items()} == dict(history)
        assert found.chunks == {key: count for key, count in chunks.items() if count > 1}


def test_an_entry_that_goes_takes_all_its_chunks():
    large = writes_of(b"a", KeyEntry(value=b"abcde"), limit=2)
    gone = list(entry_writes(b"a", KeyEntry(), None, chunks_before=3, limit_bytes=2))

    assert [value for _, value in gone] == [None] * 3
    assert not restored([*large, *gone]).entries


@pytest.mark.parametrize("missing", [1, 2])
def test_a_state_without_one_of_its_chunks_is_broken(missing):
    log = writes_of(b"a", KeyEntry(value=b"abcde"), limit=2)
    del log[missing]

    with pytest.raises(BrokenState, match="not complete"):
        restored(log)


def test_a_state_with_its_first_chunk_only_is_not_taken_as_whole():
    found = restored(writes_of(b"a", KeyEntry(value=b"abcde"), limit=2)[:1])

    with pytest.raises(BrokenState, match="lacks all but the first"):
        entry_of(found.entries[b"a"])


# ------------------------------------------------------------ parked records


headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=3).map(tuple)


@given(keys, offsets, st.none() | st.binary(max_size=20), headers, st.integers(-1, 2**40))
def test_a_parked_record_survives(key, offset, value, found_headers, timestamp_ms):
    record = Record("orders", 3, offset, key, value, found_headers, timestamp_ms)

    assert parked_record("orders", 3, key, parked_text(record)) == record


def test_a_parked_record_has_the_bytes_of_the_contract():
    record = Record("orders", 3, 9, b"a", b"v", (("tt-src", b"\0\x01"),), 5)

    assert parked_key(b"a", 258) == b"pa\0\0\0\0\0\0\x01\x02"
    assert parked_text(record) == (
        b'{"v":1,"offset":9,"ts":5,"headers":[["tt-src","AAE="]],"value_b64":"dg=="}'
    )


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"v":3}',
        b'{"v":1,"offset":9,"ts":5,"headers":[]}',
        b'{"v":1,"offset":null,"ts":5,"headers":[],"value_b64":null}',
        b'{"v":1,"offset":9,"ts":5,"headers":[1],"value_b64":null}',
        b'{"v":1,"offset":9,"ts":5,"headers":[["a","%"]],"value_b64":null}',
    ],
)
def test_a_parked_record_that_cannot_be_read_is_a_broken_state(text):
    with pytest.raises(BrokenState):
        parked_record("orders", 3, b"a", text)


# ------------------------------------------------------------ reserved keys


def test_fences_have_the_text_of_the_contract():
    fences = PartitionFences((ShardFence(0, 4, is_open=False), ShardFence(1, 2)))
    text = b'{"v":1,"gen":{"0":4,"1":2},"open":{"0":false,"1":true}}'

    assert fence_text(fences) == text
    assert fences_of(text) == fences


@pytest.mark.parametrize("text", [b"1", b'{"v":1}', b'{"v":1,"gen":{"0":4},"open":{}}'])
def test_fences_that_cannot_be_read_are_a_broken_state(text):
    with pytest.raises(BrokenState):
        restored([(FENCE_KEY, text)])


def test_reserved_records_are_restored_and_unknown_ones_are_left_alone():
    fences = PartitionFences((ShardFence(0, 4, is_open=False),))
    log = [(FENCE_KEY, fence_text(fences)), (TOPIC_KEY, topic_text("Zx")), (b"\0new", b"?")]

    found = restored(log)

    assert (found.fences, found.topic_id, found.records) == (fences, "Zx", 3)
    assert restored([*log, (FENCE_KEY, None), (TOPIC_KEY, None)]).topic_id is None
    assert not found.entries


def test_a_topic_id_that_is_no_text_is_a_broken_state():
    with pytest.raises(BrokenState):
        restored([(TOPIC_KEY, b'{"v":1,"topic":null}')])


# ------------------------------------------------------------ restoring all of it


@given(
    st.dictionaries(keys, owned | waiting | left, max_size=4),
    st.dictionaries(st.tuples(keys, st.integers(0, 300)), st.binary(max_size=4), max_size=4),
    st.dictionaries(st.tuples(keys, offsets), st.binary(max_size=30), max_size=4),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_keys_of_any_bytes_do_not_mix(entries, parked, held, limit, seed):
    log: list[tuple[bytes, bytes | None]] = []
    for key, entry in entries.items():
        log += writes_of(key, entry, limit=limit)
    for (key, number), value in parked.items():
        log.append((parked_key(key, number), value))
    handovers: dict[bytes, dict[int, tuple[KeyHandover[bytes], int]]] = {}
    for (key, set_id), value in held.items():
        handover = KeyHandover(set_id=set_id, source=1, value=value)
        count = chunk_count(value, limit)
        handovers.setdefault(key, {})[set_id] = (handover, count)
        log += held_writes(key, handover, count)
    assert len(dict(log)) == len(log)
    Random(seed).shuffle(log)

    found = restored(log)

    assert {key: entry_of(text) for key, text in found.entries.items()} == entries
    stored = {(key, n): text for key, texts in found.parked.items() for n, text in texts.items()}
    assert stored == parked
    assert found.held == handovers
    for (key, set_id), value in held.items():
        log += held_tombstones(key, set_id, chunk_count(value, limit))
    assert not restored(log).held


def test_a_held_handover_without_one_of_its_chunks_is_broken():
    log = held_writes(b"a", KeyHandover(set_id=4, source=1, value=b"abc"), 3)

    with pytest.raises(BrokenState, match="not complete"):
        restored(log[:2])
    assert not restored(log[1:]).held  # chunks that a tombstone of the first has made needless


@pytest.mark.parametrize("key", [b"k", b"k123", b"p1234567", b"h", b"c0123456789"])
def test_a_record_key_that_is_too_short_is_a_broken_state(key):
    with pytest.raises(BrokenState, match="record key"):
        restored([(key, b"{}")])
