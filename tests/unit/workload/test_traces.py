"""Traces in Parquet: written, read, replayed, refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import BadFile
from trimtab.workload.traces import SentRecords, read_trace, recording


def sent(times_s, keys, partitions):
    count = len(times_s)
    return SentRecords(
        times_s=np.array(times_s, dtype=np.float64),
        keys=keys,
        partitions=np.array(partitions),
        offsets=np.arange(count) - 1,
        value_bytes=np.full(count, 7),
    )


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def replayed(path, **more):
    trace = read_trace(path)
    blocks = list(trace.blocks(**{"value_bytes": 100} | more))
    times_s = np.concatenate([block.times_s for block in blocks]).tolist()
    keys = [key for block in blocks for key in block.each_key()]
    partitions = [p for block in blocks for p in block.each_partition()]
    sizes = np.concatenate([block.value_bytes for block in blocks]).tolist()
    return times_s, keys, partitions, sizes


def test_what_was_recorded_is_what_is_replayed(tmp_path):
    path = tmp_path / "new" / "trace.parquet"

    with recording(path) as trace:
        trace.write(sent([0.25, 1.0], [b"a", b"\xff\0"], [3, 0]))
        trace.write(sent([1.0, 9.5], [None, b"a"], [1, 3]))

    assert replayed(path) == (
        [0.25, 1.0, 1.0, 9.5],
        [b"a", b"\xff\0", None, b"a"],
        [3, 0, 1, 3],
        [7] * 4,
    )
    found = read_trace(path)
    assert (found.records, found.duration_s, found.partitions) == (4, 9.5, 4)


def test_a_recording_says_where_each_record_went_and_leaves_unknown_offsets_empty(tmp_path):
    path = tmp_path / "trace.parquet"

    with recording(path) as trace:
        trace.write(sent([0.0, 1.0, 2.0], [b"a"] * 3, [0, 0, 0]))

    table = pq.read_table(path)
    assert table.column_names == ["t_s", "key", "partition", "offset", "value_bytes"]
    assert table.column("offset").to_pylist() == [None, 0, 1]


def test_a_recording_of_nothing_is_refused_as_a_trace(tmp_path):
    path = tmp_path / "trace.parquet"
    with recording(path):
        pass

    with pytest.raises(BadFile, match="no records"):
        read_trace(path)


def test_a_recording_that_was_broken_off_leaves_no_file(tmp_path):
    def broken_off():
        with recording(tmp_path / "trace.parquet") as trace:
            trace.write(sent([0.0], [b"a"], [0]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()

    assert list(tmp_path.iterdir()) == []


def test_many_blocks_are_gathered_into_few_row_groups(tmp_path):
    path = tmp_path / "trace.parquet"

    with recording(path) as trace:
        for start in range(100):
            trace.write(sent(start + np.arange(1000) / 1000, [b"k"] * 1000, [0] * 1000))

    assert pq.ParquetFile(path).num_row_groups == 2
    assert read_trace(path).records == 100_000


def test_wall_clock_times_count_from_the_first_record(tmp_path):
    start = 1_700_000_000_000_000
    path = parquet(tmp_path / "t", ts=[start, start + 1_500_000, start + 2_000_000])

    times_s, keys, partitions, sizes = replayed(path)

    assert times_s == pytest.approx([0.0, 1.5, 2.0], abs=1e-6)
    assert (keys, partitions, sizes) == ([None] * 3, [-1] * 3, [100] * 3)


def test_timestamps_of_other_tools_are_understood(tmp_path):
    path = tmp_path / "t"
    stamps = pa.array([1_700_000_000_000, 1_700_000_000_250], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"ts": stamps}), path)

    assert replayed(path)[0] == pytest.approx([0.0, 0.25], abs=1e-6)


def test_text_keys_are_their_bytes_and_nulls_stay_unknown(tmp_path):
    path = parquet(
        tmp_path / "t",
        t_s=[0.0, 1.0],
        key=["ä", None],
        partition=[None, 2],
        value_bytes=[None, 5],
    )

    assert replayed(path) == ([0.0, 1.0], ["ä".encode(), None], [-1, 2], [100, 5])


def test_a_trace_can_be_replayed_faster_and_by_key(tmp_path):
    path = parquet(tmp_path / "t", t_s=[1.0, 3.0], key=["a", "b"], partition=[5, 6])

    times_s, _, partitions, _ = replayed(path, speed=4.0, by_key=True)

    assert times_s == [0.25, 0.75]
    assert partitions == [-1, -1]


def test_speed_must_be_positive(tmp_path):
    path = parquet(tmp_path / "t", t_s=[1.0])

    with pytest.raises(ValueError, match="positive, not 0"):
        next(read_trace(path).blocks(value_bytes=1, speed=0.0))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": ["a"]}, "no column t_s or ts; the columns are key"),
        ({"t_s": [0.0, 2.0, 1.0]}, "row 2 is earlier"),
        ({"t_s": [-1.0]}, "row 0 is earlier"),
        ({"t_s": [0.0, None]}, "row 1 has no time"),
        ({"t_s": [0.0, float("inf")]}, "row 1 has no time"),
        ({"t_s": ["soon"]}, "the times are string"),
        ({"t_s": [0.0], "key": [1.5]}, "the keys are double"),
        ({"t_s": [0.0], "partition": [-2]}, "row 0 has a negative partition"),
        ({"t_s": [0.0], "partition": [0.5]}, "the column partition is double"),
        ({"t_s": [0.0, 0.0], "value_bytes": [1, -1]}, "row 1 has a negative value_bytes"),
    ],
)
def test_a_bad_trace_is_refused_with_file_and_place(tmp_path, columns, complaint):
    path = parquet(tmp_path / "bad.parquet", **columns)

    with pytest.raises(BadFile, match=complaint) as caught:
        read_trace(path)

    assert caught.value.message.startswith(str(path))


@pytest.mark.parametrize("content", [None, b"", b"t_s,key\n0,a\n"])
def test_what_is_no_parquet_file_is_refused(tmp_path, content):
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(BadFile, match=r"trace\.csv: cannot be read as Parquet"):
        read_trace(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()

    with (
        pytest.raises(BadFile, match="cannot be written"),
        recording(tmp_path / "file" / "trace.parquet"),
    ):
        pass
