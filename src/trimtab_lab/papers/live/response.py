"""The system's response times, in four spans, from the timestamps in its own records.

Δt1 from a sample of the monitor until its rates are published; Δt2 from the start of a decision
until it is published, with its plan made and new consumers requested; Δt3 from then until the last
new consumer has sent `hello`; Δt4 from then, or from the first command if there is no new consumer,
to the last `started`.

Paper    Landau et al., figures 14 to 17. Differs: Δt1 there is the 30 s of a moving average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

SPANS = ("measure", "decide", "create", "hand over")
"""Δt1 to Δt4."""

MEASURED, DECIDED, CREATED, HANDED_OVER = SPANS


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """One control record: its type, and its time in microseconds."""

    type: str
    ts: int


@dataclass(frozen=True, slots=True)
class PublishedTimestamp:
    """A record's own timestamp, and when it was published; both in microseconds."""

    ts: int
    published_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRecord:
    """The records of a run in our topics; `decisions` are those that changed something."""

    rates: Sequence[PublishedTimestamp] = ()
    decisions: Sequence[PublishedTimestamp] = ()
    control: Sequence[ControlEvent] = field(default=())


def response_times(records: ReceivedRecord) -> dict[str, list[float]]:
    """The four spans in seconds, in time order.

    >>> control = [ControlEvent("start", 30), ControlEvent("started", 50)]
    >>> decisions = [PublishedTimestamp(10, 20)]
    >>> found = response_times(ReceivedRecord(decisions=decisions, control=control))
    >>> [seconds * 1e6 for seconds in found["hand over"]]
    [20.0]
    """
    found: dict[str, list[float]] = {name: [] for name in SPANS}
    found[MEASURED] = [_span(r.ts, r.published_ts) for r in records.rates]
    decisions = sorted(records.decisions, key=lambda d: d.ts)
    for decision, after in zip_longest(decisions, decisions[1:]):
        end = math.inf if after is None else after.ts
        found[DECIDED].append(_span(decision.ts, decision.published_ts))
        mine = [event for event in records.control if decision.ts <= event.ts < end]
        hellos = [event.ts for event in mine if event.type == "hello"]
        if hellos:
            found[CREATED].append(_span(decision.published_ts, max(hellos)))
        commands = [event.ts for event in mine if event.type in ("start", "stop")]
        acknowledged = [event.ts for event in mine if event.type == "started"]
        if commands and acknowledged:
            ready = max([min(commands), *hellos])
            found[HANDED_OVER].append(_span(ready, max(acknowledged)))
    return found


def _span(start: int, end: int) -> float:
    return max(0, end - start) / 1e6  # Kafka's timestamps are in milliseconds, ours are finer
