"""Entries in memory, with a bound for all tasks of a process together.

Why      A process that outgrows its machine is killed without a word, and so is the next one that
         takes over its partitions. An error at a stated bound says what to do.
Promise  The bound is checked whenever the stores have grown by 256 kB. Stores of tasks that are
         gone no longer count; before the error, `spare` may give up what is not needed now.
Cost     Measured: 270 to 300 bytes per key with 20 bytes and an entry of 100; two additions per
         write. `ENTRY_BYTES` is what Python adds to the two texts.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, ItemsView, Iterator, MutableMapping
from typing import Any

from trimtab.apply.keys.backends.state_stores import MAX_MEMORY_BYTES
from trimtab.errors import StateTooLarge
from trimtab.model.cluster import TopicPartition
from trimtab.observe.logging import library_log

log = library_log()

ENTRY_BYTES = 160
"""What an entry takes beside the bytes of its key and its text."""

_STEP_BYTES = 256 * 1024
_WARN_SHARE = 0.8


class MemoryStores:
    """Makes the stores of a process's tasks and watches over their size.

    Attributes:
        spare: Called before the bound becomes an error; it may drop stores that are not in use.
    """

    def __init__(self, max_bytes: int = MAX_MEMORY_BYTES) -> None:
        self.spare: Callable[[], None] = lambda: None
        self._max_bytes = max_bytes
        self._stores: list[weakref.ref[MemoryStore]] = []
        self._lock = threading.Lock()
        self._warned = False

    def __call__(self, _partition: TopicPartition) -> MemoryStore:
        """An empty store."""
        store = MemoryStore(self)
        with self._lock:
            self._stores = [known for known in self._stores if known() is not None]
            self._stores.append(weakref.ref(store))
        return store

    @property
    def size_bytes(self) -> int:
        """About how much memory all stores take."""
        with self._lock:
            return sum(store.size_bytes for known in self._stores if (store := known()) is not None)

    def check(self) -> None:
        """Raises `StateTooLarge` if the stores together are larger than they may be."""
        used = self.size_bytes
        if used > self._max_bytes:
            self.spare()
            gc.collect()
            used = self.size_bytes
        if used > self._max_bytes:
            raise StateTooLarge(
                f"The states of this consumer's keys need more than the {self._max_bytes} bytes of "
                "memory that they may take.",
                hint="Start more consumers, keep the states on disk with --store disk, or raise "
                "--max-state-memory if the machine has more. Nothing is lost: states are in Kafka.",
            )
        if used > _WARN_SHARE * self._max_bytes and not self._warned:
            self._warned = True
            log.warning("states_fill_memory", bytes=used, of=self._max_bytes)


class MemoryStore(MutableMapping[bytes, bytes]):
    """The entries of one task."""

    def __init__(self, stores: MemoryStores) -> None:
        self.size_bytes = 0
        self._stores = stores
        self._texts: dict[bytes, bytes] = {}
        self._checked_bytes = 0

    def __getitem__(self, key: bytes) -> bytes:
        return self._texts[key]

    def get(self, key: bytes, default: Any = None) -> Any:
        """The text of a key."""
        return self._texts.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._texts

    def __setitem__(self, key: bytes, text: bytes) -> None:
        texts = self._texts
        before = texts.get(key)
        texts[key] = text
        if before is None:
            self.size_bytes += len(key) + len(text) + ENTRY_BYTES
        else:
            self.size_bytes += len(text) - len(before)
        if self.size_bytes - self._checked_bytes >= _STEP_BYTES:
            self._checked_bytes = self.size_bytes
            self._stores.check()

    def __delitem__(self, key: bytes) -> None:
        self.size_bytes -= len(key) + len(self._texts.pop(key)) + ENTRY_BYTES
        self._checked_bytes = min(self._checked_bytes, self.size_bytes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._texts)

    def items(self) -> ItemsView[bytes, bytes]:
        """All keys with their texts."""
        return self._texts.items()

    def __len__(self) -> int:
        return len(self._texts)
