"""Reads the input of a batch measurement: a span of Kafka, or tables in files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.errors import ConfigError, ThinData
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.keyed_paths import keyed_own_topics, keyed_topics
from trimtab.kafka.snapshot import INTERNAL_PREFIX
from trimtab.kafka.spans import AHEAD_S, offsets_between
from trimtab.measure.spark.measure_input import MeasureInput, times_of
from trimtab.measure.topic_filter import TopicFilter
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import Replicas, TopicPartition
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.telemetry_records import telemetry

_LEAST_MISSING_S = 2.5
_RECENT_S = 60.0
_CHECKED_RECORDS = 1000
_MOST_STRAYS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureQuery:
    """What to measure.

    `offsets` replaces the time span: only those records, and no samples. Samples that cover less
    than `min_span_s` are ignored. If samples cover only a part of the span, rates are taken from
    `events` if those are read, unless `only_samples` is set. `keyed` are the topics whose markers
    are not counted, `own` the topics beside them: see `with_keyed_topics`.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    groups: frozenset[str] | None = None
    from_ts: int
    to_ts: int
    events: bool = True
    samples: bool = True
    only_samples: bool = False
    keyed: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    min_span_s: float = 3.0
    offsets: Mapping[TopicPartition, tuple[int, int]] | None = None

    def wants(self, topic: str, own_prefix: str) -> bool:
        """Whether a topic is measured: if named, or if it matches and is not an internal topic."""
        return self.filter(own_prefix).wants(topic)

    def filter(self, own_prefix: str) -> TopicFilter:
        """Which topics are measured."""
        return TopicFilter(
            topics=self.topics, pattern=self.pattern, own_prefix=own_prefix, own=self.own
        )

    def named(self, topic: str, own_prefix: str) -> Column:
        """`wants` for a column of topics."""
        name = F.col(topic)
        wanted = name.isin(*self.topics) if self.topics else F.lit(False)
        if self.topics and self.pattern is None:
            return wanted
        pattern = ".*" if self.pattern is None else self.pattern.pattern
        own = name.startswith(INTERNAL_PREFIX) | name.startswith(own_prefix)
        if self.own:
            own |= name.isin(*self.own)
        return wanted | (~own & name.rlike(f"^(?:{pattern})$"))


def with_keyed_topics(asked: MeasureQuery, names: Collection[str]) -> MeasureQuery:
    """The query, with what the names of all topics say about those that are routed by key."""
    return replace(asked, keyed=keyed_topics(names), own=keyed_own_topics(names))


class EarlierEnds(NamedTuple):
    """End offsets of the logs at an earlier time; later records were written since."""

    ts: int
    ends: Mapping[TopicPartition, int]


def ends_now(admin: Admin, placed: Iterable[Replicas]) -> EarlierEnds:
    """The current end offset of each partition with a leader."""
    ts = wall_clock_us()
    found = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    return EarlierEnds(ts, {name: end for name, (_, end) in found.items()})


def from_kafka(
    session: SparkSession,
    admin: Admin,
    cluster: Cluster,
    asked: MeasureQuery,
    *,
    earlier: EarlierEnds | None = None,
) -> MeasureInput:
    """Reads the span from Kafka: the data topics, and the telemetry if there is any.

    With `earlier`, records written since then show whether timestamps are reliable.
    """
    asked = with_keyed_topics(asked, {p.topic for p in admin.topics()})
    placed = check_topics(admin, cluster, asked)
    names = frozenset(p.name for p in placed if not p.offline)
    ends = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    samples = rejects = covered = None
    if asked.samples and asked.offsets is None:
        samples, rejects = _samples(session, admin, cluster, asked)
        covered = times_of(samples) if samples is not None else None
        if covered is None or covered[1] - covered[0] < asked.min_span_s * MICROS:
            samples = covered = None
    if samples is None and (asked.only_samples or not asked.events):
        raise ThinData(
            "There is no telemetry for this span.",
            hint="Sample the cluster first (--for 30s, or trimtab monitor), or count the records: "
            "--rates-from events.",
        )
    watched_part = covered is not None and _is_part(covered, asked)
    by_events = watched_part and asked.events and not asked.only_samples
    if covered is not None and not by_events:
        # The rest of the span is unknown: the measurement covers only the sampled part.
        asked = replace(asked, from_ts=covered[0], to_ts=covered[1])
    sizes: dict[str, int] = {}
    for p in placed:
        sizes[p.topic] = sizes.get(p.topic, 0) + 1
    given = MeasureInput(
        from_ts=asked.from_ts,
        to_ts=asked.to_ts,
        partitions={p.name: ends[p.name][1] if p.name in ends else None for p in placed},
        samples=samples,
        rates_by_samples=not by_events,
        only_samples=asked.only_samples,
        watched_part=watched_part and not by_events,
        rejects=rejects,
        cluster=admin.cluster().cluster,
        sizes=sizes,
    )
    if asked.offsets is not None:
        return _of_offsets(session, cluster, given, asked.offsets, asked.keyed)
    if not asked.events:
        return given
    given = _with_events(session, cluster, given, names, asked.keyed)
    by_stamps = samples is None or by_events
    if earlier is None or not by_stamps or asked.to_ts < earlier.ts - _RECENT_S * MICROS:
        return given
    since = {n: (end, ends[n][1]) for n, end in earlier.ends.items() if n in ends}
    return replace(given, strays=_strays(session, cluster, since, earlier.ts))


