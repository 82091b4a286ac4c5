"""The batch job: reads the input, runs the steps, writes the tables, returns the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.errors import ThinData
from trimtab.kafka.spans import AHEAD_S
from trimtab.measure.activity import SLOTS, Activity, UsedSpan, note_on, recurring_pause, used
from trimtab.measure.counters import Share, Threshold
from trimtab.measure.spark.commits import commits
from trimtab.measure.spark.hot_keys import CountingMode, heavy_keys
from trimtab.measure.spark.lag import lag
from trimtab.measure.spark.rates import counts_of_events, rates_from_samples, rates_of_counts
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import short_hash
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Source
from trimtab.spark.session import spark_errors
from trimtab.spark.warehouse import Warehouse

_NAMED = 5
_MOST_WORDS = 500
"""Maximum number of words of activity per topic; a longer span has coarser slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureInput:
    """The input of a measurement; at least one of `events` and `samples` is given.

    `partitions` are the measured partitions with their end offsets, if known. `counted` are those
    whose events were read: without events such a partition was idle, any other is unknown. `cut`
    are partitions whose log starts after the span, `born` those whose first record ever is in it.
    `strays` are partitions whose records have wrong timestamps: (wrong, checked) of the newest
    records. `sizes` is the number of partitions of each topic, if known. Rates come from samples,
    if given, unless `rates_by_samples` is false: then only lag does. Partitions without samples
    are counted from events, unless `only_samples` is set. `watched_part` is true if samples cover
    only a part of the requested span, and the span is that part.
    """

    from_ts: int
    to_ts: int
    partitions: Mapping[TopicPartition, int | None]
    counted: frozenset[TopicPartition] = frozenset()
    events: DataFrame | None = None
    samples: DataFrame | None = None
    rates_by_samples: bool = True
    only_samples: bool = False
    watched_part: bool = False
    rejects: DataFrame | None = None
    cluster: str | None = None
    cut: frozenset[TopicPartition] = frozenset()
    born: frozenset[TopicPartition] = frozenset()
    strays: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def span(self) -> tuple[int, int]:
        """Start and end, in microseconds."""
        return self.from_ts, self.to_ts

    @property
    def span_s(self) -> float:
        """Length of the span in seconds."""
        return (self.to_ts - self.from_ts) / MICROS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureMethod:
    """The parameters of a measurement."""

    window_s: float = 30.0
    min_span_s: float = 3.0
    key_window_s: float | None = None
    threshold: Threshold | None = field(default_factory=lambda: Share(0.001))
    mode: CountingMode = CountingMode.TWO_PASS
    epsilon: float | None = None

    @property
    def counting_epsilon(self) -> float:
        """The requested error bound, or the default for the threshold."""
        if self.epsilon is not None:
            return self.epsilon
        return default_epsilon(self.threshold or Share(0.001))

    @property
    def max_gap_s(self) -> float:
        """Samples further apart than this count as a gap."""
        return self.window_s / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """A measurement, and further information for the user.

    `notes` name the rates that are not over the whole requested span.
    """

    measurement: Measurement
    states: Mapping[tuple[str, TopicPartition], str]
    stored_ratio: float | None
    key_span: tuple[int, int] | None
    run: str
    notes: tuple[str, ...] = ()


def measure(
    given: MeasureInput, how: MeasureMethod, warehouse: Warehouse | None = None
) -> MeasureResult:
    """Runs every step that the given sources allow, and writes the tables."""
    check_span(given.span_s, how)
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


def check_span(span_s: float, how: MeasureMethod) -> None:
    """Raises an error for a span that is too short for a rate."""
    if span_s < how.min_span_s:
        raise ThinData(
            f"The span is {span_s:.1f} s long; a rate needs at least {how.min_span_s:g} s.",
            hint="Choose a longer span, or wait for more data.",
        )


class _Counted(NamedTuple):
    """Events of one partition within a span."""

    bytes: int
    records: int
    first_ts: int


