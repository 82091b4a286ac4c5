"""Windows of counts for tests: keys with their counts by partition, and the totals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.model.key_counts import KeyCount, KeyCounts


def window(
    keys: Mapping[bytes, tuple[int, int]],
    totals: tuple[int, ...],
    *,
    routed: frozenset[bytes] = frozenset(),
    threshold: int = 10,
    upper: Mapping[bytes, int] | None = None,
    **more: Any,
) -> KeyCounts:
    """A window; `keys` are (count, partition), those in `routed` are in the routing table."""
    bounds = upper or {}
    return KeyCounts(
        partitions=len(totals),
        window_s=more.get("window_s", 10),
        threshold=threshold,
        keys=tuple(
            KeyCount(key=k, count=c, partition=p, routed=k in routed, upper=bounds.get(k))
            for k, (c, p) in keys.items()
        ),
        partition_totals=totals,
    )
