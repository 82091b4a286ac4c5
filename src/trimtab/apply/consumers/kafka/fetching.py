r"""Two things that kafka-python's fetcher lacks; the only place that knows its insides.

Why      It takes a record with a header name that is not UTF-8 for a damaged one and fails at it
         for ever, so its partition would have no reader any more. And it tells where a log ends,
         not where it can be read to: behind an open transaction that is not the same, and a
         consumer that waits for the transaction's end would seem to have a backlog.
Promise  After `mend`, such a name has its odd bytes escaped (`\xff`) and the record is handed out
         like any other; and `highwater` never lies behind the last stable offset where only
         committed records are read. Whatever else is damaged is an error as before.
Cost     One more call for each record.
"""

from __future__ import annotations

from typing import Any

from kafka.record.default_records import DefaultRecordBatch

from trimtab.observe.logging import library_log

log = library_log()


def mend(consumer: Any) -> None:
    """Makes a KafkaConsumer behave as said above; no other consumer is changed.

    One with other insides, of a version to come, stays as it is, and the log says so.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    unpack = getattr(fetcher, "PartitionRecords", None)
    parse = getattr(fetcher, "_parse_fetched_data", None)
    if fetcher is None or unpack is None or parse is None:
        log.warning("kafka_python_is_not_as_expected", missing="the fetcher's insides")
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
    """Fetched records whose batches read odd names."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if type(batch) is DefaultRecordBatch:  # older formats have no headers
            batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]
    """Reads a record again, with odd names escaped, when it fails at one."""

    __slots__ = ()

    def _read_msg(self) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            self._buffer = _Escaping(self._buffer)  # type: ignore[has-type, misc]  # a base's slot
            return super()._read_msg()


class _Escaping(bytearray):
    """Bytes of which each part becomes text whatever it holds."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Part(found) if isinstance(at, slice) else found


class _Part(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        del errors
        return super().decode(encoding, "backslashreplace")
