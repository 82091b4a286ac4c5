"""Time from a sample to its published rate on a running cluster, as a reader of the topic sees it.

The monitor samples every second while a light load runs; Spark publishes at its usual trigger. A
sample has arrived when a record of `trimtab.rates` contains it for every partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

from trimtab.errors import MeasurementError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.measure.kafka.monitor import MonitorScope, in_background
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.model.quantiles import quantile
from trimtab.observe.clock import wall_clock_us
from trimtab.services.monitor import open_sampling
from trimtab.workload import due
from trimtab.workload.kafka.load import Delivery, send
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides
from trimtab_lab.benchmarks.kafka.latency import Arrivals, listening
from trimtab_lab.benchmarks.spark.continuous_job import measuring

CLUSTER = "bench-live"
TOPIC = "watched"
STARTED_WITHIN_S = 300.0
WARM_UP_S = 10.0
WATCHED_S = 40.0
TRIGGER_S = 0.2
LOAD_S = 500.0
"""Records per second."""
LINGER_MS = 200.0
"""With a short linger, many small requests would load the brokers and distort the measurement."""


def live_rate(context: BenchContext, rows: int, runs: int) -> Sides:
    """The 95th percentile of each run; `rows` is the number of partitions."""
    context.spark()
    cluster = LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say)
    with cluster:
        found = [_watch(context, Cluster(cluster.bootstrap_servers), rows) for _ in range(runs)]
    return Sides(
        ours=tuple(quantile(seconds, 0.95) for seconds in found),
        rival=(1.0,),
        settings={
            "partitions": rows,
            "samples": [len(seconds) for seconds in found],
            "p50_s": [round(quantile(seconds, 0.5), 3) for seconds in found],
            "max_s": [round(max(seconds), 3) for seconds in found],
            "period_s": 1.0,
            "trigger_s": TRIGGER_S,
            "load_records_s": LOAD_S,
            "load_linger_ms": LINGER_MS,
            "brokers": 3,
        },
    )


def _watch(context: BenchContext, cluster: Cluster, partitions: int) -> list[float]:
    arrivals = Arrivals(TOPIC, partitions)
    with cluster.admin() as admin:
        admin.create_topic(TopicSpec(name=TOPIC, partitions=partitions, replication=3))
        asked = MeasureQuery(topics=frozenset({TOPIC}), from_ts=0, to_ts=wall_clock_us())
        interest = MonitorScope(topics=frozenset({TOPIC}), own_prefix=cluster.topics.prefix)
        with (
            open_sampling(cluster, interest, period_s=1.0) as monitor,
            in_background(monitor),
            listening(cluster, arrivals),
            measuring(context, cluster, asked, trigger_s=TRIGGER_S),
            _load(cluster.servers),
        ):
            if not arrivals.first.wait(STARTED_WITHIN_S):
                raise MeasurementError(
                    f"No rates were published within {STARTED_WITHIN_S:g} s.",
                    hint="Run it again with --verbose to see Spark's messages.",
                )
            context.say(f"watching {partitions} partitions for {WATCHED_S:g} s")
            time.sleep(WARM_UP_S)
            began = wall_clock_us()
            time.sleep(WATCHED_S)
    return [s for ts, s in arrivals.seconds.items() if ts >= began]


@contextmanager
def _load(servers: str) -> Iterator[None]:
    """Sends records from a separate process while the block runs."""
    process = get_context("spawn").Process(target=_send, args=(servers,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _send(servers: str) -> None:
    longest_s = STARTED_WITHIN_S + WARM_UP_S + WATCHED_S
    stream = KeyStream(rate_s=LOAD_S, seed=1, distribution=ZipfMandelbrot(keys=10_000))
    send(
        due.keyed(stream, duration_s=longest_s, value_bytes=100),
        topic=TOPIC,
        cluster=Cluster(servers),
        delivery=Delivery(linger_ms=LINGER_MS),
    )
