"""Rates of large clusters, live: telemetry is replayed into a real broker, once a second.

A sample has arrived when the record of its topic on `trimtab.rates` has its time. The processor
time is that of Spark: in local mode its JVM is driver and executor, and Python's workers are apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trimtab.errors import MeasurementError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import ensure_topics
from trimtab.local.cluster import LocalCluster
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.model.quantiles import quantile
from trimtab.model.rates_place import RatesPlace
from trimtab.observe.clock import wall_clock_us
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides
from trimtab_lab.benchmarks.kafka.latency import rate_times
from trimtab_lab.benchmarks.kafka.replay import replaying, topic_names
from trimtab_lab.benchmarks.spark.continuous_job import measuring
from trimtab_lab.benchmarks.spark.process_usage import TreeMeter

CLUSTER = "bench-replay"
STARTED_WITHIN_S = 300.0
WARM_UP_S = 30.0
WATCHED_S = 45.0
TRIGGER_S = 0.2
LIMIT_S = 2.0
GROWTH = (1_000, 4_000, 16_000, 50_000)
EVERYTHING = MeasureQuery(from_ts=0, to_ts=0)


@dataclass(slots=True)
class _Watch:
    """Seconds from each sample to its rates, by sample time and topic; and what Spark used."""

    seconds: dict[tuple[bytes, int], float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    rss_mb: dict[str, float] = field(default_factory=dict)
    lasted_s: float = 0.0

    def take(self, topic: bytes, ts: int) -> None:
        """Notes when the rates of a sample came first."""
        self.seconds.setdefault((topic, ts), (wall_clock_us() - ts) / 1e6)

    def figures(self, partitions: int) -> dict[str, Any]:
        """Percentiles, processor time per partition and sample, and memory."""
        seconds = list(self.seconds.values())
        samples = partitions * len({ts for _, ts in self.seconds})
        return {
            "p50_s": round(quantile(seconds, 0.5), 3),
            "p95_s": round(quantile(seconds, 0.95), 3),
            "max_s": round(max(seconds), 3),
            "samples": len({ts for _, ts in self.seconds}),
            "cores": {name: round(s / self.lasted_s, 3) for name, s in self.cpu_s.items()},
            "us_per_sample": round(1e6 * sum(self.cpu_s.values()) / max(1, samples), 2),
            "rss_mb": {name: round(mb) for name, mb in self.rss_mb.items()},
        }


def live_replay(context: BenchContext, rows: int, runs: int) -> Sides:
    """The 95th percentile on executors; beside it that on the driver. `rows` are partitions."""
    found = [_watch(context, rows, RatesPlace.EXECUTORS) for _ in range(runs)]
    on_driver = _watch(context, rows, RatesPlace.DRIVER)
    return Sides(
        ours=tuple(quantile(list(watch.seconds.values()), 0.95) for watch in found),
        rival=(LIMIT_S,),
        settings={
            "partitions": rows,
            "period_s": 1.0,
            "trigger_s": TRIGGER_S,
            "executors": [watch.figures(rows) for watch in found],
            "driver": on_driver.figures(rows),
        },
    )


def live_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    """Processor time per partition and sample on executors, at the most and the fewest."""
    sizes = [n for n in GROWTH if n < rows] + [rows]
    found = {n: [_watch(context, n, RatesPlace.EXECUTORS) for _ in range(runs)] for n in sizes}
    curve = {n: [watch.figures(n) for watch in watches] for n, watches in found.items()}
    cost = {n: tuple(f["us_per_sample"] for f in figures) for n, figures in curve.items()}
    return Sides(
        ours=cost[sizes[-1]],
        rival=cost[sizes[0]],
        settings={
            "curve": {str(n): median(values) for n, values in cost.items()},
            "figures": {str(n): figures for n, figures in curve.items()},
        },
    )


def _watch(context: BenchContext, partitions: int, place: RatesPlace) -> _Watch:
    session = context.spark()
    watch = _Watch()
    with LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say) as local:
        cluster = Cluster(local.bootstrap_servers)
        with cluster.admin() as admin:
            ensure_topics(admin, cluster.topics)
        with (
            replaying(cluster, partitions),
            rate_times(cluster, watch.take),
            measuring(context, cluster, EVERYTHING, trigger_s=TRIGGER_S, place=place),
        ):
            context.say(f"{partitions} partitions on {place}: warming up")
            _await_topics(watch, len(topic_names(partitions)))
            time.sleep(WARM_UP_S)
            context.say(f"{partitions} partitions on {place}: watching for {WATCHED_S:g} s")
            began = wall_clock_us()
            meter = TreeMeter(session.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
            while (passed := (wall_clock_us() - began) / 1e6) < WATCHED_S:
                meter.look()
                time.sleep(1.0)
            watch.lasted_s = passed
            watch.cpu_s = {name: s for name, s in meter.cpu_s().items() if s > 0}
            watch.rss_mb = {name: rss / 1e6 for name, rss in meter.rss_bytes().items() if rss > 1e6}
    watch.seconds = {at: s for at, s in watch.seconds.items() if at[1] >= began}
    if not watch.seconds:
        raise MeasurementError(f"No rates of {partitions} partitions came on {place}.")
    return watch


def _await_topics(watch: _Watch, topics: int) -> None:
    deadline = time.monotonic() + STARTED_WITHIN_S
    while len({key for key, _ in list(watch.seconds)}) < topics:
        if time.monotonic() > deadline:
            raise MeasurementError(
                f"No rates of all topics were published within {STARTED_WITHIN_S:g} s.",
                hint="Run it again with --verbose to see Spark's messages.",
            )
        time.sleep(0.5)