class _Steps:
    """The frames of one measurement, each computed once."""

    def __init__(self, given: MeasureInput, how: MeasureMethod) -> None:
        self.counts: DataFrame | None = None
        self.by_samples: DataFrame | None = None
        self.used: dict[str, UsedSpan] = {}
        self.tables: dict[str, DataFrame] = {}
        if given.events is not None:
            self.counts = given.events.transform(counts_of_events, window_s=how.window_s).persist()
            self.tables["partition_rates"] = self.counts.transform(
                rates_of_counts, window_s=how.window_s, from_ts=given.from_ts, to_ts=given.to_ts
            )
            self.used = used_spans(self.counts, given.span, how, born=_born_topics(given))
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
        """Frees the cached frames."""
        for frame in (*self.tables.values(), self.counts):
            if frame is not None:
                frame.unpersist()


def used_spans(
    counts: DataFrame, span: tuple[int, int], how: MeasureMethod, *, born: Set[str] = frozenset()
) -> dict[str, UsedSpan]:
    """The part of the span in which each topic had records; topics without records are left out."""
    return {
        topic: used(span, replace(found, born=topic in born), min_span_s=how.min_span_s)
        for (topic,), found in _activities(counts, span, how, "topic").items()
    }


def _born_topics(given: MeasureInput) -> frozenset[str]:
    """Topics without records before the span: each partition started in it, or is still empty."""
    older = {
        name.topic
        for name in given.counted
        if name not in given.born and given.partitions.get(name) != 0
    }
    return frozenset(name.topic for name in given.born) - older


def _activities(
    counts: DataFrame, span: tuple[int, int], how: MeasureMethod, *by: str
) -> dict[tuple[Any, ...], Activity]:
    """Activity of the records, grouped by these columns."""
    width = round(how.window_s * MICROS)
    word, bits, slot_us = F.col("window"), F.col("slots"), width / SLOTS
    if (span[1] - span[0]) // width > _MOST_WORDS:  # then a slot is a window
        in_word = F.expr(f"shiftleft(1L, cast(window % {SLOTS} as int))")
        word, bits, slot_us = F.expr(f"window div {SLOTS}"), in_word, width
    rows = counts.groupBy(*by, word.alias("word")).agg(
        F.bit_or(bits).alias("slots"),
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
        F.sum("samples").alias("records"),
    )
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows.collect():
        together.setdefault(tuple(row[column] for column in by), []).append(row)
    return {
        key: Activity(
            first_ts=min(r.first_ts for r in own),
            last_ts=max(r.last_ts for r in own),
            records=sum(r.records for r in own),
            rhythm_us=recurring_pause(((r.word, r.slots) for r in own), slot_us),
        )
        for key, own in together.items()
    }


def _inside(topics: Mapping[str, UsedSpan]) -> Column:
    """Whether a sample is in the part of the span that its topic's rate is computed over."""
    wanted = F.lit(True)
    for topic, part in topics.items():
        if (part.from_ts, part.to_ts) != part.asked:
            micros = F.unix_micros("ts")
            inside = (micros >= part.from_ts) & (micros < part.to_ts)
            wanted = wanted & ((F.col("topic") != topic) | inside)
    return wanted


def _run_id(given: MeasureInput, how: MeasureMethod) -> str:
    """The same measurement has the same id, so that repeating it replaces the result."""
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


def _keys(
    given: MeasureInput, how: MeasureMethod, events: DataFrame, threshold: Threshold
) -> DataFrame:
    # By default one window over the whole span, which gives a single list.
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
    """A tenth of the threshold, so that the uncertain range is at most a tenth of it.

    For a count, which does not depend on the window's size, and for coverage: 1 / 100 000.
    """
    return threshold.of_records / 10 if isinstance(threshold, Share) else 0.00001


