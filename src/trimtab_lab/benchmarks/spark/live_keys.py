"""The continuous query for hot keys at a steady rate, on a real broker.

The topic is filled beforehand and Spark takes one window's records per trigger, so that no sender
needs a core. The query keeps up if it is done with all batches when the time of the last one is
over. Memory is watched meanwhile; afterwards the bounds are compared with exact counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.streaming.query import StreamingQuery

from trimtab.errors import MeasurementError
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.publisher import open_publisher
from trimtab.kafka.topics import ensure_topics
from trimtab.local.cluster import LocalCluster
from trimtab.measure.counters import Share
from trimtab.measure.spark.live_keys import KeyCounting, KeysQuery
from trimtab.measure.spark.rates import window_number
from trimtab.measure.spark.streaming_queries import QueryOutput, Stream, pattern_of
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.observe.clock import TimedOut, wait_until, wall_clock_us
from trimtab.spark.session import cause_of
from trimtab.spark.sources import KafkaSpan, events, read_span
from trimtab.spark.warehouse import Warehouse
from trimtab.workload.key_streams import KeyStream
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides
from trimtab_lab.benchmarks.kafka.filled_topic import keyed_topic
from trimtab_lab.benchmarks.spark.batch import EPSILON, SHARE
from trimtab_lab.benchmarks.spark.process_usage import MemoryCurve, watched_memory

CLUSTER = "bench"
PARTITIONS = 12
VALUE_BYTES = 100
SEED = 7

Truth = Mapping[tuple[datetime, bytes], tuple[int, int]]
"""Records of a key and of all keys, by start of the window and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many records are offered, in batches of one window each; the first are a warm-up."""

    records_s: int
    window_s: float = 10.0
    warm_up: int = 1
    batches: int = 12

    @property
    def per_batch(self) -> int:
        """Records in a batch."""
        return round(self.records_s * self.window_s)

    @property
    def total(self) -> int:
        """Records in the topic."""
        return self.per_batch * (self.warm_up + self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What one run showed: the rate, then the records and seconds of each batch."""

    records_s: float
    rows: tuple[int, ...]
    batch_s: tuple[float, ...]
    memory: MemoryCurve
    heavy_keys: int


def live_hot_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    """Records per second that were processed and offered; `rows` is what is offered."""
    pace = Pace(records_s=rows)
    context.spark()
    cluster = LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say)
    cluster.up()
    try:
        found = watch(context, Cluster(cluster.bootstrap_servers), pace, runs=runs)
    finally:
        cluster.down(keep_data=True)  # the records stay for the next run
    return Sides(
        ours=tuple(run.records_s for run in found),
        rival=(float(rows),),
        settings={
            "seconds": pace.batches * pace.window_s,
            "window_s": pace.window_s,
            "busy_share": [
                round(sum(run.batch_s) / (pace.batches * pace.window_s), 3) for run in found
            ],
            "slowest_batch_s": [round(max(run.batch_s), 2) for run in found],
            "memory_growth": [run.memory.growth() for run in found],
            "memory_mb": [run.memory.last() for run in found],
            "heavy_keys": [run.heavy_keys for run in found],
            "threshold": f"share:{SHARE:g}",
            "epsilon": EPSILON,
            "partitions": PARTITIONS,
            "value_bytes": VALUE_BYTES,
            "brokers": 3,
        },
    )


def watch(context: BenchContext, cluster: Cluster, pace: Pace, *, runs: int) -> list[Watched]:
    """Runs the query over the whole topic, and checks each time what it published."""
    session = context.spark()
    with cluster.admin() as admin:
        ensure_topics(admin, cluster.topics)
        ends = keyed_topic(
            admin,
            cluster,
            stream=KeyStream(rate_s=pace.records_s, seed=SEED),
            rows=pace.total,
            partitions=PARTITIONS,
            value_bytes=VALUE_BYTES,
            say=context.say,
        )
        context.say("counting every key")
        span = KafkaSpan(cluster=cluster, starts=dict.fromkeys(ends, 0), ends=ends)
        truth = exact_counts(events(read_span(session, span)), pace)
        found = []
        for _ in range(runs):
            context.say(f"reading {pace.records_s} records a second")
            found.append(_watch_once(session, cluster, admin, pace, ends, truth))
    return found


def _watch_once(
    session: SparkSession,
    cluster: Cluster,
    admin: Admin,
    pace: Pace,
    ends: Mapping[TopicPartition, int],
    truth: Truth,
) -> Watched:
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        progress, memory = _run(session, cluster, admin, pace, ends=ends, folder=folder)
        heavy = check_bounds(truth, Warehouse(folder).read(session, "hot_keys"))
    batches = _measured(progress, pace)
    return Watched(
        records_s=processed_s(batches, pace),
        rows=tuple(b["numInputRows"] for b in batches),
        batch_s=tuple(b["durationMs"]["triggerExecution"] / 1000 for b in batches),
        memory=memory,
        heavy_keys=heavy,
    )


