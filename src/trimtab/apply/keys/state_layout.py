r"""Records of `.state` and `.handover`: how entries, parked records and hand-overs are stored.

Promise  What a task writes is what its successor restores. All record keys end in parts of fixed
         length, so any bytes may be a key. A state larger than the limit is several chunks, each
         under a record key of its own; chunk 0 says how many there are.
Cost     Restoring keeps the stored text of an entry as it is: it is parsed when its key is used.

`.state`      k + key + chunk      an entry: own, wait or left; later chunks hold only their part
              p + key + number     a parked record
              h + key + set        a hand-over that came before its START; chunk 0 of its state
              c + key + set + n    a later chunk of it
              \x00fence             generations of the shards, and which have closed the partition
              \x00topic             the id of the data topic that the offsets belong to
`.handover`   key + set + chunk    a state on its way; a tombstone when it was adopted
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trimtab.apply.keys.chunks import handover_key, join_state, split_state, state_key
from trimtab.apply.keys.key_entry import (
    AwaitedEnd,
    EntryStatus,
    KeyEntry,
    KeyHandover,
    Sources,
)
from trimtab.apply.keys.partition_fences import PartitionFences, ShardFence
from trimtab.model.record import Record

FENCE_KEY = b"\x00fence"
TOPIC_KEY = b"\x00topic"

_CHUNK_0 = bytes(4)
_OWN, _WAIT, _LEFT = (
    f'{{"v":1,"status":"{status}"'.encode()
    for status in (EntryStatus.OWN, EntryStatus.WAIT, EntryStatus.LEFT)
)

Write = tuple[bytes, bytes | None]
"""A record key and a value; None is a tombstone."""


class BrokenState(ValueError):
    """A record of `.state` or `.handover` that this version cannot read."""


# ------------------------------------------------------------ entries


def entry_text(entry: KeyEntry[bytes]) -> bytes:
    """An entry with its whole value, as it is kept in memory; small ones are stored like this."""
    match entry.status:
        case EntryStatus.LEFT:
            return b'%b,"set":%d}' % (_LEFT, entry.set_id)
        case EntryStatus.WAIT:
            awaited = entry.awaited or AwaitedEnd(-1, -1)
            place = (_WAIT, entry.set_id, awaited.partition, awaited.offset)
            return b'%b,"set":%d,"from":%d,"end":%d}' % place
        case EntryStatus.OWN:
            return _own_text(entry, entry.value)


def _own_text(entry: KeyEntry[bytes], value: bytes | None, *, of: int = 1) -> bytes:
    sources = ",".join(f'"{shard}":{src}' for shard, src in entry.last_src).encode()
    chunks = b"" if of == 1 else b',"of":%d' % of
    text = b"" if value is None else b',"value_b64":"%b"' % b64encode(value)
    return b'%b,"set":%d,"last_src":{%b}%b%b}' % (_OWN, entry.set_id, sources, chunks, text)


def entry_of(text: bytes) -> KeyEntry[bytes]:
    """The entry of a text of `entry_text`."""
    node = _node(text)
    if "of" in node:
        raise BrokenState(f"a state of {node['of']} chunks lacks all but the first")
    return _entry(node)


def _entry(node: dict[str, Any]) -> KeyEntry[bytes]:
    try:
        status = EntryStatus(node["status"])
        awaited = None
        if status is EntryStatus.WAIT:
            awaited = AwaitedEnd(int(node["from"]), int(node["end"]))
        return KeyEntry(
            status=status,
            set_id=int(node["set"]),
            value=_value(node),
            last_src=_sources(node.get("last_src") or {}),
            awaited=awaited,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenState(f"invalid entry: {error!r}") from error


def entry_writes(
    key: bytes, entry: KeyEntry[bytes], text: bytes | None, *, chunks_before: int, limit_bytes: int
) -> Iterator[Write]:
    """The records of an entry, with tombstones for chunks of a larger one before it.

    `text` is that of `entry_text`, or None if the entry goes.
    """
    value = entry.value
    count = 1
    if value is None or len(value) <= limit_bytes:
        yield state_key(key, 0), text
    else:
        parts = split_state(value, limit_bytes)
        count = len(parts)
        yield state_key(key, 0), _own_text(entry, parts[0], of=count)
        for number in range(1, count):
            yield state_key(key, number), _part_text(parts[number])
    for number in range(count, chunks_before):
        yield state_key(key, number), None


def chunk_count(value: bytes | None, limit_bytes: int) -> int:
    """How many chunks a value takes."""
    return 1 if value is None else max(1, -(-len(value) // limit_bytes))


def _part_text(part: bytes) -> bytes:
    return b'{"v":1,"value_b64":"%b"}' % b64encode(part)


# ------------------------------------------------------------ parked records


def parked_key(key: bytes, number: int) -> bytes:
    """The record key of a parked record."""
    return b"p" + key + number.to_bytes(8, "big")


def parked_text(record: Record) -> bytes:
    """A parked record with its offset, time and headers."""
    node: dict[str, Any] = {
        "v": 1,
        "offset": record.offset,
        "ts": record.timestamp_ms,
        "headers": [[name, _b64(value)] for name, value in record.headers],
        "value_b64": _b64(record.value),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def parked_record(topic: str, partition: int, key: bytes, text: bytes) -> Record:
    """The record of a text of `parked_text`."""
    node = _node(text)
    try:
        headers = tuple((str(name), _unb64(value) or b"") for name, value in node["headers"])
        value = _unb64(node["value_b64"])
        return Record(topic, partition, int(node["offset"]), key, value, headers, int(node["ts"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenState(f"invalid parked record: {error!r}") from error


# ------------------------------------------------------------ hand-overs


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
) -> tuple[Write, ...]:
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
        "value_b64": _b64(part),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def handover_tombstones(key: bytes, set_id: int, count: int) -> tuple[Write, ...]:
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
        of = _count(_node(chunk.text))
        if of == 1:
            return _handover_of([chunk.text]), 1
        known = self._open.setdefault(name, {})
        known[chunk.chunk] = (offset, chunk.text)
        if any(number not in known for number in range(of)):
            return None
        del self._open[name]
        return _handover_of([known[number][1] for number in range(of)]), of

    @property
    def offset(self) -> int | None:
        """The oldest offset of an incomplete hand-over."""
        found = [offset for parts in self._open.values() for offset, _ in parts.values()]
        return min(found, default=None)


def _handover_of(texts: list[bytes]) -> KeyHandover[bytes]:
    nodes = [_node(text) for text in texts]
    try:
        first = nodes[0]
        parts = {number: _value(node) for number, node in enumerate(nodes)}
        return KeyHandover(
            set_id=int(first["set"]),
            source=int(first["from"]),
            value=_joined(parts, len(nodes)),
            last_src=_sources(first["last_src"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenState(f"invalid hand-over: {error!r}") from error


def _joined(parts: dict[int, bytes | None], count: int) -> bytes | None:
    if count == 1:
        return parts[0]
    return join_state({number: part or b"" for number, part in parts.items()}, count)


def held_writes(key: bytes, handover: KeyHandover[bytes], count: int) -> tuple[Write, ...]:
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


def held_tombstones(key: bytes, set_id: int, count: int) -> tuple[Write, ...]:
    """What an adopted early hand-over leaves in `.state`."""
    return tuple((name, None) for name in _held_keys(key, set_id, count))


def _held_keys(key: bytes, set_id: int, count: int) -> tuple[bytes, ...]:
    first = key + set_id.to_bytes(8, "big")
    later = (b"c" + first + number.to_bytes(4, "big") for number in range(1, count))
    return (b"h" + first, *later)


# ------------------------------------------------------------ reserved keys


def fence_text(fences: PartitionFences) -> bytes:
    """The value of the reserved key of fences."""
    node = {
        "v": 1,
        "gen": {str(fence.shard): fence.gen for fence in fences.shards},
        "open": {str(fence.shard): fence.is_open for fence in fences.shards},
    }
    return json.dumps(node, separators=(",", ":")).encode()


def fences_of(text: bytes) -> PartitionFences:
    """The fences of a text of `fence_text`."""
    node = _node(text)
    try:
        fences = (
            ShardFence(int(shard), int(gen), bool(node["open"][shard]))
            for shard, gen in node["gen"].items()
        )
        return PartitionFences(tuple(sorted(fences, key=lambda fence: fence.shard)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokenState(f"invalid fences: {error!r}") from error


def topic_text(topic_id: str) -> bytes:
    """The value of the reserved key of the data topic's id."""
    return json.dumps({"v": 1, "topic": topic_id}, separators=(",", ":")).encode()