def _summary(given: MeasureInput, how: MeasureMethod, steps: _Steps, run: str) -> MeasureResult:
    tables, by_samples = steps.tables, steps.by_samples
    lag_of, lag_s_of, states = _lags(tables["lag"]) if "lag" in tables else ({}, {}, {})
    committed_of, least_of = _committed(given.samples) if given.samples is not None else ({}, {})
    events = _over_events(steps.counts) if steps.counts is not None else {}
    samples = _over_samples(by_samples, given, how) if by_samples is not None else {}
    keys, key_span = _key_loads(tables["hot_keys"]) if "hot_keys" in tables else ((), None)
    unsampled = given.counted - samples.keys()
    by_count: frozenset[TopicPartition] = (
        frozenset() if by_samples is not None and given.only_samples else unsampled
    )
    parts = _parts(given, steps, by_count, events, how)
    loads = []
    for name, end in sorted(given.partitions.items()):
        part = parts[name]
        bytes_s: float | None
        records_s: float | None
        if name in by_count:
            found = events.get(name)
            bytes_s = found.bytes / part.seconds if found else 0.0
            records_s = found.records / part.seconds if found else 0.0
            complete = part.complete and (found is not None or name not in given.cut)
            complete = complete and name not in given.strays and not given.watched_part
        elif by_samples is not None:
            bytes_s, records_s, complete = samples.get(name, (None, None, False))
            complete = complete and part.complete and not given.watched_part
        else:
            bytes_s, records_s, complete = None, None, False
        loads.append(
            PartitionLoad(
                topic=name.topic,
                partition=name.partition,
                bytes_s=bytes_s,
                records_s=records_s,
                source=Source.EVENTS if name in by_count or by_samples is None else Source.LOG_DIRS,
                end_offset=end,
                lag=lag_of.get(name, {}),
                lag_s=lag_s_of.get(name, {}),
                committed_s=committed_of.get(name, {}),
                least_lag=least_of.get(name, {}),
                complete=complete,
            )
        )
    return MeasureResult(
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
        notes=(*_notes(given, steps.used, parts), *_of_unsampled(by_count, samples)),
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


def _committed(
    samples: DataFrame,
) -> tuple[
    dict[TopicPartition, dict[str, float | None]], dict[TopicPartition, dict[str, int | None]]
]:
    """Records that each group commits per second, and its lowest lag, by partition."""
    speeds: dict[TopicPartition, dict[str, float | None]] = {}
    lags: dict[TopicPartition, dict[str, int | None]] = {}
    for row in samples.transform(commits).collect():
        name = TopicPartition(row.topic, row.partition)
        speeds.setdefault(name, {})[row.group] = row.committed_s
        if row.least_lag is not None:
            lags.setdefault(name, {})[row.group] = row.least_lag
    return speeds, lags


def _parts(
    given: MeasureInput,
    steps: _Steps,
    by_count: Set[TopicPartition],
    events: Mapping[TopicPartition, _Counted],
    how: MeasureMethod,
) -> dict[TopicPartition, UsedSpan]:
    """The part of the span of each partition's rate: its topic's part, or what its log covers.

    If log sizes were sampled, deleted records do not matter.
    """
    whole = UsedSpan(asked=given.span, from_ts=given.from_ts, to_ts=given.to_ts)
    parts = {name: steps.used.get(name.topic, whole) for name in given.partitions}
    counted = {name: found for name, found in events.items() if name in by_count}
    for name in given.cut & counted.keys():
        part, first_ts = parts[name], events[name].first_ts
        if first_ts - part.from_ts > MICROS:
            thin = part.to_ts - first_ts < how.min_span_s * MICROS
            start = part.from_ts if thin else first_ts
            parts[name] = replace(
                part, from_ts=start, thin=part.thin or thin, quiet_us=(0, part.quiet_us[1])
            )
    return parts | _since_birth(given, steps, parts, counted, how)


def _since_birth(
    given: MeasureInput,
    steps: _Steps,
    parts: Mapping[TopicPartition, UsedSpan],
    events: Mapping[TopicPartition, _Counted],
    how: MeasureMethod,
) -> dict[TopicPartition, UsedSpan]:
    """The parts of partitions that were added or first written in the span."""
    new = {
        name
        for name in given.born & events.keys()
        if events[name].first_ts - parts[name].from_ts > MICROS and not parts[name].thin
    }
    if steps.counts is None or not new:
        return {}
    theirs = steps.counts.where(F.col("topic").isin(sorted({name.topic for name in new})))
    activities = _activities(theirs, given.span, how, "topic", "partition")
    found = {}
    for name in new:
        part = parts[name]
        first = replace(activities[name], born=True)
        own = used((part.from_ts, part.to_ts), first, min_span_s=how.min_span_s)
        if own.from_ts > part.from_ts and part.to_ts - own.from_ts >= how.min_span_s * MICROS:
            found[name] = replace(part, from_ts=own.from_ts, quiet_us=(0, 0))
    return found


def _notes(
    given: MeasureInput, topics: Mapping[str, UsedSpan], parts: Mapping[TopicPartition, UsedSpan]
) -> tuple[str, ...]:
    """Notes on rates that are not over the whole span."""
    of_samples = [f"the monitor sampled only {given.span_s:.0f} s of the requested span"]
    of_topics = [note_on(topic, used) for topic, used in sorted(topics.items())]
    new, cut = "it had no earlier records", "older records were deleted"
    of_logs = [
        f"{name}: {new if name in given.born else cut}; {text.partition(': ')[2]}"
        for name, part in sorted(parts.items())
        if part != topics.get(name.topic) and (text := note_on(str(name), part))
    ]
    watched = of_samples if given.watched_part else []
    of_clocks = [
        f"{name}: {bad} of {of} records written since the start of the command have timestamps "
        f"more than {AHEAD_S} s before it or in the future, so its rate is not reliable (a "
        "producer's clock is wrong, or it uses event times as timestamps); measure by log sizes "
        "instead: --for 30s"
        for name, (bad, of) in sorted(given.strays.items())
    ]
    return (*watched, *(text for text in of_topics if text), *of_logs, *of_clocks)


def _of_unsampled(
    by_count: Iterable[TopicPartition], samples: Mapping[TopicPartition, object]
) -> Iterator[str]:
    """Notes on topics that the monitor does not sample, if it samples others."""
    topics = sorted({name.topic for name in by_count})
    if samples and topics:
        more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
        yield (
            f"{', '.join(topics[:_NAMED])}{more}: not sampled, or not completely, by the monitor; "
            "its rates are counted from the records, in bytes as sent"
        )


def _stored_ratio(
    samples: Mapping[TopicPartition, tuple[float | None, float | None, bool]],
    events: Mapping[TopicPartition, _Counted],
) -> float | None:
    """Stored bytes of a record divided by its bytes as sent; None if one is unknown."""
    stored = [s for s in samples.values() if s[0] is not None and s[1] is not None]
    stored_bytes, stored_records = sum(s[0] or 0 for s in stored), sum(s[1] or 0 for s in stored)
    sent = [found for name, found in events.items() if name in samples]
    sent_bytes, sent_records = sum(e.bytes for e in sent), sum(e.records for e in sent)
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
    rates: DataFrame, given: MeasureInput, how: MeasureMethod
) -> dict[TopicPartition, tuple[float | None, float | None, bool]]:
    """Mean over the windows with a rate, weighted by their numbers of samples.

    A partition is complete if its rate is complete in every window that is entirely in the span;
    if the span is too short for such a window, in any window.
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
    """First and last time in a frame, in microseconds; None if it is empty."""
    first, last = events.agg(F.min(F.unix_micros("ts")), F.max(F.unix_micros("ts"))).collect()[0]
    return None if first is None else (int(first), int(last) + 1)


def as_time(ts: int) -> datetime:
    """Microseconds as a datetime for Spark, exact to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts)
