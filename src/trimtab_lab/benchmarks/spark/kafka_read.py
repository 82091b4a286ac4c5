"""Rates computed directly from Kafka, compared with a plain read that only counts records."""

from __future__ import annotations

from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.measure.spark.rates import rates_from_events
from trimtab.spark.sources import KafkaSpan, events, read_span
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second
from trimtab_lab.benchmarks.kafka.filled_topic import filled_topic
from trimtab_lab.benchmarks.spark.batch import WINDOW_S, drain

CLUSTER = "bench"
PARTITIONS = 12
TASKS = 12
VALUE_BYTES = 100


def kafka_read(context: BenchContext, rows: int, runs: int) -> Sides:
    """Both sides read the same offsets with the same number of tasks."""
    cluster = LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say)
    session = context.spark()
    cluster.up()
    kafka = Cluster(cluster.bootstrap_servers)
    try:
        with kafka.admin() as admin:
            ends = filled_topic(
                admin,
                kafka,
                rows=rows,
                partitions=PARTITIONS,
                value_bytes=VALUE_BYTES,
                say=context.say,
            )
        span = KafkaSpan(
            cluster=kafka,
            starts=dict.fromkeys(ends, 0),
            ends=ends,
        )

        def ours() -> None:
            read = read_span(session, span, min_partitions=TASKS)
            drain(rates_from_events(events(read), window_s=WINDOW_S, from_ts=0, to_ts=2**53))

        def plain() -> None:
            read_span(session, span, min_partitions=TASKS).count()

        seconds = alternating(ours, plain, runs=runs)
    finally:
        cluster.down(keep_data=True)  # the records stay for the next run
    return rows_per_second(
        rows,
        seconds,
        value_bytes=VALUE_BYTES,
        partitions=PARTITIONS,
        min_partitions=TASKS,
        brokers=3,
    )
