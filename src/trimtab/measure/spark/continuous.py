"""`measure --continuous`: monitor and queries together, looked after until somebody stops them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from trimtab.measure.kafka.admin import Admin
from trimtab.measure.spark.live import (
    KeyCounting,
    KeysQuery,
    Publish,
    RatesQuery,
    Stream,
    Supervised,
    pattern_of,
)
from trimtab.measure.spark.session import storage_path
from trimtab.measure.spark.spans import Asked, Target, now_ts, telemetry_between
from trimtab.measure.spark.tables import Warehouse
from trimtab.measure.windows import MICROS


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """How often and over how long the continuous jobs look."""

    window_s: float
    min_span_s: float
    trigger_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where results go, and where the queries keep their progress."""

    publish: Publish
    warehouse: Warehouse
    checkpoint: str

    @property
    def progress(self) -> str:
        """The checkpoint folder as Spark takes it."""
        return storage_path(self.checkpoint)


def run_continuously(
    session: SparkSession,
    admin: Admin,
    target: Target,
    asked: Asked,
    *,
    beat: Beat,
    keys: KeyCounting | None,
    results: Results,
    stop: threading.Event,
) -> None:
    """Runs until `stop` is set; a query that dies is started again."""
    rates = RatesQuery(
        topic=target.own.telemetry,
        window_s=beat.window_s,
        min_span_s=beat.min_span_s,
        publish=results.publish,
        warehouse=results.warehouse,
        wanted=lambda topic: asked.wants(topic, target.own.prefix),
    )
    _refill(session, admin, target, rates)
    queries = [
        Supervised(
            session,
            Stream(
                name="rates",
                bootstrap_server=target.bootstrap_server,
                pattern=pattern_of([target.own.telemetry]),
                checkpoint=results.progress,
                trigger_s=beat.trigger_s,
                options=target.spark_options,
            ),
            rates.on_batch,
        )
    ]
    if keys is not None:
        queries.append(_keys_query(session, admin, target, asked, keys, results))
    try:
        while not stop.wait(1.0):
            for query in queries:
                query.tick()
    finally:
        for query in queries:
            query.stop()


def _refill(session: SparkSession, admin: Admin, target: Target, rates: RatesQuery) -> None:
    """Gives the ring what it held when the last driver ended, or nothing on a first start."""
    closed = rates.closed_until(session)
    placed = [p.name for p in admin.topics([target.own.telemetry]) if not p.offline]
    if not placed:
        return
    newest = now_ts()
    from_ts = closed or newest - round(rates.ring.window_s * MICROS)
    raw = telemetry_between(session, target, placed, from_ts=from_ts, to_ts=newest)
    rates.refill(session, raw)


def _keys_query(
    session: SparkSession,
    admin: Admin,
    target: Target,
    asked: Asked,
    how: KeyCounting,
    results: Results,
) -> Supervised:
    def partitions() -> dict[str, int]:
        counts: dict[str, int] = {}
        for p in admin.topics():
            counts[p.topic] = counts.get(p.topic, 0) + 1
        return counts

    query = KeysQuery(
        how,
        publish=results.publish,
        warehouse=results.warehouse,
        checkpoint=results.progress,
        partitions=partitions,
    )
    query.resume(session)
    if asked.pattern is None and asked.topics:
        pattern = pattern_of(asked.topics)
    else:
        # All topics but Kafka's own and ours, which Java's patterns say with a look-ahead.
        named = asked.pattern.pattern if asked.pattern is not None else ".*"
        prefix = target.own.prefix.replace(".", "\\.")
        pattern = f"^(?!__)(?!{prefix})(?:{named})$"
    return Supervised(
        session,
        Stream(
            name="keys",
            bootstrap_server=target.bootstrap_server,
            pattern=pattern,
            checkpoint=results.progress,
            trigger_s=how.window_s,
            options=target.spark_options,
        ),
        query.on_batch,
        on_idle=partial(query.caught_up, session),
    )
