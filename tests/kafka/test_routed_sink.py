"""Spark writes to real brokers with partitions of our choosing."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.streams import read_all
from trimtab.apply.records.spark.routed_sink import leaders_now, write_routed
from trimtab.errors import MeasurementError
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.murmur2 import home
from trimtab.plan.records.ratios import ratios

UNEVEN = {0: [1], 1: [2], 2: [2], 3: [2]}


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    """One partition on broker 1, three on broker 2."""
    name = f"sink-{uuid.uuid4().hex[:8]}"
    make(admin, name, UNEVEN)
    yield name
    admin.delete_topic(name)


def make(admin: KafkaAdmin, name: str, held: dict[int, list[int]]) -> None:
    assert admin.create_topic(
        TopicSpec(name=name, partitions=len(held), replication=1, assignment=held)
    )


def test_every_row_is_written_once_keyed_by_hash_and_keyless_evenly_over_brokers(
    cluster: LocalCluster, topic: str, spark: SparkSession
) -> None:
    rows = spark.range(0, 5000, 1, 3).selectExpr(
        "if(id % 5 = 0, concat('key-', id), null) as key", "concat('value-', id) as value"
    )

    write_routed(rows, cluster.bootstrap_servers, "node", topic=topic)

    found = read_all(cluster.bootstrap_servers, topic, 4)
    keys = {b"key-%d" % i for i in range(0, 5000, 5)}
    assert Counter((r.key, r.partition) for r in found if r.key) == {
        (k, home(k, 4)): 1 for k in keys
    }
    assert len(found) == 5000
    seen = leaders_now(Cluster(cluster.bootstrap_servers), [topic])
    keyless = Counter(TopicPartition(topic, r.partition) for r in found if r.key is None)
    assert ratios(keyless, seen).brokers <= 1.02


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        {"partitioner.ignore.keys": "true"},
    ],
)
def test_rows_with_a_key_go_where_the_settings_of_the_sink_send_them(
    cluster: LocalCluster, topic: str, spark: SparkSession, settings: dict[str, str]
) -> None:
    rows = spark.range(0, 400, 1, 1).selectExpr("'k' as key", "'v' as value")
    sink = {f"kafka.{name}": value for name, value in settings.items()}
    rows.write.format("kafka").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}, **sink
    ).save()
    bare = Counter(r.partition for r in read_all(cluster.bootstrap_servers, topic, 4))

    write_routed(rows, cluster.bootstrap_servers, "default", topic=topic, producer=settings)

    both = Counter(r.partition for r in read_all(cluster.bootstrap_servers, topic, 4))
    ours = both - bare
    assert ours.total() == bare.total() == 400
    if not settings:
        assert ours == bare == {home(b"k", 4): 400}
    elif "partitioner.class" in settings:
        assert len(ours) > 1
    else:
        assert set(ours.values()) == {100}


def test_a_stream_looks_at_the_leaders_anew_for_each_batch(
    cluster: LocalCluster, admin: KafkaAdmin, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    stream = spark.readStream.schema("topic string, value string").json(str(source))

    def write(batch: DataFrame, _number: int) -> None:
        write_routed(batch, cluster.bootstrap_servers, "default")

    def batch_of(rows: int, name: str) -> None:
        (source / name).write_text(f'{{"topic": "{topic}", "value": "v"}}\n' * rows)
        query = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    batch_of(40, "one.json")
    assert len(read_all(cluster.bootstrap_servers, topic, 4)) == 40

    admin.delete_topic(topic)
    make(admin, topic, {0: [3], 1: [1]})
    batch_of(30, "two.json")

    assert Counter(r.partition for r in read_all(cluster.bootstrap_servers, topic, 2)).total() == 30


def test_a_topic_that_nobody_knows_is_our_error(cluster: LocalCluster, spark: SparkSession) -> None:
    rows = spark.sql("select 'nobody' as topic, 'v' as value")

    with pytest.raises(MeasurementError, match="Topic nobody"):
        write_routed(rows, cluster.bootstrap_servers, "node")
