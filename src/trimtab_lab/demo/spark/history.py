"""Rates over time for the demo's plots, in short windows, counted from the records."""

from __future__ import annotations

from trimtab.measure.spark.rates import rates_from_events
from trimtab.measure.spark.spans import from_kafka
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.report.plots import RateHistory, RatePoint
from trimtab.services.measure import MeasuredSpan, MeasureRequest
from trimtab_lab.demo.script import DemoEnvironment


def rate_history(
    environment: DemoEnvironment, request: MeasureRequest, span: MeasuredSpan, *, window_s: float
) -> RateHistory:
    """Each partition's rate in every complete window of the time span, in time order."""
    asked = request.asked((span.from_ts, span.to_ts))
    with environment.cluster.admin() as admin:
        given = from_kafka(environment.spark(), admin, environment.cluster, asked)
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
