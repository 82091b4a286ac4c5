"""The entries of a task: as text in a store, and as values while they are used.

Promise  `get` returns what was last `put`. `write` gives each entry that has changed since the last
         round, once, with tombstones for chunks that a smaller state does not overwrite.
Cost     An entry is parsed when its key is first used in a round. Entries that wait, park or hold a
         hand-over stay in memory as values.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from trimtab.apply.keys.key_entry import EntryStatus, KeyEntry
from trimtab.apply.keys.message_sets import FenceMarker
from trimtab.apply.keys.state_layout import (
    RestoredState,
    chunk_count,
    entry_of,
    entry_text,
    entry_writes,
    has_left,
    has_no_value,
    is_waiting,
)
from trimtab.apply.keys.task import ABSENT, can_forget
from trimtab.apply.keys.task_round import TaskCounts


class TaskEntries:
    """What a task knows of its keys; keeps `counts` of owned, waiting and left keys up to date.

    Attributes:
        live: Entries that wait, park or hold a hand-over.
        touched_bytes: About how much `write` will give.
    """

    def __init__(
        self, restored: RestoredState, counts: TaskCounts, *, max_state_bytes: int
    ) -> None:
        self.live: dict[bytes, KeyEntry[bytes]] = {}
        self.touched_bytes = 0
        self._counts = counts
        self._limit_bytes = max_state_bytes
        self._store: MutableMapping[bytes, bytes] = restored.entries
        self._chunks = restored.chunks
        self._touched: dict[bytes, KeyEntry[bytes]] = {}
        self._stateless: set[bytes] = set()
        self._restore(restored)

    def _restore(self, restored: RestoredState) -> None:
        counts = self._counts
        for key, text in self._store.items():
            if is_waiting(text):
                self.live[key] = entry_of(text)
                counts.waiting += 1
            elif has_left(text):
                counts.left += 1
            else:
                counts.owned += 1
                if has_no_value(text):
                    self._stateless.add(key)
        for key, held in restored.held.items():
            early = tuple(held[set_id][0] for set_id in sorted(held))
            self.live[key] = replace(self.get(key), early=early)
        for key, texts in restored.parked.items():
            first, last = min(texts), max(texts)
            self.live[key] = replace(self.get(key), first_parked=first, next_parked=last + 1)

    def get(self, key: bytes) -> KeyEntry[bytes]:
        """The entry of a key; `ABSENT` if it was never seen."""
        found = self._touched.get(key) or self.live.get(key)
        if found is None:
            text = self._store.get(key)
            found = ABSENT if text is None else entry_of(text)
        return found

    def put(self, key: bytes, before: KeyEntry[bytes], after: KeyEntry[bytes]) -> None:
        """Replaces an entry, which was `before`."""
        if key not in self._touched:
            self.touched_bytes += 100 + len(after.value or b"") * 4 // 3
        self._touched[key] = after
        # An entry with a set or a source keeps them: then its status alone is enough.
        if before.status is not after.status or not (before.last_src or before.set_id):
            self._count(_status(before), -1)
            self._count(_status(after), 1)

    def _count(self, status: EntryStatus | None, by: int) -> None:
        counts = self._counts
        match status:
            case EntryStatus.OWN:
                counts.owned += by
            case EntryStatus.WAIT:
                counts.waiting += by
            case EntryStatus.LEFT:
                counts.left += by
            case None:
                pass

    def forget(self, fence: FenceMarker) -> None:
        """Lets entries without a value go that a fence makes needless."""
        for key in list(self._stateless):
            if key in self.live or key in self._touched:
                continue
            if can_forget(self.get(key), fence.shard, fence.committed):
                self._touched[key] = ABSENT
                self._stateless.discard(key)
                self._counts.owned -= 1

    # ------------------------------------------------------------ the end of a round

    def write(self, state: dict[bytes, bytes | None]) -> None:
        """Adds the records of all entries that have changed to those of `.state`."""
        for key, entry in self._touched.items():
            self._keep(key, entry)
            text = None if _status(entry) is None else entry_text(entry)
            if self._store.get(key) == text:
                continue
            if text is None:
                del self._store[key]
            else:
                self._store[key] = text
            before = self._chunks.pop(key, 1)
            limit = self._limit_bytes
            state.update(entry_writes(key, entry, text, chunks_before=before, limit_bytes=limit))
            count = chunk_count(entry.value, limit)
            if count > 1:
                self._chunks[key] = count
        self._touched.clear()
        self.touched_bytes = 0

    def _keep(self, key: bytes, entry: KeyEntry[bytes]) -> None:
        if entry.status is EntryStatus.WAIT or entry.parked or entry.early:
            self.live[key] = entry
        else:
            self.live.pop(key, None)
        if entry.value is None and entry.last_src and not entry.set_id:
            self._stateless.add(key)
        else:
            self._stateless.discard(key)


def _status(entry: KeyEntry[bytes]) -> EntryStatus | None:
    """The status; None if the entry says no more than that of a key that was never seen."""
    if entry.status is not EntryStatus.OWN or entry.set_id or entry.last_src:
        return entry.status
    return None if entry.value is None else EntryStatus.OWN