def _is_part(covered: tuple[int, int], asked: MeasureQuery) -> bool:
    """Whether samples miss more than a tenth of the span, and more than a few periods."""
    asked_us = asked.to_ts - asked.from_ts
    missing_us = asked_us - (covered[1] - covered[0])
    return missing_us > max(asked_us / 10, _LEAST_MISSING_S * MICROS)


def check_topics(admin: Admin, cluster: Cluster, asked: MeasureQuery) -> list[Replicas]:
    """The partitions to measure; raises an error for topics and partitions that do not exist."""
    everything = admin.topics()
    asked = with_keyed_topics(asked, {p.topic for p in everything})
    placed = [p for p in everything if asked.wants(p.topic, cluster.topics.prefix)]
    names = frozenset(p.name for p in placed if not p.offline)
    if missing := asked.topics - {p.topic for p in placed}:
        raise ConfigError(f"There is no topic {', '.join(sorted(missing))}.")
    if not names:
        raise ThinData("No topic matches, so there is nothing to measure.")
    if unknown := sorted(set(asked.offsets or ()) - names):
        raise ConfigError(f"There is no partition {', '.join(map(str, unknown))}.")
    return placed


def _with_events(
    session: SparkSession,
    cluster: Cluster,
    given: MeasureInput,
    names: frozenset[TopicPartition],
    keyed: frozenset[str],
) -> MeasureInput:
    span = offsets_between(
        cluster,
        names,
        from_ts=given.from_ts,
        to_ts=given.to_ts,
    )
    events = _read(session, cluster, span.starts, span.ends, keyed)
    inside = sources.between("ts", given.from_ts, given.to_ts)
    return replace(given, events=events.where(inside), counted=names, cut=span.cut, born=span.born)


