"""A sample of the cluster as records of `trimtab.telemetry`, version 2: one per topic, in columns.

Why      A record per partition repeats every name for each of them; in columns a sample has a
         fifth of the bytes and a fiftieth of the records (decision 0055).
Promise  Every partition is in one record of its topic. A record has at most `MOST_PARTITIONS` and
         `MOST_BYTES`; a topic that has more takes several (`part`, `of`) with the same key.
         A null offset of a group in `named` is unknown; of any other group it means that the group
         has no offset there, as if it were absent. Readers also take version 1.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter

from trimtab.model.cluster import Replicas, TopicPartition
from trimtab.model.codec import Json

TELEMETRY_VERSION = 2
MOST_PARTITIONS = 2_000
MOST_BYTES = 900_000
"""Below the million bytes that brokers and producers take by default."""

MOST_NUMBERS = 1_000_000
"""Partitions have lower numbers: columns of readers are as long as the highest, so that a wrong one
must not use up their memory."""

HALF_CHARACTER = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Half of a surrogate pair, which JSON can have and UTF-8 cannot; for Python and Java."""

AHEAD_S = 60
"""A sample whose time is further ahead of its arrival is rejected."""

_COLUMNS = tuple(f.name for f in fields(Replicas) if f.name not in {"topic", "elr"})
_Offsets = Mapping[str, Mapping[int, int]]
"""Committed offsets of one topic: group → partition → offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySample:
    """All sampled partitions at one time, those of a topic side by side and in order."""

    id: str
    ts: int
    cluster: str | None
    partitions: tuple[Replicas, ...]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    named_groups: tuple[str, ...] = ()


def telemetry_records(sample: TelemetrySample) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record of a sample."""
    committed = _by_topic(sample.committed)
    for topic, found in groupby(sample.partitions, key=lambda p: p.topic):
        partitions = tuple(found)
        most = MOST_PARTITIONS
        values = _encoded(sample, partitions, committed[topic], most)
        while most > 1 and max(map(len, values)) > MOST_BYTES:  # many groups read the topic
            most = (most + 1) // 2
            values = _encoded(sample, partitions, committed[topic], most)
        for value in values:
            yield topic.encode(), value


def telemetry_to(
    sample: TelemetrySample, partitions: Sequence[Replicas], committed: _Offsets
) -> Json:
    """One record: these partitions of one topic, and the offsets of groups that have any there."""
    numbers = [p.partition for p in partitions]
    columns = {name: list(map(attrgetter(name), partitions)) for name in _COLUMNS}
    named = sorted(set(sample.named_groups))
    offsets: dict[str, list[int | None]] = {group: [None] * len(numbers) for group in named}
    for group, by_partition in sorted(committed.items()):
        column = [by_partition.get(number) for number in numbers]
        if any(offset is not None for offset in column):
            offsets[group] = column
    return {
        "v": TELEMETRY_VERSION,
        "sample_id": sample.id,
        "ts": sample.ts,
        "cluster": sample.cluster,
        "topic": partitions[0].topic,
        **columns,
        "committed": offsets,
        **({"named": named} if named else {}),
    }


def _encoded(
    sample: TelemetrySample, partitions: Sequence[Replicas], committed: _Offsets, most: int
) -> list[bytes]:
    pieces = [partitions[at : at + most] for at in range(0, len(partitions), most)]
    records = [telemetry_to(sample, piece, committed) for piece in pieces]
    if len(records) > 1:
        records = [r | {"part": part, "of": len(records)} for part, r in enumerate(records)]
    return [_text(record).encode() for record in records]


def _text(record: Json) -> str:
    return json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _by_topic(
    committed: Mapping[str, Mapping[TopicPartition, int]],
) -> defaultdict[str, defaultdict[str, dict[int, int]]]:
    """Topic → group → partition → offset."""
    found: defaultdict[str, defaultdict[str, dict[int, int]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for group, offsets in committed.items():
        for (topic, partition), offset in offsets.items():
            found[topic][group][partition] = offset
    return found
