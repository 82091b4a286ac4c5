"""Who read which partition when, and what must not be: two readers at once, an epoch that falls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    ControlMessage,
    ReadingStarted,
    ReadingStopped,
    Receipt,
)


class Said(NamedTuple):
    """A record of the control topic; `ts` is the sender's."""

    partition: int
    offset: int
    ts: int
    what: ControlMessage


class Interval(NamedTuple):
    """From when to when one process read a partition; `until` None: it still does."""

    incarnation: str
    since: int
    until: int | None


def intervals(
    reports: Iterable[Said], receipts: Iterable[Receipt], living: Iterable[str]
) -> dict[TopicPartition, list[Interval]]:
    """Who read each partition when, by its own words; a dead process read until its last sign."""
    heard = list(reports)
    alive = set(living)
    last: dict[str, int] = {}
    for said in heard:
        name = said.what.incarnation or ""  # type: ignore[union-attr]
        last[name] = max(last.get(name, 0), said.ts)
    for receipt in receipts:
        last[receipt.incarnation] = max(last.get(receipt.incarnation, 0), receipt.finished_ts)
    opened: dict[tuple[TopicPartition, str], int] = {}
    found: dict[TopicPartition, list[Interval]] = {}
    for said in sorted(heard, key=lambda s: s.offset):
        if isinstance(said.what, ReadingStarted):
            for partition in said.what.partitions:
                opened.setdefault((partition, said.what.incarnation), said.ts)
        elif isinstance(said.what, ReadingStopped):
            for partition in said.what.partitions:
                since = opened.pop((partition, said.what.incarnation), None)
                if since is not None:
                    interval = Interval(said.what.incarnation, since, said.ts)
                    found.setdefault(partition, []).append(interval)
    for (partition, name), since in opened.items():
        until = None if name in alive else last[name]
        found.setdefault(partition, []).append(Interval(name, since, until))
    return {p: sorted(ones, key=lambda i: i.since) for p, ones in found.items()}


def overlaps(held: Mapping[TopicPartition, Iterable[Interval]]) -> list[str]:
    """The partitions that two processes read at once."""
    found = []
    for partition, ones in sorted(held.items()):
        before: Interval | None = None
        for one in sorted(ones, key=lambda i: i.since):
            if (
                before is not None
                and one.incarnation != before.incarnation
                and (before.until is None or before.until > one.since)
            ):
                found.append(f"{partition}: {before} and {one}")
            if before is None or before.until is not None:
                longer = one.until is None or before is None or one.until > (before.until or 0)
                before = one if longer else before
    return found


def falls(epochs: Iterable[int]) -> list[tuple[int, int]]:
    """Where an epoch follows a higher one."""
    found, highest = [], 0
    for epoch in epochs:
        if epoch < highest:
            found.append((highest, epoch))
        highest = max(highest, epoch)
    return found
