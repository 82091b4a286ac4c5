"""States in chunks."""

from __future__ import annotations

import pytest

from trimtab.apply.keys.chunks import (
    handover_key,
    join_state,
    split_state,
    state_key,
    surplus_chunks,
)


@pytest.mark.parametrize(
    ("value", "chunks"), [(b"", (b"",)), (b"abcd", (b"ab", b"cd")), (b"abc", (b"ab", b"c"))]
)
def test_a_state_is_split_and_joined(value, chunks):
    assert split_state(value, 2) == chunks
    assert join_state(dict(enumerate(chunks)), len(chunks)) == value


def test_a_state_with_a_missing_chunk_is_not_joined():
    assert join_state({0: b"ab", 2: b"e"}, 3) is None


def test_chunks_of_a_larger_state_before_are_removed():
    assert list(surplus_chunks(4, 2)) == [2, 3]
    assert list(surplus_chunks(2, 4)) == []


def test_every_chunk_has_a_record_key_of_its_own():
    assert handover_key(b"a", 17, 2) == b"a" + bytes(7) + b"\x11" + bytes(3) + b"\x02"
    assert state_key(b"a", 2) == b"ka" + bytes(3) + b"\x02"


def test_a_chunk_holds_something():
    with pytest.raises(ValueError, match="one byte"):
        split_state(b"a", 0)
