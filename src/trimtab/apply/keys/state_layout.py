r"""Records of `.state`: how entries and parked records are stored, and how they are restored.

Promise  What a task writes is what its successor restores. All record keys end in parts of fixed
         length, so any bytes may be a key. A state larger than the limit is several chunks, each
         under a record key of its own; chunk 0 says how many there are.
Cost     Restoring keeps the stored text of an entry as it is: it is parsed when its key is used.

`.state`      k + key + chunk      an entry: own, wait or left; later chunks hold only their part
              p + key + number     a parked record
              h, c                 early hand-overs: see `handover_layout`
              \x00fence             generations of the shards, and which have closed the partition
              \x00topic             the id of the data topic that the offsets belong to
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, MutableMapping
from typing import Any

from trimtab.apply.keys.chunks import join_state, split_state, state_key
from trimtab.apply.keys.handover_layout import handover_of
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry, KeyHandover
from trimtab.apply.keys.partition_fences import PartitionFences, ShardFence
from trimtab.apply.keys.stored_json import (
    BROKEN,
    BrokenState,
    StoredWrite,
    count_of,
    from_base64,
    node_of,
    sources_of,
    to_base64,
    value_of,
)
from trimtab.model.record import Record

FENCE_KEY = b"\x00fence"
TOPIC_KEY = b"\x00topic"

_CHUNK_0 = bytes(4)
_OWN, _WAIT, _LEFT = (
    f'{{"v":1,"status":"{status}"'.encode()
    for status in (EntryStatus.OWN, EntryStatus.WAIT, EntryStatus.LEFT)
)

_SMALL = re.compile(
    rb'\{"v":1,"status":"own","set":(\d+),"last_src":\{(?:"(\d+)":(\d+))?\}'
    rb'(?:,"value_b64":"([A-Za-z0-9+/]*={0,2})")?\}'
)
"""An entry that is owned, with records of at most one shard."""


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
    found = _SMALL.fullmatch(text)
    if found is not None:  # almost every entry: without the cost of a general parser
        set_id, shard, src, value = found.groups()
        return KeyEntry(
            set_id=int(set_id),
            value=None if value is None else from_base64(value),
            last_src=() if shard is None else ((int(shard), int(src)),),
        )
    node = node_of(text)
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
            value=value_of(node),
            last_src=sources_of(node.get("last_src") or {}),
            awaited=awaited,
        )
    except BROKEN as error:
        raise BrokenState(f"invalid entry: {error!r}") from error


def entry_writes(
    key: bytes, entry: KeyEntry[bytes], text: bytes | None, *, chunks_before: int, limit_bytes: int
) -> Iterator[StoredWrite]:
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
        "headers": [[name, to_base64(value)] for name, value in record.headers],
        "value_b64": to_base64(record.value),
    }
    return json.dumps(node, separators=(",", ":")).encode()


def parked_record(topic: str, partition: int, key: bytes, text: bytes) -> Record:
    """The record of a text of `parked_text`."""
    node = node_of(text)
    try:
        headers = tuple((str(name), from_base64(value) or b"") for name, value in node["headers"])
        value = from_base64(node["value_b64"])
        return Record(topic, partition, int(node["offset"]), key, value, headers, int(node["ts"]))
    except BROKEN as error:
        raise BrokenState(f"invalid parked record: {error!r}") from error


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
    node = node_of(text)
    try:
        fences = (
            ShardFence(int(shard), int(gen), bool(node["open"][shard]))
            for shard, gen in node["gen"].items()
        )
        return PartitionFences(tuple(sorted(fences, key=lambda fence: fence.shard)))
    except BROKEN as error:
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
        if kind == b"k" and key[-4:] == _CHUNK_0:
            _put(self.entries, key[1:-4], value)
            return
        name, number = _taken_apart(key)
        if kind == b"k":
            _put(self._parts.setdefault(name, {}), number, value)
        elif kind == b"p":
            _put(self.parked.setdefault(name, {}), number, value)
        elif kind == b"h":
            _put(self._held_texts.setdefault((name, number), {}), 0, value)
        elif kind == b"c":
            held = (name[:-8], int.from_bytes(name[-8:], "big"))
            _put(self._held_texts.setdefault(held, {}), number, value)
        elif key == FENCE_KEY:
            self.fences = PartitionFences() if value is None else fences_of(value)
        elif key == TOPIC_KEY:
            self.topic_id = None if value is None else _topic_of(value)

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
            of = count_of(node_of(texts[0]))
            if any(number not in texts for number in range(of)):
                raise BrokenState(f"the hand-over {set_id} of key {key!r} is not complete")
            handover = handover_of([texts[number] for number in range(of)])
            self.held.setdefault(key, {})[set_id] = (handover, of)
        self._parts, self._held_texts = {}, {}

    def _join(self, key: bytes, text: bytes, parts: dict[int, bytes]) -> None:
        node = node_of(text)
        of = count_of(node)
        if of == 1:
            return
        found = {0: value_of(node) or b""}
        found |= {number: value_of(node_of(part)) or b"" for number, part in parts.items()}
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


_NUMBER_BYTES = {b"k": 4, b"p": 8, b"h": 8, b"c": 4}


def _taken_apart(key: bytes) -> tuple[bytes, int]:
    """What lies between the first byte of a record key and its number, and the number."""
    count = _NUMBER_BYTES.get(key[:1], 0)
    if len(key) <= count or (key[:1] == b"c" and len(key) < 13):
        raise BrokenState(f"invalid record key: {key!r}")
    return (key[1:-count], int.from_bytes(key[-count:], "big")) if count else (key, 0)


def _topic_of(text: bytes) -> str:
    topic = node_of(text).get("topic")
    if not isinstance(topic, str):
        raise BrokenState(f"invalid topic id: {topic!r}")
    return topic


def _put(known: Any, key: Any, value: bytes | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
