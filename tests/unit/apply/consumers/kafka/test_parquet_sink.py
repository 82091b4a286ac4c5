import pyarrow.parquet as pq
import pytest

from trimtab.apply.consumers.kafka.parquet_sink import Lake
from trimtab.errors import ApplyError, ConfigError
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record


def records(partition, offsets, topic="orders"):
    return [
        Record(topic, partition, n, b"k", b"v%d" % n, (("h", b"x"),), 1000 + n) for n in offsets
    ]


def files(folder):
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())


def test_files_are_named_after_table_partition_and_offsets(tmp_path):
    Lake(tmp_path).write("orders", [*records(0, [3, 4, 9]), *records(1, [7])])
    assert files(tmp_path) == [
        "orders/partition=0/3-9.parquet",
        "orders/partition=1/7-7.parquet",
    ]


def test_a_file_says_of_each_record_where_it_came_from_and_all_that_it_was(tmp_path):
    empty = Record("orders", 0, 5, None, None, (), -1)
    Lake(tmp_path).write("orders", [*records(0, [4]), empty])
    rows = pq.read_table(tmp_path / "orders").to_pylist()
    first, second = rows
    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [
        ("orders", 0, 4),
        ("orders", 0, 5),
    ]
    assert (first["key"], first["value"]) == (b"k", b"v4")
    assert first["headers"] == [{"key": "h", "value": b"x"}]
    assert first["timestamp"].timestamp() == 1.004
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, None)


def test_a_table_is_read_as_a_whole(tmp_path):
    Lake(tmp_path).write("orders", [*records(0, [3, 4]), *records(1, [7])])
    table = pq.read_table(tmp_path / "orders")
    found = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert sorted(found) == [(0, 3), (0, 4), (1, 7)]


def test_a_repeat_after_a_restart_changes_nothing(tmp_path):
    Lake(tmp_path).write("orders", records(0, range(10)))
    before = files(tmp_path)
    Lake(tmp_path).write("orders", records(0, range(5, 10)))
    assert files(tmp_path) == before


def test_records_of_a_topic_that_was_made_anew_are_not_taken_for_a_repeat(tmp_path):
    Lake(tmp_path).write("orders", records(0, range(20, 40)))
    Lake(tmp_path).write("orders", records(0, range(40, 60)))
    anew = [r._replace(value=b"other") for r in records(0, range(25, 70))]
    before = files(tmp_path)
    with pytest.raises(ApplyError, match=r"another record at orders-0, offset 25.*20-39\.parquet"):
        Lake(tmp_path).write("orders", anew)
    assert files(tmp_path) == before


def test_a_damaged_file_does_not_stop_a_repeat(tmp_path):
    Lake(tmp_path).write("orders", records(0, range(5)))
    (tmp_path / "orders/partition=0/0-4.parquet").write_bytes(b"PAR1")
    Lake(tmp_path).write("orders", records(0, range(7)))
    assert files(tmp_path) == ["orders/partition=0/0-4.parquet", "orders/partition=0/5-6.parquet"]


def test_of_a_batch_that_repeats_in_part_only_the_new_is_written(tmp_path):
    Lake(tmp_path).write("orders", records(0, range(10)))
    again = Lake(tmp_path)
    again.write("orders", records(0, range(5, 12)))
    again.write("orders", records(0, range(12, 13)))
    assert files(tmp_path) == [
        f"orders/partition=0/{name}.parquet" for name in ("0-9", "10-11", "12-12")
    ]


def test_numbers_are_compared_as_numbers_not_as_text(tmp_path):
    Lake(tmp_path).write("orders", records(0, [9]))
    Lake(tmp_path).write("orders", records(0, [10]))
    assert Lake(tmp_path).last(TopicPartition("orders", 0)) == 10


def test_what_another_wrote_meanwhile_is_seen_after_forgetting(tmp_path):
    ours, theirs, p0 = Lake(tmp_path), Lake(tmp_path), TopicPartition("orders", 0)
    ours.write("orders", records(0, [0]))
    ours.forget([p0])
    theirs.write("orders", records(0, [1, 2]))
    ours.write("orders", records(0, [1, 2, 3]))
    assert files(tmp_path)[-1] == "orders/partition=0/3-3.parquet"
    assert len(files(tmp_path)) == 3


def test_what_a_killed_writer_left_half_done_is_removed(tmp_path):
    place = tmp_path / "orders/partition=0"
    place.mkdir(parents=True)
    (place / ".0-9.parquet.123.part").write_bytes(b"half")
    Lake(tmp_path).write("orders", records(0, [0, 1]))
    assert files(tmp_path) == ["orders/partition=0/0-1.parquet"]


def test_a_failed_write_leaves_no_file_and_can_be_repeated(tmp_path, monkeypatch):
    lake = Lake(tmp_path)

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        with pytest.raises(OSError, match="disk full"):
            lake.write("orders", records(0, [0]))
    assert files(tmp_path) == []
    lake.write("orders", records(0, [0]))
    assert files(tmp_path) == ["orders/partition=0/0-0.parquet"]


def test_a_lake_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be created"):
        Lake(tmp_path / "file" / "lake")
