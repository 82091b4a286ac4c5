"""Large states in numbered chunks, each under a record key of its own.

Promise  Compaction keeps the newest record of every record key, so all chunks of a state survive;
         chunks of an older, larger state are named by `surplus_chunks` and get tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping

_SET_BYTES = 8
_CHUNK_BYTES = 4


def split_state(value: bytes, limit_bytes: int) -> tuple[bytes, ...]:
    """A state in chunks of at most `limit_bytes`; an empty state is one empty chunk."""
    if limit_bytes < 1:
        raise ValueError("A chunk must hold at least one byte.")
    size = max(1, len(value))
    return tuple(value[at : at + limit_bytes] for at in range(0, size, limit_bytes))


def join_state(chunks: Mapping[int, bytes], count: int) -> bytes | None:
    """The state of `count` chunks; None while one is missing."""
    if any(number not in chunks for number in range(count)):
        return None
    return b"".join(chunks[number] for number in range(count))


def surplus_chunks(before: int, after: int) -> range:
    """The chunks of an older state that the newer one does not overwrite."""
    return range(after, max(before, after))


def handover_key(key: bytes, set_id: int, chunk: int) -> bytes:
    """The record key of a chunk in `.handover`."""
    return key + set_id.to_bytes(_SET_BYTES, "big") + chunk.to_bytes(_CHUNK_BYTES, "big")


def state_key(key: bytes, chunk: int) -> bytes:
    """The record key of a chunk in `.state`."""
    return b"k" + key + chunk.to_bytes(_CHUNK_BYTES, "big")
