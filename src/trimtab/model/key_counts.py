"""Counts of keys and partitions over one window: the input of the keys layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from trimtab.model.wire import OMIT_EMPTY, TIDY, Count, Positive, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCount:
    """A key that was counted in a window.

    Attributes:
        key: The record key.
        count: Its records in the window, as a lower bound: what plans calculate with.
        partition: The partition that its records go to now.
        routed: Whether it is in the routing table; else it is at its home partition.
        upper: The upper bound of its records; None if `count` is exact.
    """

    key: bytes
    count: Count
    partition: Count
    routed: Annotated[bool, OMIT_EMPTY] = False
    upper: Annotated[Count | None, OMIT_EMPTY] = None

    @property
    def most(self) -> int:
        """The largest number of records that it can have."""
        return self.count if self.upper is None else self.upper


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The counts of one finished window, with the present route of each key.

    Attributes:
        partitions: Number of partitions of the topic.
        window_s: Length of the window in seconds.
        threshold: Records per window from which a key is hot; all hot keys are listed.
        keys: The hot keys, and every key of the routing table, also those without records.
        partition_totals: All records sent to each partition, those of other keys included.
    """

    partitions: Annotated[int, Wire(least=1)]
    window_s: Annotated[Positive, TIDY]
    threshold: Annotated[int, Wire(least=1)]
    keys: tuple[KeyCount, ...]
    partition_totals: tuple[Count, ...]

    def __post_init__(self) -> None:
        if self.partitions < 1 or self.threshold < 1 or not self.window_s > 0:
            raise ValueError(
                "partitions, threshold and window_s must be positive, not "
                f"{self.partitions}, {self.threshold}, {self.window_s}"
            )
        if len(self.partition_totals) != self.partitions:
            raise ValueError(
                f"partition_totals has {len(self.partition_totals)} numbers for "
                f"{self.partitions} partitions"
            )
        if min(self.partition_totals) < 0:
            raise ValueError("a total of a partition is negative")
        seen: set[bytes] = set()
        for key in self.keys:
            if key.key in seen:
                raise ValueError(f"key {_shown(key.key)} is listed twice")
            seen.add(key.key)
            self._check(key)
        for partition, (own, total) in enumerate(
            zip(self.listed, self.partition_totals, strict=True)
        ):
            if own > total:
                raise ValueError(
                    f"the keys of partition {partition} have {own} records, but its total is "
                    f"{total}"
                )

    def _check(self, key: KeyCount) -> None:
        if not 0 <= key.partition < self.partitions:
            raise ValueError(
                f"key {_shown(key.key)} is on partition {key.partition}, but the partitions are "
                f"0 to {self.partitions - 1}"
            )
        if key.count < 0:
            raise ValueError(f"key {_shown(key.key)} has a negative count, {key.count}")
        if key.upper is not None and key.upper < key.count:
            raise ValueError(
                f"key {_shown(key.key)} has the upper bound {key.upper}, below its count of "
                f"{key.count}"
            )

    @property
    def listed(self) -> list[int]:
        """The records of the listed keys by partition."""
        loads = [0] * self.partitions
        for key in self.keys:
            loads[key.partition] += key.count
        return loads

    @property
    def records(self) -> int:
        """All records of the window."""
        return sum(self.partition_totals)

    @property
    def max_error(self) -> int:
        """The widest distance between the bounds of a listed key."""
        errors = [key.upper - key.count for key in self.keys if key.upper is not None]
        return max(errors, default=0)

    @property
    def routes(self) -> Mapping[bytes, int]:
        """The routing table."""
        return {key.key: key.partition for key in self.keys if key.routed}


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return f'"{"".join(c if c.isprintable() else repr(c)[1:-1] for c in text)}"'
