"""Lossy counting on Arrow columns: whole batches of keys instead of one record after another.

Why      A Python loop over records slows Spark down; Arrow counts a batch of keys natively.
         Keys are collected in a buffer; a full buffer is counted, added and pruned once.
Promise  The four guarantees of `trimtab.measure.lossy_counting`, and the same `Summary`.
Cost     Memory for one buffer and the entries, whatever the number of distinct keys; a block of
         `m` rows costs O(m + entries). Records without a key are left out, and not in `n`.

>>> import pyarrow as pa
>>> counter = ArrowLossyCounter(0.25)
>>> counter.add_keys(pa.array([b"a", b"b", b"a", None, b"c", b"a", b"d", b"a", b"e"]))
>>> counter.summary().hot(4)
{b'a': Bounds(lower=4, upper=4)}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.measure.lossy_counting import Entry, Summary, bucket_width

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER_ROWS = 400_000
BUFFER_BYTES = 64 * 2**20  # long keys fill the buffer before many rows do


class ArrowLossyCounter:
    """Counts the keys of one window, column by column.

    Why the guarantees hold: a block counts as if its records arrived one after another, with each
    new key added at the block's first record. Its `d` is then `b₀`, the number of buckets complete
    before the block, and a key absent at that time had at most `b₀` records before (1, 2). After
    the block, `b = ⌊n/width⌋` buckets are complete and entries with `f + d ≤ b` are dropped, which
    is what a key that is not tracked may have (1, 3). All `f` records of an entry are in bucket
    `d + 1` or later, since the block began there, so the limit on entries is unchanged (4).
    """

    def __init__(self, epsilon: float, *, buffer_rows: int = BUFFER_ROWS) -> None:
        import pyarrow as pa

        if buffer_rows < 1:
            raise ValueError(f"buffer_rows must be at least 1, not {buffer_rows}")
        self.width = bucket_width(epsilon)
        self.buffer_rows = buffer_rows
        self._n = 0  # without the records in the buffer
        columns = {"key": pa.binary(), "f": pa.int64(), "d": pa.int64()}
        self._tracked = pa.schema(columns.items()).empty_table()
        self._buffer: list[pa.Array] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0

    @property
    def n(self) -> int:
        """The number of keyed records seen."""
        return self._n + self._buffered_rows

    def add_keys(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Counts a column of binary or string keys; nulls are records without a key."""
        import pyarrow as pa

        chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
        for column in chunks:
            chunk = column.drop_null() if column.null_count else column
            if chunk.type != pa.binary():
                chunk = chunk.cast(pa.binary())
            start = 0
            while start < len(chunk):
                part = chunk.slice(start, self.buffer_rows - self._buffered_rows)
                start += len(part)
                self._buffer.append(part)
                self._buffered_rows += len(part)
                self._buffered_bytes += part.nbytes
                if self._buffered_rows >= self.buffer_rows or self._buffered_bytes >= BUFFER_BYTES:
                    self._fold()

    def summary(self) -> Summary:
        """Returns the current summary."""
        self._fold()
        columns = self._tracked.to_pydict()
        tracked = dict(zip(columns["key"], map(Entry, columns["f"], columns["d"]), strict=True))
        return Summary(width=self.width, n=self._n, b=self._n // self.width, tracked=tracked)

    def _fold(self) -> None:
        """Adds the buffer's counts to the entries and prunes them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._buffer:
            return
        before = self._n // self.width
        self._n += self._buffered_rows
        complete = self._n // self.width
        counted = pa.chunked_array(self._buffer).value_counts()
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0
        missed = pa.repeat(pa.scalar(before, pa.int64()), len(counted))
        block = pa.table([*counted.flatten(), missed], schema=self._tracked.schema)
        # An entry's own d is never above `before`, so the smallest d is the oldest.
        both = pa.concat_tables([self._tracked, block]).group_by("key", use_threads=False)
        summed = both.aggregate([("f", "sum"), ("d", "min")])
        summed = summed.rename_columns(["key", "f", "d"])
        if complete > before:
            summed = summed.filter(pc.greater(pc.add(summed["f"], summed["d"]), complete))
        self._tracked = summed
