"""The batch job: read both ends, chain the steps, write the tables, say what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.errors import ThinData
from trimtab.measure.activity import SLOTS, Activity, Used, longest_pause, said, used
from trimtab.measure.counters import Share, Threshold
from trimtab.measure.spark.commits import commits
from trimtab.measure.spark.hot_keys import Mode, heavy_keys
from trimtab.measure.spark.lag import lag
from trimtab.measure.spark.rates import counts_of_events, rates_from_samples, rates_of_counts
from trimtab.measure.spark.session import spark_errors
from trimtab.measure.spark.tables import Warehouse
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import short_hash
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Source

_MOST_WORDS = 500
"""Words of activity per topic that are looked at; a longer span is looked at more coarsely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a measurement rests on. At least one of `events` and `samples` is there.

    `partitions` are those spoken of, with their end offset where it is known; `counted` are those
    whose events were read: one of them without a single event was idle, any other is unknown.
    `cut` are partitions whose log begins after the span does. `sizes` is the number of partitions
    of each topic, where it is known. Rates are those of the samples, if there are any, unless
    `rates_by_samples` says that lag alone is; `watched_part` says that the span is what samples
    cover of a longer one.
    """

    from_ts: int
    to_ts: int
    partitions: Mapping[TopicPartition, int | None]
    counted: frozenset[TopicPartition] = frozenset()
    events: DataFrame | None = None
    samples: DataFrame | None = None
    rates_by_samples: bool = True
    watched_part: bool = False
    rejects: DataFrame | None = None
    cluster: str | None = None
    cut: frozenset[TopicPartition] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end, in microseconds."""
        return self.from_ts, self.to_ts

    @property
    def span_s(self) -> float:
        """Length of the span in seconds."""
        return (self.to_ts - self.from_ts) / MICROS


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The parameters of a measurement."""

    window_s: float = 30.0
    min_span_s: float = 3.0
    key_window_s: float | None = None
    threshold: Threshold | None = field(default_factory=lambda: Share(0.001))
    mode: Mode = Mode.TWO_PASS
    epsilon: float | None = None

    @property
    def counting_epsilon(self) -> float:
        """The error bound asked for, or the one that fits the threshold."""
        if self.epsilon is not None:
            return self.epsilon
        return default_epsilon(self.threshold or Share(0.001))

    @property
    def max_gap_s(self) -> float:
        """Samples further apart than this leave a gap."""
        return self.window_s / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A measurement, and what a person may want to know beside it.

    `notes` say where a rate is not over the whole span that was asked for.
    """

    measurement: Measurement
    states: Mapping[tuple[str, TopicPartition], str]
    stored_ratio: float | None
    key_span: tuple[int, int] | None
    run: str
    notes: tuple[str, ...] = ()


def measure(given: Given, how: How, warehouse: Warehouse | None = None) -> Found:
    """Runs every step that the given sources allow, and keeps the tables."""
    if given.span_s < how.min_span_s:
        raise ThinData(
            f"The span is {given.span_s:.1f} s long; a rate needs at least {how.min_span_s:g} s.",
            hint="Ask for a longer span, or wait until there is more.",
        )
    run = _run_id(given, how)
    with spark_errors("measuring"):
        steps = _Steps(given, how)
        try:
            if warehouse is not None:
                for name, frame in steps.tables.items():
                    warehouse.write(frame, name, run=run)
            return _summary(given, how, steps, run)
        finally:
            steps.forget()


class _Counted(NamedTuple):
    """Events of one partition within a span."""

    bytes: int
    records: int
    first_ts: int


