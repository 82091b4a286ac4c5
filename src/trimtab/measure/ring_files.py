"""Stores rings as files on an executor, so that any of its Python workers can go on with them.

Why      Spark gives a partition of the log to any worker process of any executor. What was left in
         the memory of another process could not be used.
Promise  A file is complete or absent: its name has the next offset of the log and is given last. A
         damaged or missing file is no error: the caller reads the log again.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trimtab.measure.column_ring import ColumnRing, SampleRow, TopicColumns

_SUFFIX = ".ring"


class RingFiles:
    """The rings of one query, one per partition of the telemetry log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, log_partition: int) -> tuple[ColumnRing, int] | None:
        """The newest ring of a partition of the log, and the next offset to add to it."""
        for offset, path in reversed(self._files(log_partition)):
            try:
                with path.open("rb") as file:
                    return _read(file), offset
            except (OSError, ValueError, KeyError, EOFError):
                continue
        return None

    def save(self, log_partition: int, ring: ColumnRing, next_offset: int) -> None:
        """Stores a ring in place of the one before.

        Offsets may go back: Spark repeats a batch, or the log was made anew.
        """
        folder = self._folder / str(log_partition)
        folder.mkdir(parents=True, exist_ok=True)
        before = [path for offset, path in self._files(log_partition) if offset != next_offset]
        handle, unfinished = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(ring, file)
            Path(unfinished).rename(folder / f"{next_offset}{_SUFFIX}")
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
        for path in before:
            with suppress(OSError):
                path.unlink()

    def _files(self, log_partition: int) -> list[tuple[int, Path]]:
        found = (self._folder / str(log_partition)).glob(f"*{_SUFFIX}")
        return sorted((int(path.stem), path) for path in found if path.stem.isdecimal())


def _write(ring: ColumnRing, file: BinaryIO) -> None:
    """A line of JSON with names and sizes, then the columns of all topics one after another."""
    topics = ring.topics.values()
    head = {
        "window_s": ring.window_s,
        "min_span_s": ring.min_span_s,
        "newest_ts": ring.newest_ts,
        "width": ring.width,
        "rows": [row.ts for row in ring.rows],
        "topics": [
            [name, len(topic.columns), list(topic.committed)] for name, topic in ring.topics.items()
        ],
    }
    file.write(json.dumps(head).encode() + b"\n")
    for columns in (
        [column for row in ring.rows for column in (row.leader, row.log_bytes, row.end_offset)],
        [topic.columns for topic in topics],
        [topic.newest_ts for topic in topics],
        [topic.end_offset for topic in topics],
        [topic.last_bytes_s for topic in topics],
        [topic.last_records_s for topic in topics],
        [offsets for topic in topics for offsets in topic.committed.values()],
    ):
        np.save(file, np.concatenate(columns) if columns else np.empty(0), allow_pickle=False)


def _read(file: BinaryIO) -> ColumnRing:
    head = json.loads(file.readline())
    rows, *kept, offsets = (_Columns(np.load(file, allow_pickle=False)) for _ in range(7))
    ring = ColumnRing(window_s=head["window_s"], min_span_s=head["min_span_s"])
    ring.newest_ts, ring.width = head["newest_ts"], head["width"]
    ring.rows = [
        SampleRow(ts, *(rows.next(ring.width) for _ in range(3)))  # leader, log_bytes, end_offset
        for ts in head["rows"]
    ]
    for name, size, groups in head["topics"]:
        topic = TopicColumns(*(column.next(size) for column in kept))
        topic.committed = {group: offsets.next(size) for group in groups}
        ring.topics[name] = topic
    return ring


class _Columns:
    """Columns of known lengths, one after another."""

    def __init__(self, together: Any) -> None:
        self._together = together
        self._at = 0

    def next(self, size: int) -> Any:
        """The next column; raises ValueError if it is not there."""
        column = self._together[self._at : self._at + size]
        if len(column) != size:
            raise ValueError("the file is too short")
        self._at += size
        return column
