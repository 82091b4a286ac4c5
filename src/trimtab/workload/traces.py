"""Traces: recorded loads in Parquet files, to be sent again.

Columns  `t_s` (seconds from the start) or `ts` (microseconds since 1970; the first row is the
         start), ascending; `key` (bytes or text), `partition`, `value_bytes`. These three may be
         missing or null: no key, the client's choice, the default size.
         Recorded traces also have `offset`; other columns are ignored.
Promise  A trace is checked completely before its first record is returned. A recording gets its
         name only when it is complete.
Cost     Reading needs memory for one batch, writing for one row group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import BadFile
from trimtab.model.files import replacing
from trimtab.workload.due import ANY_PARTITION, BLOCK_RECORDS, DueRecords

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROW_GROUP = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecords:
    """Records that were sent, in the order of time; an offset of −1 means unknown."""

    times_s: NDArray[np.float64]
    keys: Sequence[bytes | None]
    partitions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    value_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A checked trace; `partitions` is the number of partitions that a topic needs for it."""

    path: Path
    records: int
    duration_s: float
    partitions: int

    def blocks(
        self, *, value_bytes: int, speed: float = 1.0, by_key: bool = False
    ) -> Iterator[DueRecords]:
        """Yields the records, `speed` times as fast; `by_key` lets the client choose partitions."""
        if not 0 < speed < math.inf:
            raise ValueError(f"speed must be finite and positive, not {speed}")
        return self._blocks(value_bytes, speed, by_key)

    def _blocks(self, value_bytes: int, speed: float, by_key: bool) -> Iterator[DueRecords]:
        with _opened(self.path) as file:
            columns = _columns(file, self.path)
            start: float | None = None
            for batch in file.iter_batches(BLOCK_RECORDS, columns=columns):
                times_s = _times_s(batch, self.path)
                start = _start(columns, times_s) if start is None else start
                yield DueRecords(
                    times_s=(times_s - start) / speed,
                    keys=_keys(batch, self.path),
                    partitions=None
                    if by_key
                    else _whole(batch, "partition", ANY_PARTITION, self.path),
                    value_bytes=_whole(batch, "value_bytes", value_bytes, self.path),
                )


def read_trace(path: Path) -> Trace:
    """Reads and checks a whole trace."""
    records, first, last, highest = 0, 0.0, 0.0, ANY_PARTITION
    with _opened(path) as file:
        columns = _columns(file, path)
        for batch in file.iter_batches(_ROW_GROUP, columns=columns):
            times_s = _times_s(batch, path)
            partitions = _whole(batch, "partition", ANY_PARTITION, path)
            sizes = _whole(batch, "value_bytes", 0, path)
            _keys(batch.slice(0, 0), path)
            if not times_s.size:
                continue
            if records == 0:
                first = last = _start(columns, times_s)
            steps = np.diff(times_s, prepend=last)
            for wrong, what in (
                (~np.isfinite(times_s), "has no time"),
                (steps < 0, "is earlier than the row before it, or than the start"),
                (partitions < ANY_PARTITION, "has a negative partition"),
                (sizes < 0, "has a negative value_bytes"),
            ):
                if wrong.any():
                    raise BadFile(f"{path}: row {records + int(wrong.argmax())} {what}.")
            records += times_s.size
            last = float(times_s[-1])
            highest = max(highest, int(partitions.max()))
    if not records:
        raise BadFile(f"{path}: the trace has no records.")
    return Trace(path=path, records=records, duration_s=last - first, partitions=highest + 1)


class TraceWriter:
    """Writes a trace row group by row group."""

    def __init__(self, out: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self._schema = pa.schema(
            [
                pa.field("t_s", pa.float64(), nullable=False),
                pa.field("key", pa.binary()),
                pa.field("partition", pa.int32(), nullable=False),
                pa.field("offset", pa.int64()),
                pa.field("value_bytes", pa.int32(), nullable=False),
            ]
        )
        self._waiting: list[pa.Table] = []
        self._file = pq.ParquetWriter(out, self._schema)

    def write(self, sent: SentRecords) -> None:
        """Adds records; they must be later than all earlier ones."""
        pa = self._pa
        columns = [
            sent.times_s,
            pa.array(sent.keys, pa.binary()),
            pa.array(sent.partitions.astype(np.int32)),
            pa.array(sent.offsets, mask=sent.offsets < 0),
            pa.array(sent.value_bytes.astype(np.int32)),
        ]
        self._waiting.append(pa.Table.from_arrays(columns, schema=self._schema))
        if sum(table.num_rows for table in self._waiting) >= _ROW_GROUP:
            self._write_row_group()

    def close(self) -> None:
        """Writes the remaining records and the end of the file."""
        if self._waiting:
            self._write_row_group()
        self._file.close()

    def _write_row_group(self) -> None:
        self._file.write_table(self._pa.concat_tables(self._waiting))
        self._waiting.clear()


@contextmanager
def recording(path: Path) -> Iterator[TraceWriter]:
    """Opens a writer; the file is created only if the block succeeds."""
    with replacing(path) as out:
        writer = TraceWriter(out)
        try:
            yield writer
        finally:
            writer.close()


# ---------------------------------------------------------------- columns


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise BadFile(
            f"{path}: cannot be read as Parquet: {error}.",
            hint="Traces are written by `trimtab load … --record FILE`.",
        ) from error
    with file:
        yield file


def _columns(file: pq.ParquetFile, path: Path) -> list[str]:
    """The columns to read; the time is the first of them."""
    present = file.schema_arrow.names
    time = next((name for name in ("t_s", "ts") if name in present), None)
    if time is None:
        raise BadFile(
            f"{path}: no column t_s or ts; the columns are {', '.join(present) or 'none'}.",
            hint="t_s is in seconds from the start, ts in microseconds since 1970.",
        )
    return [time, *(c for c in ("key", "partition", "value_bytes") if c in present)]


def _start(columns: Sequence[str], times_s: NDArray[np.float64]) -> float:
    """Returns the start time of the trace, in its own time."""
    return 0.0 if columns[0] == "t_s" else float(times_s[0])


def _times_s(batch: pa.RecordBatch, path: Path) -> NDArray[np.float64]:
    import pyarrow as pa

    column = batch.column(0)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    try:
        times = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        raise BadFile(f"{path}: the times are {column.type}, not numbers.") from error
    return np.asarray(times if "t_s" in batch.schema.names else times / 1e6, dtype=np.float64)


def _keys(batch: pa.RecordBatch, path: Path) -> list[bytes | None] | None:
    import pyarrow as pa

    if "key" not in batch.schema.names:
        return None
    column = batch.column("key")
    try:
        found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    except pa.ArrowException as error:
        raise BadFile(f"{path}: the keys are {column.type}, neither bytes nor text.") from error
    return found


def _whole(batch: pa.RecordBatch, name: str, otherwise: int, path: Path) -> NDArray[np.int64]:
    """Returns a column of whole numbers, with `otherwise` in place of nulls."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return np.full(batch.num_rows, otherwise, dtype=np.int64)
    column: Any = batch.column(name)
    try:
        known = column.cast(pa.int64()).fill_null(otherwise)
    except pa.ArrowException as error:
        raise BadFile(f"{path}: the column {name} is {column.type}, not whole numbers.") from error
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int64)
