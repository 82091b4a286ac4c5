"""The benchmark of live heavy keys on a real broker, short: it reads all, and its bounds hold."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab_lab.benchmarks.benchmark import BenchContext
from trimtab_lab.benchmarks.spark.live_keys import PARTITIONS, Pace, watch


def test_a_filled_topic_is_read_at_its_pace_and_the_bounds_hold(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    context = BenchContext(spark=lambda: spark, home=tmp_path, cache=tmp_path)
    pace = Pace(records_s=5000, window_s=2.0, warm_up=1, batches=3)

    (found,) = watch(context, Cluster(cluster.bootstrap_servers), pace, runs=1)

    # Spark rounds the share of each partition down.
    assert pace.records_s * 3 * pace.window_s - 3 * PARTITIONS <= sum(found.rows)
    assert max(found.rows) <= pace.per_batch
    assert found.heavy_keys > 0
    assert found.memory.samples
