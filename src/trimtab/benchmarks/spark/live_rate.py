"""From a sample to its published rate on a running cluster, as a reader of `trimtab.rates` sees it.

The monitor samples every second while a light load runs; Spark publishes at its usual trigger. A
sample counts when a record arrives that has it for every partition.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from trimtab.benchmarks.benchmark import Sides, Stage, quantile
from trimtab.benchmarks.kafka.latency import Arrivals, listening
from trimtab.client_properties import ClientProperties
from trimtab.errors import MeasurementError
from trimtab.measure.kafka.admin import Admin, TopicSpec, connect
from trimtab.measure.kafka.monitor import Interest, in_background, open_monitor
from trimtab.measure.kafka.publish import open_publisher
from trimtab.measure.kafka.topics import OwnTopics, ensure_topics
from trimtab.measure.spark.continuous import Beat, Results, run_continuously
from trimtab.measure.spark.spans import Asked, Target
from trimtab.measure.spark.tables import Warehouse
from trimtab.measure.windows import MICROS
from trimtab.testing.local_cluster import LocalCluster
from trimtab.workload import due
from trimtab.workload.kafka.load import send
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot

CLUSTER = "bench-live"
TOPIC = "watched"
WARM_UP_S = 15.0
WATCHED_S = 40.0
TRIGGER_S = 0.2
LOAD_S = 500.0
"""Records per second."""


def live_rate(stage: Stage, rows: int, runs: int) -> Sides:
    """The 95th percentile of each run; `rows` is the number of partitions."""
    stage.spark()
    cluster = LocalCluster(CLUSTER, home=stage.home, cache=stage.cache, say=stage.say)
    with cluster:
        found = [_watch(stage, cluster.bootstrap_servers, rows) for _ in range(runs)]
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
            "brokers": 3,
        },
    )


def _watch(stage: Stage, bootstrap_server: str, partitions: int) -> list[float]:
    own, nobody = OwnTopics(), ClientProperties.none()
    arrivals = Arrivals(TOPIC, partitions)
    with connect(bootstrap_server, nobody) as admin:
        ensure_topics(admin, own)
        admin.create_topic(TopicSpec(name=TOPIC, partitions=partitions, replication=3))
        stage.say(f"watching {partitions} partitions for {WATCHED_S:g} s")
        with (
            open_monitor(
                bootstrap_server,
                nobody,
                topic=own.telemetry,
                interest=Interest(topics=frozenset({TOPIC}), own_prefix=own.prefix),
            ) as monitor,
            in_background(monitor),
            listening(bootstrap_server, own.rates, arrivals),
        ):
            began = _now_ts()
            _measure_and_load(stage, admin, bootstrap_server, own)
    steady = [s for ts, s in arrivals.seconds.items() if ts >= began + WARM_UP_S * MICROS]
    if not steady:
        raise MeasurementError("No rate of all partitions was published.")
    return steady


def _measure_and_load(stage: Stage, admin: Admin, bootstrap_server: str, own: OwnTopics) -> None:
    """Runs the continuous job for the whole time, with a load beside it."""
    nobody, stop = ClientProperties.none(), threading.Event()
    whole_s = WARM_UP_S + WATCHED_S
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder,
        open_publisher(bootstrap_server, nobody) as publisher,
        ThreadPoolExecutor(1, thread_name_prefix="bench-live") as thread,
    ):
        running = thread.submit(
            run_continuously,
            stage.spark(),
            admin,
            Target(bootstrap_server=bootstrap_server, properties=nobody, own=own),
            Asked(topics=frozenset({TOPIC}), from_ts=0, to_ts=_now_ts()),
            beat=Beat(window_s=30.0, min_span_s=3.0, trigger_s=TRIGGER_S),
            keys=None,
            results=Results(
                outlet=publisher,
                warehouse=Warehouse(f"{folder}/warehouse"),
                checkpoint=f"{folder}/checkpoints",
            ),
            stop=stop,
        )
        began = time.monotonic()
        stream = KeyStream(rate_s=LOAD_S, seed=1, distribution=ZipfMandelbrot(keys=10_000))
        try:
            send(
                due.keyed(stream, duration_s=whole_s, value_bytes=100),
                topic=TOPIC,
                bootstrap_server=bootstrap_server,
                duration_s=whole_s,
                stop=stop,
            )
            stop.wait(max(0.0, whole_s - (time.monotonic() - began)))
        finally:
            stop.set()
        running.result()


def _now_ts() -> int:
    return time.time_ns() // 1000
