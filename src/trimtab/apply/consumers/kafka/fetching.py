r"""Corrects two shortcomings of kafka-python's fetcher; the only module that knows its internals.

Why      It rejects a record with a header name that is not UTF-8 as corrupt, at every attempt, so
         the partition could not be read any further. And it reports the end of the log, not the
         last stable offset: a consumer waiting for an open transaction seems to have a backlog.
Promise  After `patch_fetcher`, invalid bytes of a header name are escaped (`\xff`) and the record
         is returned like any other; and `highwater` is never beyond the last stable offset where
         only committed records are read. Other corruption raises as before.
Cost     One more call for each record.
"""

from __future__ import annotations

from typing import Any

from kafka.record.default_records import DefaultRecordBatch

from trimtab.observe.logging import library_log

log = library_log()


def patch_fetcher(consumer: Any) -> None:
    """Corrects the fetcher of one KafkaConsumer; other consumers are not changed.

    If the library's internals differ (another version), it logs a warning and changes nothing.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    unpack = getattr(fetcher, "PartitionRecords", None)
    parse = getattr(fetcher, "_parse_fetched_data", None)
    if fetcher is None or unpack is None or parse is None:
        log.warning("kafka_python_is_not_as_expected", missing="internals of the fetcher")
        return

    def unpacked(fetch_offset: int, partition: Any, records: Any, **rest: Any) -> Any:
        return unpack(fetch_offset, partition, _Records(records), **rest)

    def parsed(completed: Any) -> Any:
        found = completed.partition_data
        if 0 <= getattr(found, "last_stable_offset", -1) < found.high_watermark:
            found.high_watermark = found.last_stable_offset
        return parse(completed)

    fetcher.PartitionRecords, fetcher._parse_fetched_data = unpacked, parsed


class _Records:
    """Fetched records whose batches accept header names that are not UTF-8."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if type(batch) is DefaultRecordBatch:  # older formats have no headers
            batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]
    """Reads a record again with escaped header names when one is not UTF-8."""

    __slots__ = ()

    def _read_msg(self) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            self._buffer = _Escaping(self._buffer)  # type: ignore[has-type, misc]  # a base's slot
            return super()._read_msg()


class _Escaping(bytearray):
    """Bytes whose slices decode without error; invalid bytes are escaped."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Part(found) if isinstance(at, slice) else found


class _Part(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        del errors
        return super().decode(encoding, "backslashreplace")
