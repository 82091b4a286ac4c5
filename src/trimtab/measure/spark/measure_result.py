"""The result of a batch measurement, collected from its frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.kafka.spans import AHEAD_S
from trimtab.measure.activity import UsedSpan, note_on, used
from trimtab.measure.spark.commits import commits
from trimtab.measure.spark.measure_frames import MeasureFrames, _activities
from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Source

_NAMED = 5


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


class _Counted(NamedTuple):
    """Events of one partition within a span."""

    bytes: int
    records: int
    first_ts: int


def measure_result(
    given: MeasureInput, how: MeasureMethod, steps: MeasureFrames, run: str
) -> MeasureResult:
    """Collects the loads of all partitions, lag and heavy keys; `run` is the measurement's id."""
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
            bytes_s, records_s, complete = _by_count(name, part, events.get(name), given)
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


def _by_count(
    name: TopicPartition, part: UsedSpan, found: _Counted | None, given: MeasureInput
) -> tuple[float, float, bool]:
    """Rates of a partition from its events, and whether they cover the whole span."""
    complete = part.complete and (found is not None or name not in given.cut)
    complete = complete and name not in given.strays and not given.watched_part
    if found is None:
        return 0.0, 0.0, complete
    return found.bytes / part.seconds, found.records / part.seconds, complete


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
    steps: MeasureFrames,
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
    steps: MeasureFrames,
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
