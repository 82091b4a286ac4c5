"""Counts what `.state` and `.handover` say, record by record, without keeping the states.

Promise  After the last record the counts are those that a task has after a restore.
Cost     A dict entry per live record key; values are not kept, and only those of waiting keys and
         parked records are parsed.
"""

from __future__ import annotations

from trimtab.apply.keys.handover_layout import handover_chunk
from trimtab.apply.keys.key_entry import AwaitedEnd
from trimtab.apply.keys.state_layout import entry_of, has_left, is_waiting, parked_record
from trimtab.evaluate.keyed_status import HandoverUnderWay, PartitionContents, WaitingKey

_CHUNK_0 = bytes(4)


class StateTally:
    """The changelog of one partition."""

    def __init__(self) -> None:
        self._entries: dict[bytes, int] = {}
        self._left: set[bytes] = set()
        self._waiting: dict[bytes, WaitingKey] = {}
        self._parked: dict[bytes, tuple[int, int]] = {}
        self._held: set[bytes] = set()
        self._others: dict[bytes, int] = {}

    def add(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Takes the next record; a later one with the same key replaces it."""
        kind = key[:1]
        if kind == b"k" and key[-4:] == _CHUNK_0:
            self._add_entry(key, value, timestamp_ms)
        elif kind == b"p":
            if value is None:
                self._parked.pop(key, None)
            else:
                size = parked_record("", 0, key[1:-8], value).size
                self._parked[key] = (size, len(key) + len(value))
        elif value is None:
            self._others.pop(key, None)
            self._held.discard(key)
        else:
            self._others[key] = len(key) + len(value)
            if kind == b"h":
                self._held.add(key)

    def _add_entry(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        if self._waiting:
            self._waiting.pop(key, None)
        self._left.discard(key)
        if value is None:
            self._entries.pop(key, None)
            return
        self._entries[key] = len(key) + len(value)
        if has_left(value):
            self._left.add(key)
        elif is_waiting(value):
            entry = entry_of(value)
            awaited = entry.awaited or AwaitedEnd(-1, -1)
            self._waiting[key] = WaitingKey(
                key=key[1:-4],
                set_id=entry.set_id,
                since_ts=timestamp_ms * 1000,
                end_partition=awaited.partition,
                end_offset=awaited.offset,
            )

    def contents(self) -> PartitionContents:
        """What the records so far amount to."""
        parked: dict[bytes, int] = {}
        for name in self._parked:
            parked[name[1:-8]] = parked.get(name[1:-8], 0) + 1
        stored = sum(self._entries.values()) + sum(self._others.values())
        return PartitionContents(
            owned=len(self._entries) - len(self._left) - len(self._waiting),
            left=len(self._left),
            waiting=tuple(sorted(self._waiting.values(), key=lambda w: (w.since_ts, w.key))),
            parked=parked,
            parked_bytes=sum(size for size, _ in self._parked.values()),
            early=len(self._held),
            state_bytes=stored + sum(size for _, size in self._parked.values()),
        )


class HandoverTally:
    """The hand-overs to one partition."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[bytes, int], dict[int, tuple[int, int]]] = {}

    def add(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Takes the next record; a tombstone says that the state was adopted."""
        chunk = handover_chunk(key, value)
        name = (chunk.key, chunk.set_id)
        if value is None:
            left = self._chunks.get(name, {})
            left.pop(chunk.chunk, None)
            if not left:
                self._chunks.pop(name, None)
        else:
            stored = (len(key) + len(value), timestamp_ms * 1000)
            self._chunks.setdefault(name, {})[chunk.chunk] = stored

    def under_way(self) -> tuple[HandoverUnderWay, ...]:
        """The states that were not adopted yet, oldest first."""
        found = [
            HandoverUnderWay(
                key=key,
                set_id=set_id,
                size_bytes=sum(size for size, _ in chunks.values()),
                since_ts=min(ts for _, ts in chunks.values()),
            )
            for (key, set_id), chunks in self._chunks.items()
        ]
        return tuple(sorted(found, key=lambda h: (h.since_ts, h.key, h.set_id)))