class _Steps:
    """The frames of one measurement, each computed once."""

    def __init__(self, given: Given, how: How) -> None:
        self.counts: DataFrame | None = None
        self.by_samples: DataFrame | None = None
        self.used: dict[str, Used] = {}
        self.tables: dict[str, DataFrame] = {}
        if given.events is not None:
            self.counts = given.events.transform(counts_of_events, window_s=how.window_s).persist()
            self.tables["partition_rates"] = self.counts.transform(
                rates_of_counts, window_s=how.window_s, from_ts=given.from_ts, to_ts=given.to_ts
            )
            self.used = used_spans(self.counts, given.span, how)
            if how.threshold is not None:
                self.tables["hot_keys"] = _keys(given, how, given.events, how.threshold).persist()
        if given.samples is not None:
            self.tables["lag"] = given.samples.transform(lag).persist()
        if given.samples is not None and given.rates_by_samples:
            self.by_samples = (
                given.samples.where(_inside(self.used))
                .transform(
                    rates_from_samples,
                    window_s=how.window_s,
                    min_span_s=how.min_span_s,
                    max_gap_s=how.max_gap_s,
                )
                .persist()
            )
            self.tables["partition_rates"] = self.by_samples
        if given.rejects is not None:
            self.tables["rejects"] = given.rejects.persist()

    def forget(self) -> None:
        """Frees what was kept in memory."""
        for frame in (*self.tables.values(), self.counts):
            if frame is not None:
                frame.unpersist()


