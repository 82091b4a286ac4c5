"""Samples of whole topics as numpy columns, read from telemetry records.

Promise  A record that cannot be used raises `BadSample` with the reason; nothing of it is used.
Cost     About one microsecond per partition, most of it JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 2
"""The version of telemetry that has a whole topic in one record."""

UNKNOWN = -1
"""A log size or an offset that the monitor could not get."""

NO_OFFSET = -2
"""In a group's column: the group has no offset for this partition."""

AHEAD_S = 60
"""A sample whose time is further ahead of its arrival is rejected."""

_MOST_PARTITIONS = 1_000_000
"""Columns are as long as the highest partition number; a wrong one must not use up the memory."""

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


def read_sample(
    text: bytes | None, *, arrived_ts: int, groups: frozenset[str] | None = None
) -> TopicSample:
    """Reads a telemetry record; only these groups, or all of them if `groups` is None."""
    record = _parsed(text)
    ts, topic = record.get("ts"), record.get("topic")
    if not isinstance(ts, int) or ts <= 0:
        raise BadSample("no ts")
    if ts > arrived_ts + AHEAD_S * 1_000_000:
        raise BadSample("ts lies in the future")
    if not isinstance(topic, str):
        raise BadSample("no topic")
    partition = _column(record.get("partition"), "partition", least=0)
    if partition.size and int(partition.max()) >= _MOST_PARTITIONS:
        raise BadSample(f"partition is {_MOST_PARTITIONS} or more")
    if len(np.unique(partition)) != len(partition):
        raise BadSample("partition has duplicates")
    named = _texts(record.get("named") or [], "named")
    offsets = record.get("committed") or {}
    if not isinstance(offsets, dict):
        raise BadSample("committed is not a map")
    part, of = record.get("part", 0), record.get("of", 1)
    if not isinstance(part, int) or not isinstance(of, int):
        raise BadSample("part or of is not an integer")
    _texts([topic, *offsets], "a name")
    sample = TopicSample(
        topic=topic,
        ts=ts,
        partition=partition,
        leader=_column(record.get("leader"), "leader", least=-1),
        log_bytes=_column(record.get("log_bytes"), "log_bytes", unknown=UNKNOWN),
        end_offset=_column(record.get("end_offset"), "end_offset", unknown=UNKNOWN),
        committed={
            group: _column(
                values, f"committed of {group}", unknown=UNKNOWN if group in named else NO_OFFSET
            )
            for group, values in offsets.items()
            if groups is None or group in groups
        },
        is_last_part=part == of - 1,
    )
    columns = (sample.leader, sample.log_bytes, sample.end_offset, *sample.committed.values())
    if any(len(column) != len(partition) for column in columns):
        raise BadSample("columns differ in length")
    return sample


def is_older_version(text: bytes | None) -> bool:
    """Whether a telemetry record is of an older version, with a record per partition."""
    try:
        record = json.loads(text or b"")
    except (ValueError, RecursionError):
        return False
    version = record.get("v") if isinstance(record, dict) else None
    return isinstance(version, int) and version < VERSION


def _parsed(text: bytes | None) -> dict[str, Any]:
    if not text:
        raise BadSample("no value")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSample("not JSON, or a field of another type") from error
    if not isinstance(record, dict):
        raise BadSample("not JSON, or a field of another type")
    version = record.get("v")
    if version is None:
        raise BadSample("no version")
    if version != VERSION:
        raise BadSample(f"version {version} instead of {VERSION}")
    return record


def _texts(values: Any, name: str) -> frozenset[str]:
    """Texts that can be written as UTF-8: JSON can also have half of a surrogate pair."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadSample(f"{name} is not a list of texts")
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise BadSample(f"{name} is not UTF-8") from error
    return frozenset(values)


def _column(
    values: Sequence[int | None] | None, name: str, *, least: int = 0, unknown: int | None = None
) -> Integers:
    """A column of integers; null becomes `unknown`, or is an error."""
    if not isinstance(values, list):
        raise BadSample(f"no {name}")
    has_null = None in values
    if has_null and unknown is None:
        raise BadSample(f"{name} has a null")
    given = _integers([v for v in values if v is not None] if has_null else values, name)
    if given.size and int(given.min()) < least:
        raise BadSample(f"{name} is negative")
    if not has_null:
        return given
    column = np.full(len(values), unknown, dtype=np.int64)
    column[[v is not None for v in values]] = given
    return column


def _integers(values: Sequence[int | None], name: str) -> Integers:
    try:
        column = np.array(values, dtype=np.int64) if values else np.empty(0, dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSample(f"{name} has a value that is not an integer") from error
    if column.ndim != 1:
        raise BadSample(f"{name} has a value that is not an integer")
    return column
