"""The `partition` column of Spark's Kafka sink, filled by our partitioners."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from trimtab.apply.records.spark.routed_sink import with_partitions
from trimtab.errors import SchemaMismatch, UnknownPlanner, UnknownTopic
from trimtab.model.cluster import TopicPartition
from trimtab.model.murmur2 import home
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.ratios import ratios

U = LeaderSnapshot({"U": {0: 1, 1: 2, 2: 2}, "V": {0: 3, 1: 3, 2: 1, 3: -1}})
ROW = "topic string, key binary, value binary, partition int, n int"
Row = tuple[str | None, bytes | None, bytes | None, int | None]


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """The rows, each with its number, in two tasks."""
    numbered: list[tuple[Any, ...]] = [(*row, n) for n, row in enumerate(rows)]
    return spark.createDataFrame(numbered, ROW).repartition(2)


def filled(rows: DataFrame, name: str, options: RoutingOptions | None = None, **told: Any) -> Any:
    """What comes out, by the number of the row."""
    out = with_partitions(rows, U, name, options or RoutingOptions(), **told).collect()
    assert len({row.n for row in out}) == len(out)
    return {row.n: row for row in out}


def test_keyed_rows_go_where_the_java_client_puts_them(spark: SparkSession) -> None:
    keys = [b"key-%d" % i for i in range(50)] + [b"", b"a-little-bit-long-string"]

    found = filled(frame(spark, [("V", key, b"v", None) for key in keys]), "node")

    assert [found[i].partition for i in range(len(keys))] == [home(key, 4) for key in keys]


def test_every_row_comes_out_once_and_as_it_was(spark: SparkSession) -> None:
    rows: list[Row] = [
        ("U", None, b"v", None),
        ("V", b"k", None, None),
        ("U", None, None, 2),
        ("V", b"k", b"v", 3),
        ("U", b"", b"", None),
    ]

    found = filled(frame(spark, rows), "default")

    assert {n: (r.topic, r.key, r.value) for n, r in found.items()} == {
        n: row[:3] for n, row in enumerate(rows)
    }
    assert (found[2].partition, found[3].partition) == (2, 3)
    assert found[0].partition in {0, 1, 2}
    assert (found[1].partition, found[4].partition) == (home(b"k", 4), home(b"", 3))


@pytest.mark.parametrize("name", ["node", "sqf", "weighted-node"])
def test_brokers_of_an_uneven_topic_share_keyless_rows_evenly(
    spark: SparkSession, name: str
) -> None:
    rows = spark.range(0, 4000, 1, 4).selectExpr("id as n", "repeat('v', 20) as value")

    found = filled(rows, name, topic="U")

    assert len(found) == 4000
    given = Counter(TopicPartition("U", row.partition) for row in found.values())
    assert ratios(given, U).brokers <= 1.02


def test_a_partition_without_leader_gets_no_keyless_row(spark: SparkSession) -> None:
    found = filled(frame(spark, [("V", None, b"v", None)] * 40), "default")

    assert {row.partition for row in found.values()} == {0, 1, 2}


def test_tasks_start_anywhere_but_a_seed_tells_where(spark: SparkSession) -> None:
    rows = spark.range(0, 6, 1, 6).selectExpr("id as n", "'v' as value")

    def starts(seed: int) -> list[int]:
        found = filled(rows, "default", RoutingOptions(seed=seed), topic="U")
        return [found[n].partition for n in range(6)]

    first = starts(1)
    assert len(set(first)) > 1
    assert starts(1) == first
    assert starts(2) != first


def test_weights_are_given_for_the_rows_at_hand(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 1).selectExpr("id as n", "'v' as value")

    lock = threading.Lock()  # steering has one, and it cannot travel

    def live() -> dict[int, float]:
        with lock:
            return {1: 3.0, 2: 1.0}

    given = filled(rows, "weighted-node", topic="U", weights={1: 3.0, 2: 1.0})
    lived = filled(rows, "weighted-node", RoutingOptions(weights=live), topic="U")

    for found in (given, lived):
        assert Counter(row.partition for row in found.values())[0] == 300


def test_rows_with_a_key_can_be_left_to_the_client(spark: SparkSession) -> None:
    rows = frame(spark, [("U", b"k", b"v", None), ("U", b"k", b"v", 1), ("U", None, b"v", None)])

    found = filled(rows, "node", keys_by_client=True)

    assert (found[0].partition, found[1].partition) == (None, 1)
    assert found[2].partition in {0, 1, 2}


def test_keys_can_be_ignored(spark: SparkSession) -> None:
    options = RoutingOptions(ignore_keys=True)

    found = filled(frame(spark, [("U", b"k", b"v", None)] * 20), "node", options)

    assert len({row.partition for row in found.values()}) == 3


def test_text_is_hashed_as_utf_8_and_headers_stay(spark: SparkSession) -> None:
    rows = spark.sql(
        "select 'U' as topic, 'ключ' as key, 'v' as value, 0 as n, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers"
    )

    found = filled(rows, "node")[0]

    assert found.partition == home("ключ".encode(), 3)
    assert [(h.key, bytes(h.value)) for h in found.headers] == [("h", b"x")]


def test_a_row_without_topic_is_left_to_the_sink(spark: SparkSession) -> None:
    assert filled(frame(spark, [(None, None, b"v", None)]), "node")[0].partition is None


def test_no_rows_are_no_trouble(spark: SparkSession) -> None:
    assert filled(frame(spark, []), "sqf") == {}


def test_a_topic_that_nobody_knows_is_an_error(spark: SparkSession) -> None:
    rows = frame(spark, [("nobody", None, b"v", None)])

    with pytest.raises(UnknownTopic):
        filled(rows, "node", topic="nobody")
    with pytest.raises(PythonException, match="Topic nobody is not in the snapshot"):
        filled(rows, "node")


@pytest.mark.parametrize(
    ("query", "topic", "says"),
    [
        ("select 'U' as topic", None, "no column value"),
        ("select 'v' as value", None, "no text column topic"),
        ("select 1 as value", "U", "value is int"),
        ("select 'v' as value, 1L as partition", "U", "partition is bigint"),
    ],
)
def test_columns_that_the_sink_refuses_are_named(
    spark: SparkSession, query: str, topic: str | None, says: str
) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        with_partitions(spark.sql(query), U, "node", topic=topic)


def test_a_wrong_name_fails_before_any_task(spark: SparkSession) -> None:
    with pytest.raises(UnknownPlanner):
        with_partitions(spark.sql("select 'v' as value"), U, "nude", topic="U")


def test_executors_need_no_kafka_client() -> None:
    tell = (
        "import trimtab.apply.records.spark.routed_sink, sys, json;"
        "json.dump(sorted({name.partition('.')[0] for name in sys.modules}), sys.stdout)"
    )

    found = subprocess.run([sys.executable, "-c", tell], capture_output=True, check=True)

    loaded = set(json.loads(found.stdout))
    assert "pyspark" in loaded
    assert not loaded & {"kafka", "confluent_kafka", "structlog", "grpc", "pydantic"}
