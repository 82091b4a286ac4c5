"""Our figures compared with the paper, a model of it, or a bar: one row with a verdict each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class RowVerdict(StrEnum):
    """The result of a comparison."""

    WITHIN = "within"
    OUTSIDE = "outside"
    BETTER = "better"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """One of our figures, and the figures it is compared with.

    `paper` is the figure that the paper states or its authors published, `model` the result of
    another implementation of a model of the paper's system, `bar` a limit that we set ourselves.
    `tolerance` is absolute, in the unit of the figure: the allowed distance from the model's
    figure, or from the paper's if there is no model; a bar has none. `interval` is the confidence
    interval of our figure, if known.
    """

    what: str
    paper: float | None = None
    model: float | None = None
    bar: float | None = None
    ours: float | None
    tolerance: float | None = None
    verdict: RowVerdict
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return {
            "what": self.what,
            "paper": _tidy(self.paper),
            "model": _tidy(self.model),
            "bar": _tidy(self.bar),
            "ours": _tidy(self.ours),
            "tolerance": _tidy(self.tolerance),
            "verdict": str(self.verdict),
            **({} if self.interval is None else {"interval": [*map(_tidy, self.interval)]}),
        }


def near(
    what: str,
    ours: float,
    *,
    tolerance: float,
    paper: float | None = None,
    model: float | None = None,
) -> VerdictRow:
    """Checks the distance from the model's figure, or from the paper's if there is no model.

    >>> near("cbs mwf d=5", 0.113, paper=0.118, tolerance=0.025).verdict
    <RowVerdict.WITHIN: 'within'>
    """
    known = paper if model is None else model
    if known is None:
        raise ValueError(f"{what}: neither paper nor model is given")
    met = RowVerdict.WITHIN if abs(ours - known) <= tolerance else RowVerdict.OUTSIDE
    return VerdictRow(
        what=what, paper=paper, model=model, ours=ours, tolerance=tolerance, verdict=met
    )


def at_most(what: str, bar: float, ours: float, *, paper: float | None = None) -> VerdictRow:
    """Checks that our figure does not exceed a bar.

    >>> at_most("replica-minutes", 22, 21.4).what
    'replica-minutes, at most'
    """
    met = RowVerdict.WITHIN if ours <= bar else RowVerdict.OUTSIDE
    named = f"{what}, at most" if bar else what  # with a bar of 0, "at most" is superfluous
    return VerdictRow(what=named, paper=paper, bar=bar, ours=ours, verdict=met)


def at_least(what: str, bar: float, ours: float, *, paper: float | None = None) -> VerdictRow:
    """Checks that our figure reaches a bar."""
    met = RowVerdict.WITHIN if ours >= bar else RowVerdict.OUTSIDE
    return VerdictRow(what=f"{what}, at least", paper=paper, bar=bar, ours=ours, verdict=met)


def beats(what: str, bar: float, ours: float, *, lower: bool) -> VerdictRow:
    """Checks an objective: a figure beyond the bar is better, one equal to it is within."""
    distance = bar - ours if lower else ours - bar
    met = (
        RowVerdict.BETTER
        if distance > 0
        else RowVerdict.WITHIN
        if distance == 0
        else RowVerdict.OUTSIDE
    )
    return VerdictRow(
        what=f"{what}, at {'most' if lower else 'least'}", bar=bar, ours=ours, verdict=met
    )


def for_information(
    what: str,
    ours: float | None,
    *,
    paper: float | None = None,
    model: float | None = None,
    bar: float | None = None,
    interval: tuple[float, float] | None = None,
) -> VerdictRow:
    """Shows our figure next to others without a verdict, because conditions differ."""
    return VerdictRow(
        what=what,
        paper=paper,
        model=model,
        bar=bar,
        ours=ours,
        verdict=RowVerdict.NOT_COMPARABLE,
        interval=interval if interval and all(map(math.isfinite, interval)) else None,
    )


def tally(rows: Iterable[VerdictRow]) -> dict[RowVerdict, int]:
    """How many rows have each verdict."""
    counts = dict.fromkeys(RowVerdict, 0)
    for row in rows:
        counts[row.verdict] += 1
    return counts


def row_from(value: Any) -> VerdictRow:
    """Reads a row from its JSON object."""
    known = {**value, "verdict": RowVerdict(value["verdict"])}
    if "interval" in known:
        low, high = known["interval"]
        known["interval"] = (low, high)
    return VerdictRow(**known)


def _tidy(value: float | None) -> float | None:
    """Rounds to six digits; None for infinite values and NaN."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
