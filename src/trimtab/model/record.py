"""A record as it was read from a topic, and a topic as it was read whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.model.cluster import TopicPartition

Headers = tuple[tuple[str, bytes], ...]

MARKER = "tt-kind"
"""The header of markers: records of a keyed topic that say where a key goes, and carry no data."""


class Record(NamedTuple):
    """A record of a topic; its time is Kafka's timestamp, in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def source(self) -> TopicPartition:
        """The partition it was read from."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    @property
    def is_marker(self) -> bool:
        """Whether it is a marker between the records of a keyed topic, and no data."""
        return any(name == MARKER for name, _ in self.headers)

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The records of a topic, to be read once, and the first offset of each partition.

    Records of one partition come in order. Those of aborted or open transactions are left out.
    """

    records: Iterator[Record]
    starts: Mapping[int, int]
