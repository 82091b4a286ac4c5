"""Where a task keeps the entries of its keys while it runs: in memory, or in a file on disk.

Either is only a copy of what `.state` holds: it begins empty and is gone with the process.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from enum import StrEnum
from pathlib import Path

from trimtab.model.cluster import TopicPartition

MAX_MEMORY_BYTES = 1_000_000_000
"""How much memory the entries of a process may take: 3.5 million keys with 100 bytes each."""

StoreOfPartition = Callable[[TopicPartition], MutableMapping[bytes, bytes]]
"""Makes the empty store of a task."""


class StateStore(StrEnum):
    """Where the entries of keys are kept."""

    MEMORY = "memory"
    DISK = "disk"


def state_stores(
    kind: StateStore, *, folder: Path | None = None, max_memory_bytes: int = MAX_MEMORY_BYTES
) -> StoreOfPartition:
    """Makes the stores of one process; `folder` is for those on disk."""
    if kind is StateStore.MEMORY:
        from trimtab.apply.keys.backends.memory_store import MemoryStores

        return MemoryStores(max_memory_bytes)
    from trimtab.apply.keys.backends.disk_store import DiskStore

    return lambda _partition: DiskStore(folder)
