"""Outputs that brokers would refuse are errors of the record that caused them.

Why      A refused record makes the whole transaction fail, again at every attempt: one bad output
         would stop its partition for ever. As an error of its record it ends in the dead letters.
Cost     A topic is looked up at its first output and then about once a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass

from trimtab.apply.keys.keyed_handler import Output
from trimtab.apply.keys.start_up_checks import DEFAULT_LARGEST, LARGEST
from trimtab.kafka.admin import Admin

_KNOWN_S = 60.0
_MISSING_S = 1.0
_ROOM = 200
"""Bytes of a record batch beside the record's own."""


@dataclass(frozen=True, slots=True)
class _Topic:
    partitions: int
    largest_bytes: int
    until: float


class OutputChecks:
    """Checks outputs before they are written; used by one thread."""

    def __init__(
        self,
        open_admin: Callable[[], AbstractContextManager[Admin]],
        *,
        reserved: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_admin = open_admin
        self._reserved = frozenset(reserved)
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def __call__(self, output: Output) -> None:
        """Raises `ValueError` if brokers would refuse the output."""
        if output.topic in self._reserved:
            raise ValueError(f"topic {output.topic} is written by tasks only")
        topic = self._topics.get(output.topic)
        if topic is None or topic.until < self._clock():
            topic = self._topics[output.topic] = self._looked_up(output.topic)
        if not topic.partitions:
            raise ValueError(f"there is no topic {output.topic}")
        if output.partition is not None and not 0 <= output.partition < topic.partitions:
            raise ValueError(
                f"topic {output.topic} has {topic.partitions} partitions, no {output.partition}"
            )
        size = _ROOM + len(output.value or b"") + len(output.key or b"")
        size += sum(len(name.encode()) + len(value or b"") for name, value in output.headers)
        if size > topic.largest_bytes:
            raise ValueError(
                f"an output of {size} bytes is larger than topic {output.topic} takes "
                f"({LARGEST}={topic.largest_bytes})"
            )

    def _looked_up(self, name: str) -> _Topic:
        with self._open_admin() as admin:
            partitions = len(admin.topics([name]))
            settings = admin.topic_settings(name) if partitions else None
        if settings is None:
            return _Topic(0, 0, self._clock() + _MISSING_S)
        largest = int(settings.get(LARGEST) or DEFAULT_LARGEST)
        return _Topic(partitions, largest, self._clock() + _KNOWN_S)
