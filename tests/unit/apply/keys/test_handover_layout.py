"""Hand-overs as records: cut into chunks, and put together in whatever order they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.apply.keys.handover_layout import (
    HandoverAssembly,
    handover_chunk,
    handover_tombstones,
    handover_writes,
    held_tombstones,
    held_writes,
)
from trimtab.apply.keys.key_entry import KeyHandover
from trimtab.apply.keys.stored_json import BrokenState


def handover(value, set_id=17):
    return KeyHandover(set_id=set_id, source=3, value=value, last_src=((0, 812),))


def added(assembly, writes, offset=0):
    """What the assembly answers to each record."""
    return [
        assembly.add(handover_chunk(key, text), at) for at, (key, text) in enumerate(writes, offset)
    ]


def test_a_handover_has_the_bytes_of_the_contract():
    assert handover_writes(b"a", handover(b"ab"), 10) == (
        (
            b"a" + bytes(7) + b"\x11" + bytes(4),
            b'{"v":1,"set":17,"from":3,"last_src":{"0":812},"chunk":0,"of":1,"value_b64":"YWI="}',
        ),
    )
    assert handover_tombstones(b"a", 17, 1) == ((b"a" + bytes(7) + b"\x11" + bytes(4), None),)


def test_chunks_say_which_and_of_how_many():
    (first, second) = handover_writes(b"a", handover(b"abc"), 2)

    assert first[0][-4:] == bytes(4)
    assert second[0][-4:] == b"\0\0\0\x01"
    assert b'"chunk":0,"of":2,"value_b64":"YWI="' in (first[1] or b"")
    assert b'"chunk":1,"of":2,"value_b64":"Yw=="' in (second[1] or b"")
    assert [key for key, _ in handover_tombstones(b"a", 17, 2)] == [first[0], second[0]]


@given(
    st.binary(max_size=15),
    st.none() | st.binary(max_size=40),
    st.integers(0, 2**63 - 1),
    st.integers(1, 50),
    st.randoms(use_true_random=False),
)
def test_a_handover_survives_in_any_order_of_its_chunks(key, value, set_id, limit, random):
    sent = handover(value, set_id)
    writes = list(handover_writes(key, sent, limit))
    random.shuffle(writes)
    assembly = HandoverAssembly()

    *before, last = added(assembly, writes)

    assert before == [None] * (len(writes) - 1)
    assert last == (sent, len(writes))
    assert assembly.offset is None


def test_offsets_stay_at_the_first_chunk_of_the_oldest_incomplete_handover():
    assembly = HandoverAssembly()
    one, two = handover_writes(b"a", handover(b"abc"), 2), handover_writes(b"b", handover(b"d"), 2)
    three = handover_writes(b"c", handover(b"xyz"), 2)

    seen = []
    for at, write in enumerate([one[0], three[0], two[0], one[1], three[1]]):
        added(assembly, [write], at)
        seen.append(assembly.offset)

    assert seen == [0, 0, 0, 1, None]


def test_a_tombstone_ends_what_was_incomplete():
    assembly = HandoverAssembly()
    writes = handover_writes(b"a", handover(b"abcde"), 2)
    added(assembly, writes[1:])

    assert added(assembly, handover_tombstones(b"a", 17, 3)) == [None] * 3
    assert assembly.offset is None


@given(st.binary(max_size=9), st.binary(min_size=1, max_size=60), st.integers(1, 60))
def test_an_early_handover_is_held_in_as_many_chunks_as_it_came(key, value, count):
    count = min(count, len(value))
    writes = held_writes(key, handover(value), count)

    assert len(writes) == count
    assert [name for name, _ in writes] == [name for name, _ in held_tombstones(key, 17, count)]


def test_an_early_handover_without_a_value_is_one_record():
    ((key, text),) = held_writes(b"a", handover(None), 1)

    assert key == b"ha" + bytes(7) + b"\x11"
    assert text == (
        b'{"v":1,"set":17,"from":3,"last_src":{"0":812},"chunk":0,"of":1,"value_b64":null}'
    )


def test_later_chunks_of_an_early_handover_have_keys_of_their_own():
    first, second = held_writes(b"a", handover(b"abc"), 2)

    assert first[0] == b"ha" + bytes(7) + b"\x11"
    assert second[0] == b"ca" + bytes(7) + b"\x11" + b"\0\0\0\x01"


@pytest.mark.parametrize("key", [b"", bytes(11)])
def test_a_record_key_that_is_too_short_is_a_broken_state(key):
    with pytest.raises(BrokenState, match="invalid key"):
        handover_chunk(key, b"{}")


@pytest.mark.parametrize(
    "text",
    [
        b"nothing",
        b'{"v":7}',
        b'{"v":1,"of":0}',
        b'{"v":1,"of":"2"}',
        b'{"v":1,"of":1}',
        b'{"v":1,"set":17,"from":3,"last_src":[1],"chunk":0,"of":1,"value_b64":"YWI="}',
        b'{"v":1,"set":17,"from":3,"last_src":{},"chunk":0,"of":1,"value_b64":"Y"}',
        b'{"v":1,"set":18,"from":3,"last_src":{},"chunk":0,"of":1,"value_b64":"YWI="}',
    ],
)
def test_a_handover_that_cannot_be_read_is_a_broken_state(text):
    key = handover_tombstones(b"a", 17, 1)[0][0]

    with pytest.raises(BrokenState):
        added(HandoverAssembly(), [(key, text)])