def _run(
    session: SparkSession,
    cluster: Cluster,
    admin: Admin,
    pace: Pace,
    *,
    ends: Mapping[TopicPartition, int],
    folder: str,
) -> tuple[list[dict[str, Any]], MemoryCurve]:
    """Runs the query until it has read everything, then closes the last windows."""
    with open_publisher(cluster) as publisher:
        output = QueryOutput(
            outlet=publisher,
            sink=cluster.topics.hotkeys,
            warehouse=Warehouse(folder),
            run="bench",
            folder=f"{folder}/keys",
        )
        how = KeyCounting(window_s=pace.window_s, threshold=Share(SHARE), epsilon=EPSILON)
        query = KeysQuery(how, output, admin=admin)
        stream = Stream(
            name="bench-keys",
            cluster=cluster,
            pattern=pattern_of({name.topic for name in ends}),
            shape=events,
            folder=output.folder,
            trigger_s=pace.window_s,
            starting="earliest",
            max_records=pace.per_batch,
        )
        running = stream.start(session, query.on_batch)
        try:
            _wait(running, pace, lambda found: len(found) >= pace.warm_up)
            with watched_memory(session) as memory:
                progress = _wait(running, pace, lambda found: _rows(found) >= pace.total)
        finally:
            running.stop()
        query.caught_up(session, wall_clock_us())
    counted = Warehouse(folder).read(session, "partition_rates").agg(F.sum("samples")).collect()
    if counted[0][0] != pace.total:
        raise MeasurementError(f"{counted[0][0]} of {pace.total} records were counted.")
    return progress, memory


def _wait(
    running: StreamingQuery, pace: Pace, enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """The progress of all batches with records, as soon as it is enough."""
    longest_s = 120 + 10 * pace.window_s * (pace.warm_up + pace.batches)

    def read() -> list[dict[str, Any]]:
        error = running.exception()
        if error is not None:
            raise MeasurementError(f"The query for keys failed: {cause_of(error)}")
        found = [dict(p) for p in running.recentProgress if p["numInputRows"]]
        return found if enough(found) else []

    try:
        return wait_until(read, within_s=longest_s, every_s=1.0, what="a batch")
    except TimedOut as error:
        raise MeasurementError(
            f"The topic was not read within {longest_s:g} s.",
            hint="Run it again with --verbose to see Spark's messages.",
        ) from error


def _rows(batches: Sequence[Mapping[str, Any]]) -> int:
    return sum(b["numInputRows"] for b in batches)


def _measured(progress: Sequence[dict[str, Any]], pace: Pace) -> list[dict[str, Any]]:
    """The batches after the warm-up; a last one with a few records left over is not one of them."""
    return sorted(progress, key=lambda p: p["batchId"])[pace.warm_up :][: pace.batches]


def processed_s(batches: Sequence[Mapping[str, Any]], pace: Pace) -> float:
    """Records per second from the first trigger until the last batch and its interval are over."""
    first, last = (_started_s(batches[i]) for i in (0, -1))
    done = last + batches[-1]["durationMs"]["triggerExecution"] / 1000
    elapsed_s: float = max(done - first, len(batches) * pace.window_s)
    return _rows(batches) / elapsed_s


def _started_s(batch: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp()


def exact_counts(read: DataFrame, pace: Pace) -> Truth:
    """The keys with at least half of the threshold in a window, counted one by one."""
    start = window_number("ts", pace.window_s) * round(pace.window_s * MICROS)
    counted = read.groupBy(F.timestamp_micros(start).alias("window_start"), "key").count()
    total = counted.groupBy("window_start").agg(F.sum("count").alias("n"))
    known = counted.join(F.broadcast(total), "window_start").where(
        F.col("count") >= F.lit(SHARE / 2) * F.col("n")
    )
    return {(r.window_start, bytes(r.key)): (r["count"], r.n) for r in known.collect()}


def check_bounds(truth: Truth, found: DataFrame) -> int:
    """Compares every heavy key with the exact counts; returns how many there are.

    A key below half of the threshold is not among the exact counts, and should not be found.

    Raises:
        MeasurementError: if a count is outside of its bounds, or a heavy key was not found.
    """
    bounds = {(r.window_start, bytes(r.key)): (r.lower, r.upper) for r in found.collect()}
    wrong = [
        f"{place[1]!r} has {truth.get(place, ('few',))[0]} records, not {lower} to {upper}"
        for place, (lower, upper) in bounds.items()
        if place not in truth or not lower <= truth[place][0] <= upper
    ]
    heavy = {place for place, (count, n) in truth.items() if count >= SHARE * n}
    missed = [f"{key!r} was not found" for _, key in heavy - bounds.keys()]
    if wrong or missed:
        raise MeasurementError(f"The bounds of heavy keys do not hold: {(wrong + missed)[0]}.")
    return len(heavy)
