"""Rates over time for the demo's plots, in short windows, counted from the records."""

from __future__ import annotations

from trimtab.measure.spark.jobs import MeasureInput
from trimtab.measure.spark.rates import rates_from_events
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.report.plots import RateHistory, RatePoint


def rate_history(given: MeasureInput, *, window_s: float) -> RateHistory:
    """Each partition's rate in every complete window of the time span, in time order."""
    if given.events is None:
        return {}
    rates = given.events.transform(
        rates_from_events, window_s=window_s, from_ts=given.from_ts, to_ts=given.to_ts
    )
    history: dict[TopicPartition, list[RatePoint]] = {}
    for row in rates.where("complete").orderBy("topic", "partition", "window_start").collect():
        middle = round((row.window_start.timestamp() + row.window_end.timestamp()) / 2 * MICROS)
        point = RatePoint(middle, row.bytes_s, row.records_s)
        history.setdefault(TopicPartition(row.topic, row.partition), []).append(point)
    return history
