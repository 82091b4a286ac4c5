"""A data lake of Parquet files with the records that a consumer has read, a table per topic.

Promise  Files are named `<table>/partition=<p>/<first>-<last>.parquet` by their offsets; the
         partition is only in the folder's name, as Spark and Arrow expect. Each file is written
         under another name, made durable and renamed: readers see whole files only. Offsets up to
         the highest `last` are skipped, so repeats change nothing; different records at the same
         offsets (a topic that was created again) are refused, since skipping would lose them. Files
         that a killed writer left incomplete are removed by the partition's next writer.
Cost     One file per partition and batch; a folder is listed once, when a partition is taken; one
         file is read for each batch with repeated records.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.errors import ApplyError, ConfigError
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
        ),
    ]
)
_FILE = re.compile(r"(?P<first>\d+)-(?P<last>\d+)\.parquet")
_HALF = re.compile(r"\..*\.part")


class Lake:
    """The tables under one folder; several tables may be written at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._last: dict[TopicPartition, int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"The lake {folder} cannot be created: {error.strerror or error}."
            ) from error

    def write(self, table: str, records: Sequence[Record]) -> None:
        """Writes records of one topic, in the order of their offsets within each partition."""
        by_partition: dict[int, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for number, of_partition in by_partition.items():
            self._write(TopicPartition(table, number), of_partition)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets the offsets of partitions that other consumers may write from now on."""
        with self._guard:
            for partition in partitions:
                self._last.pop(partition, None)

    def last(self, partition: TopicPartition) -> int:
        """The highest offset written; -1 if there is none."""
        with self._guard:
            known = self._last.get(partition)
        if known is None:
            known = _highest(self._place(partition))
            with self._guard:
                self._last[partition] = known
        return known

    def _place(self, partition: TopicPartition) -> Path:
        return self._folder / partition.topic / f"partition={partition.partition}"

    def _write(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        last = self.last(partition)
        new = [record for record in records if record.offset > last]
        place = self._place(partition)
        if len(new) < len(records):
            _compare(place, {r.offset: r for r in records if r.offset <= last})
        if not new:
            return
        _make(place)
        whole = place / f"{new[0].offset}-{new[-1].offset}.parquet"
        half = place / f".{whole.name}.{os.getpid()}.part"
        try:
            with half.open("wb") as out:
                pq.write_table(_table(new), out)
                out.flush()
                os.fsync(out.fileno())
            half.rename(whole)
        finally:
            half.unlink(missing_ok=True)
        _sync(place)
        with self._guard:
            self._last[partition] = new[-1].offset


def _highest(place: Path) -> int:
    """The highest `last` of a partition's files; removes incomplete files of killed writers."""
    highest = -1
    if not place.is_dir():
        return highest
    for entry in os.scandir(place):
        found = _FILE.fullmatch(entry.name)
        if found:
            highest = max(highest, int(found["last"]))
        elif _HALF.fullmatch(entry.name):
            Path(entry.path).unlink(missing_ok=True)
    return highest


def _compare(place: Path, repeated: Mapping[int, Record]) -> None:
    """Raises if a file has different records at the same offsets."""
    for path in sorted(place.iterdir()):
        found = _FILE.fullmatch(path.name)
        if not found or not any(int(found["first"]) <= n <= int(found["last"]) for n in repeated):
            continue
        with suppress(pa.ArrowException, OSError):  # an unreadable file proves nothing
            with pq.ParquetFile(path) as file:
                held = file.read(["offset", "key", "value"]).to_pylist()
            for row in held:
                record = repeated.get(row["offset"])
                if record is not None and (record.key, record.value) != (row["key"], row["value"]):
                    raise ApplyError(
                        f"The lake has another record at {record.source}, offset {record.offset}: "
                        f"{path}.",
                        hint="The topic may have been deleted and created again. Move the table's "
                        "folder away, or choose another --lake.",
                    )
            return


def _make(place: Path) -> None:
    if not place.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        _sync(place.parent)
        _sync(place.parent.parent)


def _sync(folder: Path) -> None:
    """Syncs a folder, which makes new names in it durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _table(records: Sequence[Record]) -> pa.Table:
    columns = [
        [r.topic for r in records],
        [r.offset for r in records],
        [r.timestamp_ms if r.timestamp_ms >= 0 else None for r in records],
        [r.key for r in records],
        [r.value for r in records],
        [[{"key": name, "value": value} for name, value in r.headers] for r in records],
    ]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
