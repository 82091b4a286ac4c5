"""Reads the records of a run in our topics, with their publication times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab_lab.papers.live.kafka.live_site import LiveSite, RunObservations
from trimtab_lab.papers.live.kafka.own_records import own_records
from trimtab_lab.papers.live.response import ControlEvent, PublishedTimestamp, ReceivedRecord

_CHANGES = ("scale_up", "scale_down", "reassign")


def run_records(place: LiveSite, run: RunObservations) -> ReceivedRecord:
    """Rates, decisions and control records of a run, from when the group was ready to its end."""

    def records(topic: str) -> Iterator[tuple[Any, int]]:
        for value, published_ts in own_records(
            place, topic, from_ts=run.ready_ts, to_ts=run.ended_ts
        ):
            if run.ready_ts <= int(value["ts"]) <= run.ended_ts:
                yield value, published_ts

    own = place.cluster.topics
    rates = [
        PublishedTimestamp(value["ts"], published_ts)
        for value, published_ts in records(own.rates)
        if value["topic"] == run.topic and value.get("part", 0) + 1 == value.get("of", 1)
    ]
    decisions = [
        PublishedTimestamp(value["ts"], published_ts)
        for value, published_ts in records(own.decisions)
        if value["group"] == run.group and value["action"] in _CHANGES
    ]
    control = [
        ControlEvent(value["type"], value["ts"]) for value, _ in records(own.control(run.group))
    ]
    return ReceivedRecord(rates=rates, decisions=decisions, control=control)
