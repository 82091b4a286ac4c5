"""The frames of a batch measurement, and the part of the span in which each topic had records."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.measure.activity import SLOTS, Activity, UsedSpan, recurring_pause, used
from trimtab.measure.counters import Threshold
from trimtab.measure.spark.hot_keys import heavy_keys
from trimtab.measure.spark.lag import lag
from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod
from trimtab.measure.spark.rates import counts_of_events, rates_from_samples, rates_of_counts
from trimtab.measure.windows import MICROS

_MOST_WORDS = 500
"""Maximum number of words of activity per topic; a longer span has coarser slots."""


class MeasureFrames:
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