def used_spans(counts: DataFrame, span: tuple[int, int], how: How) -> dict[str, Used]:
    """The part of the span in which each topic had records, of topics that had any."""
    width = round(how.window_s * MICROS)
    word, bits, slot_us = F.col("window"), F.col("slots"), width / SLOTS
    if (span[1] - span[0]) // width > _MOST_WORDS:  # a slot is a window then
        in_word = F.expr(f"shiftleft(1L, cast(window % {SLOTS} as int))")
        word, bits, slot_us = F.expr(f"window div {SLOTS}"), in_word, width
    rows = counts.groupBy("topic", word.alias("word")).agg(
        F.bit_or(bits).alias("slots"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
        F.sum("samples").alias("records"),
    )
    by_topic: dict[str, list[Row]] = {}
    for row in rows.collect():
        by_topic.setdefault(row.topic, []).append(row)
    found = {
        topic: Activity(
            first_ts=min(r.first_ts for r in own),
            last_ts=max(r.last_ts for r in own),
            records=sum(r.records for r in own),
            longest_pause_us=longest_pause(((r.word, r.slots) for r in own), slot_us),
        )
        for topic, own in by_topic.items()
    }
    return {t: used(span, activity, min_span_s=how.min_span_s) for t, activity in found.items()}


def _inside(topics: Mapping[str, Used]) -> Column:
    """Whether a sample lies in the part of the span that its topic's rate is over."""
    wanted = F.lit(True)
    for topic, part in topics.items():
        if (part.from_ts, part.to_ts) != part.asked:
            micros = F.unix_micros("ts")
            inside = (micros >= part.from_ts) & (micros < part.to_ts)
            wanted = wanted & ((F.col("topic") != topic) | inside)
    return wanted


def _run_id(given: Given, how: How) -> str:
    """Equal questions have an equal id, so asking twice keeps one answer."""
    return "batch-" + short_hash(
        {
            "cluster": given.cluster,
            "topics": sorted({p.topic for p in given.partitions}),
            "span": [given.from_ts, given.to_ts],
            "sources": [given.events is not None, given.samples is not None],
            "counted": sorted(map(str, given.counted)),
            "how": repr(how),
        }
    )


def _keys(given: Given, how: How, events: DataFrame, threshold: Threshold) -> DataFrame:
    # One window over the whole span unless asked otherwise: a person wants one list.
    whole = how.key_window_s is None
    return heavy_keys(
        events,
        window_s=how.key_window_s or given.span_s,
        threshold=threshold,
        mode=how.mode,
        epsilon=how.counting_epsilon,
        partitions=given.sizes,
        origin_ts=given.from_ts if whole else 0,
    )


def default_epsilon(threshold: Threshold) -> float:
    """A tenth of the threshold, so that the doubtful zone is at most a tenth of it.

    A count says nothing of the window's size; for it and for coverage one record in 100 000.
    """
    return threshold.of_records / 10 if isinstance(threshold, Share) else 0.00001


def _summary(given: Given, how: How, steps: _Steps, run: str) -> Found:
    tables, by_samples = steps.tables, steps.by_samples
    lag_of, lag_s_of, states = _lags(tables["lag"]) if "lag" in tables else ({}, {}, {})
    committed_of = _committed(given.samples) if given.samples is not None else {}
    events = _over_events(steps.counts) if steps.counts is not None else {}
    samples = _over_samples(by_samples, given, how) if by_samples is not None else {}
    keys, key_span = _key_loads(tables["hot_keys"]) if "hot_keys" in tables else ((), None)
    parts = _parts(given, steps.used, events, how)
    loads = []
    for name, end in sorted(given.partitions.items()):
        part = parts[name]
        if by_samples is not None:
            bytes_s, records_s, complete = samples.get(name, (None, None, False))
            complete = complete and part.complete and not given.watched_part
        elif name in given.counted:
            found = events.get(name)
            bytes_s = found.bytes / part.seconds if found else 0.0
            records_s = found.records / part.seconds if found else 0.0
            complete = part.complete and (found is not None or name not in given.cut)
        else:
            bytes_s, records_s, complete = None, None, False
        loads.append(
            PartitionLoad(
                topic=name.topic,
                partition=name.partition,
                bytes_s=bytes_s,
                records_s=records_s,
                source=Source.LOG_DIRS if by_samples is not None else Source.EVENTS,
                end_offset=end,
                lag=lag_of.get(name, {}),
                lag_s=lag_s_of.get(name, {}),
                committed_s=committed_of.get(name, {}),
                complete=complete,
            )
        )
    return Found(
        measurement=Measurement(
            cluster=given.cluster,
            from_ts=min((part.from_ts for part in parts.values()), default=given.from_ts),
            to_ts=max((part.to_ts for part in parts.values()), default=given.to_ts),
            window_s=how.window_s,
            rejects=tables["rejects"].count() if "rejects" in tables else 0,
            partitions=tuple(loads),
            keys=keys,
        ),
        states=states,
        stored_ratio=_stored_ratio(samples, events),
        key_span=key_span,
        run=run,
        notes=_notes(given, steps.used, parts),
    )


def _lags(
    frame: DataFrame,
) -> tuple[
    dict[TopicPartition, dict[str, int | None]],
    dict[TopicPartition, dict[str, float | None]],
    dict[tuple[str, TopicPartition], str],
]:
    """Lag in records and in seconds by partition and group, and the state of each."""
    records: dict[TopicPartition, dict[str, int | None]] = {}
    seconds: dict[TopicPartition, dict[str, float | None]] = {}
    states = {}
    for row in frame.collect():
        name = TopicPartition(row.topic, row.partition)
        records.setdefault(name, {})[row.group] = row.lag_records
        seconds.setdefault(name, {})[row.group] = row.lag_s
        states[row.group, name] = row.state
    return records, seconds, states


def _committed(samples: DataFrame) -> dict[TopicPartition, dict[str, float | None]]:
    """Records that each group commits per second, by partition."""
    found: dict[TopicPartition, dict[str, float | None]] = {}
    for row in samples.transform(commits).collect():
        name = TopicPartition(row.topic, row.partition)
        found.setdefault(name, {})[row.group] = row.committed_s
    return found


def _parts(
    given: Given,
    topics: Mapping[str, Used],
    events: Mapping[TopicPartition, _Counted],
    how: How,
) -> dict[TopicPartition, Used]:
    """The part of the span that each partition's rate is over: its topic's, or what its log has."""
    whole = Used(asked=given.span, from_ts=given.from_ts, to_ts=given.to_ts)
    parts = {name: topics.get(name.topic, whole) for name in given.partitions}
    if given.samples is not None and given.rates_by_samples:
        return parts  # log sizes were watched: what was deleted does not matter
    for name in given.cut & events.keys():
        part, first_ts = parts[name], events[name].first_ts
        if first_ts - part.from_ts > MICROS:
            thin = part.to_ts - first_ts < how.min_span_s * MICROS
            start = part.from_ts if thin else first_ts
            parts[name] = replace(part, from_ts=start, thin=part.thin or thin)
    return parts


def _notes(
    given: Given, topics: Mapping[str, Used], parts: Mapping[TopicPartition, Used]
) -> tuple[str, ...]:
    """What to say of rates that are not over the whole span."""
    of_samples = [f"the monitor watched only {given.span_s:.0f} s of the span asked for"]
    of_topics = [said(topic, used) for topic, used in sorted(topics.items())]
    of_logs = [
        f"{name}: older records are deleted; {text.partition(': ')[2]}"
        for name, part in sorted(parts.items())
        if part != topics.get(name.topic) and (text := said(str(name), part))
    ]
    watched = of_samples if given.watched_part else []
    return (*watched, *(text for text in of_topics if text), *of_logs)


def _stored_ratio(
    samples: Mapping[TopicPartition, tuple[float | None, float | None, bool]],
    events: Mapping[TopicPartition, _Counted],
) -> float | None:
    """Stored bytes of a record over its bytes as sent; None where a side is unknown."""
    stored = [s for s in samples.values() if s[0] is not None and s[1] is not None]
    stored_bytes, stored_records = sum(s[0] or 0 for s in stored), sum(s[1] or 0 for s in stored)
    sent_bytes = sum(e.bytes for e in events.values())
    sent_records = sum(e.records for e in events.values())
    if not (stored_records and sent_bytes):
        return None
    return (stored_bytes / stored_records) / (sent_bytes / sent_records)


def _over_events(counts: DataFrame) -> dict[TopicPartition, _Counted]:
    """All events of a span, by partition."""
    rows = counts.groupBy("topic", "partition").agg(
        F.sum("bytes").alias("bytes"),
        F.sum("samples").alias("records"),
        F.min("first_ts").alias("first_ts"),
    )
    return {
        TopicPartition(r.topic, r.partition): _Counted(int(r.bytes), int(r.records), r.first_ts)
        for r in rows.collect()
    }


def _over_samples(
    rates: DataFrame, given: Given, how: How
) -> dict[TopicPartition, tuple[float | None, float | None, bool]]:
    """Mean over the windows that tell a rate, each weighted by its number of samples.

    Complete is a partition with a complete rate in every window that lies whole inside the span;
    where the span is too short for one, in any window.
    """
    width = round(how.window_s * MICROS)
    whole_windows = given.to_ts // width + -given.from_ts // width
    inside = (F.unix_micros("window_start") >= given.from_ts) & (
        F.unix_micros("window_end") <= given.to_ts
    )
    known = F.when(F.col("bytes_s").isNotNull(), F.col("samples"))
    counted = F.when(F.col("records_s").isNotNull(), F.col("samples"))
    rows = rates.groupBy("topic", "partition").agg(
        (F.sum(F.col("bytes_s") * known) / F.sum(known)).alias("bytes_s"),
        (F.sum(F.col("records_s") * counted) / F.sum(counted)).alias("records_s"),
        F.bool_or("complete").alias("some"),
        F.count_if(F.col("complete") & inside).alias("whole"),
    )
    return {
        TopicPartition(r.topic, r.partition): (
            r.bytes_s,
            r.records_s,
            r.whole == whole_windows if whole_windows > 0 else r.some,
        )
        for r in rows.collect()
    }


def _key_loads(frame: DataFrame) -> tuple[tuple[KeyLoad, ...], tuple[int, int] | None]:
    """The keys of the newest window, heaviest first, and that window."""
    micros = F.struct(F.unix_micros("window_end"), F.unix_micros("window_start"))
    newest = frame.agg(F.max(micros)).collect()[0][0]
    if newest is None:
        return (), None
    end, start = newest
    loads = [
        KeyLoad(
            topic=r.topic,
            key=bytes(r.key),
            lower=r.lower,
            upper=r.upper,
            share=r.share,
            partition_home=r.partition_home,
        )
        for r in frame.where(F.unix_micros("window_end") == end).collect()
    ]
    return tuple(sorted(loads, key=lambda k: (k.topic, -k.lower, k.key))), (start, end)


def times_of(events: DataFrame) -> tuple[int, int] | None:
    """First and last time in a frame, in microseconds; None when it is empty."""
    first, last = events.agg(F.min(F.unix_micros("ts")), F.max(F.unix_micros("ts"))).collect()[0]
    return None if first is None else (int(first), int(last) + 1)


def as_time(ts: int) -> datetime:
    """Microseconds as a time that Spark takes, to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts)
