"""How long the system takes to respond, in four spans, from the times that its own records carry.

Δt1 from a sample of the monitor until its rates are published; Δt2 from the decision's beginning
until it is published, its plan made and compared and new consumers asked for; Δt3 from there until
the last new consumer has said hello; Δt4 from there, or from the first command where none was
new, to the last `started`.

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
class Said:
    """One control record: what it was, and when, in microseconds."""

    type: str
    ts: int


@dataclass(frozen=True, slots=True)
class Published:
    """A record with the time it speaks of, and when it was published; both in microseconds."""

    ts: int
    published_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRecord:
    """What a run left in its topics; `decisions` are those that changed something."""

    rates: Sequence[Published] = ()
    decisions: Sequence[Published] = ()
    control: Sequence[Said] = field(default=())


def response_times(heard: ReceivedRecord) -> dict[str, list[float]]:
    """The four spans in seconds, in the order of time.

    >>> said = [Said("start", 30), Said("started", 50)]
    >>> found = response_times(ReceivedRecord(decisions=[Published(10, 20)], control=said))
    >>> [seconds * 1e6 for seconds in found["hand over"]]
    [20.0]
    """
    found: dict[str, list[float]] = {name: [] for name in SPANS}
    found[MEASURED] = [_span(r.ts, r.published_ts) for r in heard.rates]
    decisions = sorted(heard.decisions, key=lambda d: d.ts)
    for decision, after in zip_longest(decisions, decisions[1:]):
        end = math.inf if after is None else after.ts
        found[DECIDED].append(_span(decision.ts, decision.published_ts))
        mine = [said for said in heard.control if decision.ts <= said.ts < end]
        hellos = [said.ts for said in mine if said.type == "hello"]
        if hellos:
            found[CREATED].append(_span(decision.published_ts, max(hellos)))
        commands = [said.ts for said in mine if said.type in ("start", "stop")]
        acknowledged = [said.ts for said in mine if said.type == "started"]
        if commands and acknowledged:
            ready = max([min(commands), *hellos])
            found[HANDED_OVER].append(_span(ready, max(acknowledged)))
    return found


def _span(start: int, end: int) -> float:
    return max(0, end - start) / 1e6  # Kafka keeps milliseconds, our times are finer
