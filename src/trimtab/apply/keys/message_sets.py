"""Records of a keyed topic as a task reads them: data, and the markers between message sets.

A message set is a run of records of one key on one partition. END closes a set on the old
partition, START opens the next one on the new partition. FENCE, CLOSE and OPEN concern a whole
partition. Markers name partitions, never consumers: owners change with every rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class MarkerKind(IntEnum):
    """The header `tt-kind`; data has none."""

    END = 1
    START = 2
    FENCE = 3
    CLOSE = 4
    OPEN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecord:
    """A record that a gateway shard has routed.

    `src` is its offset in the input of the shard: it rises along each key. `set_id` is None for
    keys that are not in the routing table; such records belong to the set of the key's entry.
    """

    shard: int
    gen: int
    src: int
    set_id: int | None = None
    payload: object = None


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record without our headers, written before the gateway came, or past it."""

    payload: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """The last record of a set on this partition; the next set is on partition `to`."""

    shard: int
    gen: int
    set_id: int
    next_set: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMarker:
    """The first record of a set on this partition; its state comes from partition `source`.

    `end_offset` is the offset of END there.
    """

    shard: int
    gen: int
    set_id: int
    source: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceMarker:
    """From here on the partition ignores records of the shard's earlier generations.

    `committed` is an offset of the shard's input below which nothing will be sent again; None if
    the gateway does not say.
    """

    shard: int
    gen: int
    committed: int | None = None


@dataclass(frozen=True, slots=True)
class CloseMarker:
    """From here on records without our headers are dead letters."""

    shard: int
    gen: int


@dataclass(frozen=True, slots=True)
class OpenMarker:
    """From here on the shard accepts records without our headers again."""

    shard: int
    gen: int


KeyRecord = DataRecord | PlainRecord | EndMarker | StartMarker
"""What concerns one key."""

PartitionMarker = FenceMarker | CloseMarker | OpenMarker
"""What concerns a whole partition."""
