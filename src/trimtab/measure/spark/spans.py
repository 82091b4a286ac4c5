"""What a bounded measurement reads: a span of Kafka, or tables in files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.client_properties import ClientProperties
from trimtab.errors import ConfigError, ThinData
from trimtab.measure.kafka.admin import Admin
from trimtab.measure.kafka.snapshot import is_internal
from trimtab.measure.kafka.spans import offsets_between
from trimtab.measure.kafka.topics import OwnTopics
from trimtab.measure.spark import ingest
from trimtab.measure.spark.jobs import Given, as_time, times_of
from trimtab.model.cluster import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster to read from, and as whom."""

    bootstrap_server: str
    properties: ClientProperties
    own: OwnTopics

    @property
    def spark_options(self) -> dict[str, str]:
        """Client properties as the connector takes them."""
        return self.properties.for_spark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants measured; `offsets` replaces the span of time for events."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    groups: frozenset[str] | None = None
    from_ts: int
    to_ts: int
    events: bool = True
    samples: bool = True
    offsets: Mapping[TopicPartition, tuple[int, int]] | None = None

    def wants(self, topic: str, own_prefix: str) -> bool:
        """Whether a topic is measured: when named, or when it matches and is nobody's own."""
        if topic in self.topics:
            return True
        if (self.topics and self.pattern is None) or is_internal(topic, own_prefix=own_prefix):
            return False
        return self.pattern is None or self.pattern.fullmatch(topic) is not None


def from_kafka(session: SparkSession, admin: Admin, target: Target, asked: Asked) -> Given:
    """Reads the span from Kafka: the data topics, and the telemetry where there is any."""
    placed = [p for p in admin.topics() if asked.wants(p.topic, target.own.prefix)]
    if missing := asked.topics - {p.topic for p in placed}:
        raise ConfigError(f"There is no topic {', '.join(sorted(missing))}.")
    if not placed:
        raise ThinData("No topic matches; there is nothing to measure.")
    ends = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    names = [p.name for p in placed if not p.offline]
    samples, rejects = _samples(session, admin, target, asked) if asked.samples else (None, None)
    covered = times_of(samples) if samples is not None else None
    if covered is None:
        samples = None
    elif asked.offsets is None:
        # What was not watched is not known: the measurement speaks of the watched part only.
        asked = replace(asked, from_ts=covered[0], to_ts=covered[1])
    events, cut = _events(session, target, asked, names) if asked.events else (None, frozenset())
    return Given(
        from_ts=asked.from_ts,
        to_ts=asked.to_ts,
        partitions={p.name: ends[p.name][1] if p.name in ends else None for p in placed},
        events=events,
        samples=samples,
        rejects=rejects,
        cluster=admin.cluster().cluster,
        cut=cut,
    )


def _events(
    session: SparkSession, target: Target, asked: Asked, names: Iterable[TopicPartition]
) -> tuple[DataFrame, frozenset[TopicPartition]]:
    if asked.offsets is not None:
        span = ingest.KafkaSpan(
            bootstrap_server=target.bootstrap_server,
            starts={p: first for p, (first, _) in asked.offsets.items()},
            ends={p: last for p, (_, last) in asked.offsets.items()},
            options=target.spark_options,
        )
        return _read(session, span), frozenset()
    found = offsets_between(
        target.bootstrap_server,
        target.properties,
        names,
        from_ts=asked.from_ts,
        to_ts=asked.to_ts,
    )
    span = ingest.KafkaSpan(
        bootstrap_server=target.bootstrap_server,
        starts=found.starts,
        ends=found.ends,
        options=target.spark_options,
    )
    return _within(_read(session, span), asked), found.cut


def _read(session: SparkSession, span: ingest.KafkaSpan) -> DataFrame:
    # At least twice as many pieces as cores, so that one hot partition does not make one core wait.
    pieces = max(len(span.starts), 2 * session.sparkContext.defaultParallelism)
    return ingest.read_span(session, span, min_partitions=pieces).transform(ingest.events)


def _within(frame: DataFrame, asked: Asked) -> DataFrame:
    return frame.where(
        (F.col("ts") >= F.lit(as_time(asked.from_ts))) & (F.col("ts") < F.lit(as_time(asked.to_ts)))
    )


def _samples(
    session: SparkSession, admin: Admin, target: Target, asked: Asked
) -> tuple[DataFrame | None, DataFrame | None]:
    """The telemetry of the span; (None, None) when there is no such topic."""
    placed = [p.name for p in admin.topics([target.own.telemetry]) if not p.offline]
    if not placed:
        return None, None
    raw = telemetry_between(session, target, placed, from_ts=asked.from_ts, to_ts=asked.to_ts)
    parsed = raw.transform(ingest.telemetry).persist()
    wanted = F.udf(lambda topic: asked.wants(topic, target.own.prefix), "boolean")
    samples = parsed.transform(ingest.samples).transform(_within, asked).where(wanted("topic"))
    if asked.groups is not None:
        groups = sorted(asked.groups)
        samples = samples.withColumn(
            "committed", F.map_filter("committed", lambda group, _: group.isin(groups))
        )
    rejects = parsed.transform(ingest.rejects, source=target.own.telemetry)
    return samples, rejects


def telemetry_between(
    session: SparkSession,
    target: Target,
    partitions: Iterable[TopicPartition],
    *,
    from_ts: int,
    to_ts: int,
) -> DataFrame:
    """Raw telemetry records of a span, as Kafka has them."""
    found = offsets_between(
        target.bootstrap_server, target.properties, partitions, from_ts=from_ts, to_ts=to_ts
    )
    span = ingest.KafkaSpan(
        bootstrap_server=target.bootstrap_server,
        starts=found.starts,
        ends=found.ends,
        options=target.spark_options,
    )
    return ingest.read_span(session, span)


def from_files(
    session: SparkSession,
    *,
    events: Path | None,
    samples: Path | None,
    from_ts: int | None = None,
    to_ts: int | None = None,
) -> Given:
    """Reads tables in files; without a span asked for, the one that they cover."""
    good: dict[str, DataFrame] = {}
    rejects: DataFrame | None = None
    for table, path in (("events", events), ("samples", samples)):
        if path is not None:
            frame = ingest.read_files(session, path, table)
            good[table], bad = ingest.split_files(frame, source=str(path), table=table)
            rejects = bad if rejects is None else rejects.unionByName(bad)
    spans = [span for span in map(times_of, good.values()) if span is not None]
    if not spans:
        raise ThinData("The files hold no rows.")
    asked = Asked(
        from_ts=from_ts if from_ts is not None else min(first for first, _ in spans),
        to_ts=to_ts if to_ts is not None else max(last for _, last in spans),
    )
    inside = {table: frame.transform(_within, asked) for table, frame in good.items()}
    partitions: dict[TopicPartition, int | None] = {}
    for table, column in (("events", F.max("offset") + 1), ("samples", F.max("end_offset"))):
        if table in inside:
            rows = inside[table].groupBy("topic", "partition").agg(column.alias("end")).collect()
            partitions |= {TopicPartition(r.topic, r.partition): r.end for r in rows}
    return Given(
        from_ts=asked.from_ts,
        to_ts=asked.to_ts,
        partitions=partitions,
        events=inside.get("events"),
        samples=inside.get("samples"),
        rejects=rejects,
    )


def now_ts() -> int:
    """The wall clock, in microseconds."""
    return time.time_ns() // 1000
