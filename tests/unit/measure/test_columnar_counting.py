"""Lossy counting on Arrow columns: batches, nulls, types, and bounded memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from trimtab.measure import columnar_counting
from trimtab.measure.columnar_counting import ArrowLossyCounter
from trimtab.measure.lossy_counting import Bounds, LossyCounter


def test_a_buffer_of_one_row_counts_like_the_counter_of_records():
    keys = [b"%d" % k for k in np.random.default_rng(5).zipf(1.5, 3000).tolist()]
    columns, records = ArrowLossyCounter(0.02, buffer_rows=1), LossyCounter(0.02)
    columns.add_keys(pa.array(keys))
    for key in keys:
        records.add(key)
    assert columns.summary() == records.summary()


def test_records_without_a_key_are_left_out():
    counter = ArrowLossyCounter(0.1)
    counter.add_keys(pa.array([b"a", None, b"", None], pa.binary()))
    assert counter.n == 2
    assert dict(counter.summary().items()) == {b"a": Bounds(1, 1), b"": Bounds(1, 1)}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_text_and_large_columns_count_as_bytes(kind):
    counter = ArrowLossyCounter(0.1)
    counter.add_keys(pa.chunked_array([["ä", "b"], ["ä"]], type=kind))
    assert counter.summary().bounds("ä".encode()) == Bounds(2, 2)


def test_a_counter_goes_on_after_it_was_summed_up():
    counter = ArrowLossyCounter(0.1)
    counter.add_keys(pa.array([b"a"] * 7))
    assert counter.summary().n == 7
    counter.add_keys(pa.array([b"a"] * 7))
    assert counter.summary().bounds(b"a") == Bounds(14, 14)


def test_an_empty_counter_has_an_empty_summary():
    summary = ArrowLossyCounter(0.1).summary()
    assert (summary.n, summary.b, summary.entries) == (0, 0, 0)


def test_no_more_than_a_buffer_and_the_entries_are_held_however_many_keys_there_are():
    counter = ArrowLossyCounter(0.01, buffer_rows=1000)
    for start in range(0, 100_000, 300):
        counter.add_keys(pa.array([b"%d" % i for i in range(start, start + 300)]))
        assert counter._buffered_rows < 1000
        assert counter._tracked.num_rows < 1000
    assert counter.summary().bounds(b"0") == Bounds(0, 1002)


def test_long_keys_are_counted_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(columnar_counting, "BUFFER_BYTES", 10_000)
    counter = ArrowLossyCounter(0.5)
    for _ in range(50):
        counter.add_keys(pa.array([b"k" * 3000]))
        assert counter._buffered_bytes < 10_000
    assert counter.summary().bounds(b"k" * 3000) == Bounds(50, 50)


def test_heavy_keys_of_a_skewed_stream_are_found_with_their_counts():
    keys = [b"%d" % k for k in np.random.default_rng(3).zipf(1.3, 50_000).tolist()]
    counter = ArrowLossyCounter(0.001, buffer_rows=4096)
    counter.add_keys(pa.array(keys))
    heavy = {key for key, count in Counter(keys).items() if count >= 500}
    assert heavy <= set(counter.summary().hot(500))


def test_a_buffer_without_rows_is_refused():
    with pytest.raises(ValueError, match="buffer_rows must be at least 1"):
        ArrowLossyCounter(0.1, buffer_rows=0)
