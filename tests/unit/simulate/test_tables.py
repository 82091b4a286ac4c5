"""Streams and histories as Parquet."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.simulate.recorded import warehouse
from trimtab.errors import BadFile, ConfigError, SchemaMismatch
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep, Unit
from trimtab.simulate.replay import LagRow, RateRow
from trimtab.simulate.tables import read_history, read_stream, write_stream

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def test_a_stream_comes_back_from_parquet_as_it_was(tmp_path):
    stream = Loads(
        capacity=100,
        unit=Unit.RECORDS_S,
        sla_s=5,
        assignment=Assignment({A: 2}),
        capacities={1: 50},
        steps=(
            LoadStep(loads={A: 1, B: 2}, lags={B: 9}),
            LoadStep(loads={}),
            LoadStep(loads={B: 3}),
        ),
    )
    write_stream(tmp_path / "s.parquet", stream)
    assert read_stream(tmp_path / "s.parquet") == (stream, [])


def test_loads_that_are_not_whole_stay_what_they_are(tmp_path):
    stream = Loads(capacity=1.5, steps=(LoadStep(loads={A: 1, B: 0.25}),))
    write_stream(tmp_path / "s.parquet", stream)
    assert read_stream(tmp_path / "s.parquet")[0] == stream


def written(path, **columns):
    header = json.dumps({"v": 1, "capacity": 10, "unit": "bytes/s", "steps": 2})
    table = pa.table(columns).replace_schema_metadata({b"trimtab": header})
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"load": [-1.0]}, r"s.parquet: steps\[0\].loads.a.0: is negative"),
        ({"load": [float("nan")]}, r"steps\[0\].loads.a.0: should be a finite number"),
        ({"load": [None]}, r"steps\[0\].loads.a.0: should be a number, is null"),
        ({"step": [2]}, r"row 0: step 2 does not exist"),
        ({"partition": [-1]}, r"\"-1\" is not an index"),
        ({"topic": pa.array([None], pa.string())}, r"column topic has 1 null value\(s\)"),
        (
            {"step": [0, 0], "topic": ["a"] * 2, "partition": [0] * 2, "load": [1.0] * 2},
            "row 1: a-0 occurs twice in step 0",
        ),
    ],
)
def test_a_stream_that_is_wrong_is_refused_with_file_and_place(tmp_path, columns, complaint):
    good = {"step": [0], "topic": ["a"], "partition": [0], "load": [1.0]}
    with pytest.raises(BadFile, match=complaint):
        read_stream(written(tmp_path / "s.parquet", **{**good, **columns}))


def test_a_column_that_is_missing_is_named(tmp_path):
    with pytest.raises(SchemaMismatch, match="column load is missing"):
        read_stream(written(tmp_path / "s.parquet", step=[0], topic=["a"], partition=[0]))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"step": ["0"]}, "column step is string, should be whole numbers"),
        ({"partition": [0.0]}, "column partition is double, should be whole numbers"),
        ({"topic": [b"a"]}, "column topic is binary, should be text"),
        ({"load": pa.array([1], pa.decimal128(5, 2))}, "column load is decimal128.* numbers"),
    ],
)
def test_a_column_of_another_type_is_named(tmp_path, columns, complaint):
    good = {"step": [0], "topic": ["a"], "partition": [0], "load": [1.0]}
    with pytest.raises(SchemaMismatch, match=complaint):
        read_stream(written(tmp_path / "s.parquet", **{**good, **columns}))


def test_text_that_is_kept_as_a_dictionary_is_text(tmp_path):
    topics = pa.array(["a"]).dictionary_encode()
    path = written(tmp_path / "s.parquet", step=[0], topic=topics, partition=[0], load=[1.0])
    assert read_stream(path)[0].steps[0].loads == {A: 1.0}


def test_a_parquet_file_that_is_no_stream_is_refused(tmp_path):
    pq.write_table(pa.table({"step": [0]}), tmp_path / "s.parquet")
    with pytest.raises(BadFile, match="no metadata with capacity"):
        read_stream(tmp_path / "s.parquet")
    (tmp_path / "t.parquet").write_text("no Parquet")
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        read_stream(tmp_path / "t.parquet")
    with pytest.raises(BadFile, match="no such file"):
        read_stream(tmp_path / "u.parquet")


def test_a_measurement_is_no_stream(tmp_path):
    path = tmp_path / "m.json"
    measured = {"from_ts": 0, "to_ts": 1, "window_s": 1, "rejects": 0, "partitions": []}
    path.write_text(json.dumps({"v": 1, "kind": "measurement", **measured}))
    with pytest.raises(ConfigError, match="is a single measurement"):
        read_stream(path)


START = 1_767_225_600_000_000
RATE = RateRow(START, START + 30_000_000, A, 10.0, None, "log_dirs", 30, True)


def test_a_warehouse_is_read_with_its_lags(tmp_path):
    assert read_history(warehouse(tmp_path)) == ([RATE], [LagRow(START, "g", A, 4)])


def test_a_table_or_a_file_of_rates_is_a_history_without_lags(tmp_path):
    table = warehouse(tmp_path, lag=False) / "partition_rates"
    file = next(table.rglob("*.parquet"))
    assert read_history(tmp_path) == read_history(table) == read_history(file) == ([RATE], [])


def test_a_history_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadFile, match="no such file or folder"):
        read_history(tmp_path / "nowhere")
