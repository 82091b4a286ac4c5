"""Samples of whole topics as numpy columns, read from telemetry records.

Promise  A record that cannot be used raises `BadSample` with the reason; nothing of it is used. The
         same records are rejected for the same reasons as in Spark (`spark/telemetry_records.py`).
Cost     Some three microseconds per partition, a third of it JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.windows import MICROS, PartitionSample
from trimtab.model.cluster import TopicPartition
from trimtab.model.telemetry import (
    AHEAD_S,
    HALF_CHARACTER,
    MOST_NUMBERS,
    TELEMETRY_VERSION,
)

UNKNOWN = -1
"""A log size or an offset that the monitor could not get."""

NO_OFFSET = -2
"""In a group's column: the group has no offset for this partition."""

_FIRST_VERSION = 1
_HALF_CHARACTER = re.compile(HALF_CHARACTER.encode())
_OTHER_TYPE = "not JSON, or a field of another type"
_NEEDED = ("ts", "topic", "partition", "leader", "sample_id")
_NUMBERS = ("partition", "leader")
_SIZES = ("log_bytes", "begin_offset", "end_offset")
_LISTS = ("replicas", "isr")
_KEPT = ("partition", "leader", "log_bytes", "end_offset")

Integers = npt.NDArray[np.int64]


class BadSample(ValueError):
    """A telemetry record that cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    """A sample of one topic, or of a part of its partitions; columns are of equal length."""

    topic: str
    ts: int
    partition: Integers
    leader: Integers
    log_bytes: Integers
    end_offset: Integers
    committed: Mapping[str, Integers]
    is_last_part: bool = True

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionSample]]:
        """The sample of each partition by itself."""
        columns = (self.partition, self.leader, self.log_bytes, self.end_offset)
        groups = [(group, offsets.tolist()) for group, offsets in self.committed.items()]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for at, (number, leader, log_bytes, end_offset) in enumerate(rows):
            committed = ((group, offsets[at]) for group, offsets in groups)
            yield (
                TopicPartition(self.topic, number),
                PartitionSample(
                    ts=self.ts,
                    leader=leader,
                    log_bytes=None if log_bytes == UNKNOWN else log_bytes,
                    end_offset=None if end_offset == UNKNOWN else end_offset,
                    committed={
                        group: None if offset == UNKNOWN else offset
                        for group, offset in committed
                        if offset != NO_OFFSET
                    },
                ),
            )


def read_sample(
    text: bytes | None, *, arrived_ts: int, groups: frozenset[str] | None = None
) -> TopicSample:
    """Reads a record of a whole topic; only these groups, or all of them if `groups` is None."""
    return _checked(_parsed(text, (TELEMETRY_VERSION,)), arrived_ts, groups)


def read_any_sample(
    text: bytes | None, *, arrived_ts: int, groups: frozenset[str] | None = None
) -> TopicSample:
    """As `read_sample`; reads also records of one partition, as older monitors wrote them."""
    record = _parsed(text, (_FIRST_VERSION, TELEMETRY_VERSION))
    if record["v"] == _FIRST_VERSION:
        record = _as_columns(record)
    return _checked(record, arrived_ts, groups)


def is_older_version(text: bytes | None) -> bool:
    """Whether a telemetry record is of an older version, with a record per partition."""
    try:
        _parsed(text, (_FIRST_VERSION,))
    except BadSample:
        return False
    return True


def _parsed(text: bytes | None, versions: tuple[int, ...]) -> dict[str, Any]:
    if text is None or not text.strip():
        raise BadSample("no value")
    if b"\\u" in text and _HALF_CHARACTER.search(text):
        raise BadSample(_OTHER_TYPE)
    try:
        record = json.loads(text.decode())  # of bytes Python would also take UTF-16 and UTF-32
    except (ValueError, RecursionError) as error:
        raise BadSample(_OTHER_TYPE) from error
    if not isinstance(record, dict):
        raise BadSample(_OTHER_TYPE)
    version = _integer(record.get("v"))
    if version is None:
        raise BadSample("no version")
    if version not in versions:
        raise BadSample(f"unknown version {version}")
    return record


def _as_columns(record: dict[str, Any]) -> dict[str, Any]:
    """A record of one partition in the shape of the current version."""
    values = {name: record.get(name) for name in (*_NUMBERS, *_SIZES, *_LISTS)}
    columns = {name: None if value is None else [value] for name, value in values.items()}
    committed = record.get("committed")
    if isinstance(committed, dict):
        columns["named"] = list(committed)
        committed = {group: [offset] for group, offset in committed.items()}
    kept = {name: record.get(name) for name in ("ts", "topic", "sample_id", "cluster")}
    return kept | columns | {"committed": committed}


def _checked(
    record: Mapping[str, Any], arrived_ts: int, groups: frozenset[str] | None
) -> TopicSample:
    ts, part, of = (_integer(record.get(name)) for name in ("ts", "part", "of"))
    columns = {name: _column(record.get(name), bits=32) for name in _NUMBERS}
    columns |= {name: _column(record.get(name)) for name in _SIZES}
    lists = {name: _lists(record.get(name)) for name in _LISTS}
    committed = _committed(record.get("committed"))
    named = _texts(record.get("named"))
    _texts([record.get(name) for name in ("topic", "sample_id", "cluster")])
    for name in _NEEDED:
        if record.get(name) is None:
            raise BadSample(f"no {name}")
    length = len(record["partition"])
    if not length:
        raise BadSample("no partition")
    for name, values in (columns | lists).items():
        if values is not None and len(values) != length:
            raise BadSample(f"{name} is not as long as partition")
    if any(offsets is None or len(offsets) != length for offsets in committed.values()):
        raise BadSample("committed is not as long as partition")
    when = ts or 0
    known = {name: column for name, column in columns.items() if column is not None}
    _check_values(when, known, [offsets for offsets in committed.values() if offsets is not None])
    if when > arrived_ts + AHEAD_S * MICROS:
        raise BadSample("ts lies in the future")
    last = (1 if of is None else of) - 1
    if not 0 <= (part or 0) <= last:
        raise BadSample("part is not below of")

    def filled(column: _Column | None, unknown: int) -> Integers:
        return np.full(length, unknown) if column is None else column.filled(unknown)

    return TopicSample(
        topic=record["topic"],
        ts=when,
        **{name: filled(columns[name], UNKNOWN) for name in _KEPT},
        committed={
            group: filled(offsets, UNKNOWN if group in named else NO_OFFSET)
            for group, offsets in committed.items()
            if groups is None or group in groups
        },
        is_last_part=(part or 0) == last,
    )


def _check_values(ts: int, columns: Mapping[str, _Column], committed: list[_Column]) -> None:
    """Raises an error for a value that is out of its range."""
    for name in _NUMBERS:
        if columns[name].known is not None:
            raise BadSample(f"{name} has an unknown value")
    if ts <= 0:
        raise BadSample("ts is negative" if ts else "no ts")
    for name, column in columns.items():
        if column.least < (UNKNOWN if name == "leader" else 0):
            raise BadSample(f"{name} is negative")
    if any(offsets.least < 0 for offsets in committed):
        raise BadSample("committed is negative")
    numbers = columns["partition"].given
    if max(numbers) >= MOST_NUMBERS:
        raise BadSample(f"partition is {MOST_NUMBERS} or more")
    if len(set(numbers)) != len(numbers):
        raise BadSample("partition has duplicates")


@dataclass(frozen=True, slots=True)
class _Column:
    """Integers that are not null, and which of all values they are; None if there is no null."""

    given: list[int]
    known: list[bool] | None
    least: int

    def __len__(self) -> int:
        return len(self.given) if self.known is None else len(self.known)

    def filled(self, unknown: int) -> Integers:
        if self.known is None:
            return np.array(self.given, dtype=np.int64)
        column = np.full(len(self.known), unknown, dtype=np.int64)
        column[self.known] = self.given
        return column


def _column(values: Any, *, bits: int = 64) -> _Column | None:
    """A list of integers and nulls; nothing else counts as an integer, as in Spark."""
    if values is None:
        return None
    if type(values) is not list:
        raise BadSample(_OTHER_TYPE)
    given, known, kinds = values, None, set(map(type, values))
    if NoneType in kinds:
        given = [value for value in values if value is not None]
        known = [value is not None for value in values]
    if not kinds <= {int, NoneType}:
        raise BadSample(_OTHER_TYPE)
    least, most = min(given, default=0), max(given, default=0)
    if least < -(2 ** (bits - 1)) or most >= 2 ** (bits - 1):
        raise BadSample(_OTHER_TYPE)
    return _Column(given, known, least)


def _lists(values: Any) -> list[Any] | None:
    """A list of lists of broker numbers."""
    if values is None:
        return None
    if type(values) is not list or not set(map(type, values)) <= {list, NoneType}:
        raise BadSample(_OTHER_TYPE)
    _column([number for numbers in values if numbers is not None for number in numbers], bits=32)
    return values


def _committed(offsets: Any) -> dict[str, _Column | None]:
    if offsets is None:
        return {}
    if not isinstance(offsets, dict):
        raise BadSample(_OTHER_TYPE)
    return {group: _column(values) for group, values in offsets.items()}


def _integer(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not -(2**63) <= value < 2**63):
        raise BadSample(_OTHER_TYPE)
    return value


def _texts(values: Any) -> frozenset[str]:
    if values is None:
        return frozenset()
    if type(values) is not list or not set(map(type, values)) <= {str, NoneType}:
        raise BadSample(_OTHER_TYPE)
    return frozenset(value for value in values if value is not None)