def _strays(
    session: SparkSession,
    cluster: Cluster,
    since: Mapping[TopicPartition, tuple[int, int]],
    earlier_ts: int,
) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions with wrong timestamps: (wrong, checked) of up to 1000 records since `earlier_ts`.

    Only partitions with more than one in a hundred: a few late records are normal.
    """
    grown = {name: (first, last) for name, (first, last) in since.items() if last > first}
    if not grown:
        return {}
    written = _read(
        session,
        cluster,
        {name: first for name, (first, _) in grown.items()},
        {name: min(last, first + _CHECKED_RECORDS) for name, (first, last) in grown.items()},
    )
    return misstamped(written, earlier_ts, wall_clock_us())


def misstamped(
    written: DataFrame, from_ts: int, to_ts: int
) -> dict[TopicPartition, tuple[int, int]]:
    """(wrong, checked) records written in a span; wrong have timestamps far outside of it."""
    ahead = AHEAD_S * MICROS
    outside = ~sources.between("ts", from_ts - ahead, to_ts + ahead)
    rows = (
        written.groupBy("topic", "partition")
        .agg(F.count_if(outside).alias("bad"), F.count("*").alias("of"))
        .where(F.col("bad") > _MOST_STRAYS * F.col("of"))
        .collect()
    )
    return {TopicPartition(r.topic, r.partition): (r.bad, r.of) for r in rows}


def _of_offsets(
    session: SparkSession,
    cluster: Cluster,
    given: MeasureInput,
    offsets: Mapping[TopicPartition, tuple[int, int]],
    keyed: frozenset[str],
) -> MeasureInput:
    """Only these records; the span is that of their timestamps."""
    events = _read(
        session,
        cluster,
        {p: first for p, (first, _) in offsets.items()},
        {p: last for p, (_, last) in offsets.items()},
        keyed,
    )
    span = times_of(events)
    if span is None:
        raise ThinData("There are no records at these offsets.")
    counted = frozenset(offsets)
    return replace(given, events=events, counted=counted, from_ts=span[0], to_ts=span[1])


def _read(
    session: SparkSession,
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    keyed: frozenset[str] = frozenset(),
) -> DataFrame:
    """The records between offsets; the markers of `keyed` topics are left out."""
    with_markers = {name for name in starts if name.topic in keyed}
    frames = []
    for names, headers in ((starts.keys() - with_markers, False), (with_markers, True)):
        if not names and (headers or with_markers):
            continue
        span = sources.KafkaSpan(
            cluster=cluster,
            starts={name: starts[name] for name in names},
            ends={name: ends[name] for name in names},
            options=sources.WITH_HEADERS if headers else {},
        )
        # At least two pieces per core, so that a hot partition does not keep one core busy alone.
        pieces = max(len(names), 2 * session.sparkContext.defaultParallelism)
        read = sources.read_span(session, span, min_partitions=pieces)
        frames.append(read.transform(sources.events))
    return reduce(DataFrame.unionAll, frames)


def _samples(
    session: SparkSession, admin: Admin, cluster: Cluster, asked: MeasureQuery
) -> tuple[DataFrame | None, DataFrame | None]:
    """The telemetry of the span; (None, None) if there is no telemetry topic."""
    placed = [p.name for p in admin.topics([cluster.topics.telemetry]) if not p.offline]
    if not placed:
        return None, None
    raw = telemetry_between(session, cluster, placed, from_ts=asked.from_ts, to_ts=asked.to_ts)
    parsed = raw.transform(telemetry).persist()
    samples = parsed.transform(wanted_samples, asked, cluster.topics.prefix)
    rejects = parsed.transform(sources.rejects, source=cluster.topics.telemetry)
    return samples, rejects


def wanted_samples(parsed: DataFrame, asked: MeasureQuery, own_prefix: str) -> DataFrame:
    """Parsed telemetry → the samples of the span, with the topics and groups asked for."""
    samples = parsed.transform(sources.samples).where(
        sources.between("ts", asked.from_ts, asked.to_ts) & asked.named("topic", own_prefix)
    )
    if asked.groups is None:
        return samples
    groups = sorted(asked.groups)
    return samples.withColumn(
        "committed", F.map_filter("committed", lambda group, _: group.isin(groups))
    )


def telemetry_between(
    session: SparkSession,
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    from_ts: int,
    to_ts: int,
) -> DataFrame:
    """Raw telemetry records of a span."""
    found = offsets_between(cluster, partitions, from_ts=from_ts, to_ts=to_ts)
    span = sources.KafkaSpan(
        cluster=cluster,
        starts=found.starts,
        ends=found.ends,
    )
    return sources.read_span(session, span)


def from_files(
    session: SparkSession,
    *,
    events: Path | None,
    samples: Path | None,
    from_ts: int | None = None,
    to_ts: int | None = None,
) -> MeasureInput:
    """Reads tables in files; by default over the whole span that they cover."""
    good: dict[str, DataFrame] = {}
    rejects: DataFrame | None = None
    for table, path in (("events", events), ("samples", samples)):
        if path is not None:
            frame = sources.read_files(session, path, table)
            good[table], bad = sources.split_files(frame, source=str(path), table=table)
            rejects = bad if rejects is None else rejects.unionByName(bad)
    spans = [span for span in map(times_of, good.values()) if span is not None]
    if not spans:
        raise ThinData("The files have no rows.")
    start = from_ts if from_ts is not None else min(first for first, _ in spans)
    end = to_ts if to_ts is not None else max(last for _, last in spans)
    inside = {table: f.where(sources.between("ts", start, end)) for table, f in good.items()}
    partitions: dict[TopicPartition, int | None] = {}
    counted: frozenset[TopicPartition] = frozenset()
    for table, column in (("events", F.max("offset") + 1), ("samples", F.max("end_offset"))):
        if table in inside:
            rows = inside[table].groupBy("topic", "partition").agg(column.alias("end")).collect()
            found = {TopicPartition(r.topic, r.partition): r.end for r in rows}
            partitions |= found
            if table == "events":
                counted = frozenset(found)
    return MeasureInput(
        from_ts=start,
        to_ts=end,
        partitions=partitions,
        counted=counted,
        events=inside.get("events"),
        samples=inside.get("samples"),
        rejects=rejects,
        sizes=_sizes(inside.get("samples")),
    )


def _sizes(samples: DataFrame | None) -> dict[str, int]:
    """Partitions per topic, from samples only: events do not show idle partitions."""
    if samples is None:
        return {}
    rows = samples.groupBy("topic").agg(F.max("partition").alias("last")).collect()
    return {r.topic: r.last + 1 for r in rows}