# ------------------------------------------------------------ restoring


class RestoredState:
    """What `.state` says of a partition, read record by record from its beginning.

    `entries` are texts of `entry_text` by key. `parked` are texts by key and number. After the last
    record, `finish` puts states of several chunks together.
    """

    def __init__(self, entries: MutableMapping[bytes, bytes] | None = None) -> None:
        self.entries: MutableMapping[bytes, bytes] = {} if entries is None else entries
        self.chunks: dict[bytes, int] = {}
        self.parked: dict[bytes, dict[int, bytes]] = {}
        self.held: dict[bytes, dict[int, tuple[KeyHandover[bytes], int]]] = {}
        self.fences = PartitionFences()
        self.topic_id: str | None = None
        self.records = 0
        self._parts: dict[bytes, dict[int, bytes]] = {}
        self._held_texts: dict[tuple[bytes, int], dict[int, bytes]] = {}

    def add(self, key: bytes, value: bytes | None) -> None:
        """Takes the next record; a later one with the same key replaces it."""
        self.records += 1
        kind = key[:1]
        if kind == b"k":
            if key[-4:] == _CHUNK_0:
                _put(self.entries, key[1:-4], value)
            else:
                parts = self._parts.setdefault(key[1:-4], {})
                _put(parts, int.from_bytes(key[-4:], "big"), value)
        elif kind == b"p":
            parked = self.parked.setdefault(key[1:-8], {})
            _put(parked, int.from_bytes(key[-8:], "big"), value)
        elif kind == b"h":
            name = (key[1:-8], int.from_bytes(key[-8:], "big"))
            _put(self._held_texts.setdefault(name, {}), 0, value)
        elif kind == b"c":
            name = (key[1:-12], int.from_bytes(key[-12:-4], "big"))
            texts = self._held_texts.setdefault(name, {})
            _put(texts, int.from_bytes(key[-4:], "big"), value)
        elif key == FENCE_KEY:
            self.fences = PartitionFences() if value is None else fences_of(value)
        elif key == TOPIC_KEY:
            self.topic_id = None if value is None else str(_node(value).get("topic"))

    def finish(self) -> None:
        """Puts together what was stored in several records."""
        for key, parts in self._parts.items():
            text = self.entries.get(key)
            if text is not None and parts:
                self._join(key, text, parts)
        self.parked = {key: numbers for key, numbers in self.parked.items() if numbers}
        for (key, set_id), texts in self._held_texts.items():
            if 0 not in texts:
                continue
            of = _count(_node(texts[0]))
            if any(number not in texts for number in range(of)):
                raise BrokenState(f"the hand-over {set_id} of key {key!r} is not complete")
            handover = _handover_of([texts[number] for number in range(of)])
            self.held.setdefault(key, {})[set_id] = (handover, of)
        self._parts, self._held_texts = {}, {}

    def _join(self, key: bytes, text: bytes, parts: dict[int, bytes]) -> None:
        node = _node(text)
        of = _count(node)
        if of == 1:
            return
        found = {0: _value(node) or b""}
        found |= {number: _value(_node(part)) or b"" for number, part in parts.items()}
        value = join_state(found, of)
        if value is None:
            raise BrokenState(f"the state of key {key!r} is not complete")
        self.entries[key] = _own_text(_entry(node), value)
        self.chunks[key] = of


def is_waiting(text: bytes) -> bool:
    """Whether an entry waits for its state."""
    return text.startswith(_WAIT)


def has_left(text: bytes) -> bool:
    """Whether the state of an entry has left its partition."""
    return text.startswith(_LEFT)


def has_no_value(text: bytes) -> bool:
    """Whether an entry that is owned has no state."""
    return b'"value_b64"' not in text


def _put(known: Any, key: Any, value: bytes | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _node(text: bytes) -> dict[str, Any]:
    try:
        node = json.loads(text)
    except ValueError as error:
        raise BrokenState(f"invalid JSON: {text[:80]!r}") from error
    if not isinstance(node, dict) or node.get("v") != 1:
        raise BrokenState(f"unknown version: {text[:80]!r}")
    return node


def _count(node: dict[str, Any]) -> int:
    of = node.get("of", 1)
    if not isinstance(of, int) or of < 1:
        raise BrokenState(f"invalid number of chunks: {of!r}")
    return of


def _value(node: dict[str, Any]) -> bytes | None:
    return _unb64(node.get("value_b64"))


def _sources(node: dict[str, Any]) -> Sources:
    return tuple(sorted((int(shard), int(src)) for shard, src in node.items()))


def _b64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _unb64(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
