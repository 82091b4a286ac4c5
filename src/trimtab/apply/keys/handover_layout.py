"""Records of `.handover`, and of hand-overs in `.state` that came before their START.

Promise  A state larger than the limit is several chunks; `HandoverAssembly` gives it when all of
         them were read, in whatever order, and says how far offsets may be committed meanwhile.

`.handover`   key + set + chunk    a state on its way; a tombstone when it was adopted
`.state`      h + key + set        an early hand-over; chunk 0 of its state
              c + key + set + n    a later chunk of it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trimtab.apply.keys.chunks import handover_key, join_state, split_state
from trimtab.apply.keys.key_entry import KeyHandover
from trimtab.apply.keys.stored_json import (
    BROKEN,
    BrokenState,
    StoredWrite,
    count_of,
    node_of,
    sources_of,
    to_base64,
    value_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverChunk:
    """One record of `.handover`."""

    key: bytes
    set_id: int
    chunk: int
    text: bytes | None


def handover_chunk(key: bytes, text: bytes | None) -> HandoverChunk:
    """Takes the record key of `.handover` apart."""
    if len(key) < 12:
        raise BrokenState(f"invalid key of a hand-over: {key!r}")
    set_id, chunk = int.from_bytes(key[-12:-4], "big"), int.from_bytes(key[-4:], "big")
    return HandoverChunk(key=key[:-12], set_id=set_id, chunk=chunk, text=text)


def handover_writes(
    key: bytes, handover: KeyHandover[bytes], limit_bytes: int
) -> tuple[StoredWrite, ...]:
    """The records of a hand-over, chunk by chunk."""
    value = handover.value
    texts = _handover_texts(
        handover, (value,) if value is None else split_state(value, limit_bytes)
    )
    return tuple(
        (handover_key(key, handover.set_id, number), text) for number, text in enumerate(texts)
    )


def _handover_texts(
    handover: KeyHandover[bytes], parts: Sequence[bytes | None]
) -> tuple[bytes, ...]:
    return tuple(
        _handover_text(handover, part, number, len(parts)) for number, part in enumerate(parts)
    )


def _handover_text(handover: KeyHandover[bytes], part: bytes | None, chunk: int, of: int) -> bytes:
    node: dict[str, Any] = {
        "v": 1,
        "set": handover.set_id,
        "from": handover.source,
        "last_src": {str(shard): src for shard, src in handover.last_src},
        "chunk": chunk,
        "of": of,
        "value_b64": to_base64(part),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def handover_tombstones(key: bytes, set_id: int, count: int) -> tuple[StoredWrite, ...]:
    """What an adoption writes to `.handover`."""
    return tuple((handover_key(key, set_id, number), None) for number in range(count))


class HandoverAssembly:
    """Puts the chunks of hand-overs together as they are read.

    `offset` is the oldest one that is still needed: a hand-over of several chunks may lie between
    those of other tasks, and a commit must not pass its first chunk before it is complete.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[bytes, int], dict[int, tuple[int, bytes]]] = {}

    def add(self, chunk: HandoverChunk, offset: int) -> tuple[KeyHandover[bytes], int] | None:
        """The hand-over and its number of chunks, once the last of them is here."""
        name = (chunk.key, chunk.set_id)
        if chunk.text is None:  # adopted before: nothing to put together
            self._open.pop(name, None)
            return None
        of = count_of(node_of(chunk.text))
        known = self._open.setdefault(name, {})
        known[chunk.chunk] = (offset, chunk.text)
        if any(number not in known for number in range(of)):
            return None
        del self._open[name]
        handover = handover_of([known[number][1] for number in range(of)])
        if handover.set_id != chunk.set_id:
            raise BrokenState(f"a hand-over of set {handover.set_id} under set {chunk.set_id}")
        return handover, of

    @property
    def offset(self) -> int | None:
        """The oldest offset of an incomplete hand-over."""
        found = [offset for parts in self._open.values() for offset, _ in parts.values()]
        return min(found, default=None)


def handover_of(texts: list[bytes]) -> KeyHandover[bytes]:
    """The hand-over of the texts of all its chunks."""
    nodes = [node_of(text) for text in texts]
    try:
        first = nodes[0]
        parts = {number: value_of(node) for number, node in enumerate(nodes)}
        return KeyHandover(
            set_id=int(first["set"]),
            source=int(first["from"]),
            value=_joined(parts, len(nodes)),
            last_src=sources_of(first["last_src"]),
        )
    except BROKEN as error:
        raise BrokenState(f"invalid hand-over: {error!r}") from error


def _joined(parts: dict[int, bytes | None], count: int) -> bytes | None:
    if count == 1:
        return parts[0]
    return join_state({number: part or b"" for number, part in parts.items()}, count)


def held_writes(key: bytes, handover: KeyHandover[bytes], count: int) -> tuple[StoredWrite, ...]:
    """What keeps an early hand-over in `.state`.

    It has as many chunks as in `.handover`, whatever this consumer's limit is: the number names the
    tombstones of both when it is adopted.
    """
    value = handover.value
    parts: Sequence[bytes | None] = (value,)
    if value is not None and count > 1:
        cuts = [len(value) * number // count for number in range(count + 1)]
        parts = [value[start:end] for start, end in pairwise(cuts)]
    texts = _handover_texts(handover, parts)
    return tuple(zip(_held_keys(key, handover.set_id, count), texts, strict=True))


def held_tombstones(key: bytes, set_id: int, count: int) -> tuple[StoredWrite, ...]:
    """What an adopted early hand-over leaves in `.state`."""
    return tuple((name, None) for name in _held_keys(key, set_id, count))


def _held_keys(key: bytes, set_id: int, count: int) -> tuple[bytes, ...]:
    first = key + set_id.to_bytes(8, "big")
    later = (b"c" + first + number.to_bytes(4, "big") for number in range(1, count))
    return (b"h" + first, *later)
