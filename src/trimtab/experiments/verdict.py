"""Published against ours: one row per figure, with the tolerance it was judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a comparison came to."""

    WITHIN = "within"
    OUTSIDE = "outside"
    BETTER = "better"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure beside the published one, or beside the bar that it has to reach.

    `tolerance` is absolute, in the unit of the figure; None where no figure was published for the
    same conditions.
    """

    what: str
    published: float | None
    ours: float | None
    tolerance: float | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """The row for programs."""
        return {
            "what": self.what,
            "published": _tidy(self.published),
            "ours": _tidy(self.ours),
            "tolerance": _tidy(self.tolerance),
            "verdict": str(self.verdict),
        }


def near(what: str, published: float, ours: float, *, tolerance: float) -> Row:
    """Judges by distance.

    >>> near("cbs mwf d=5", 0.118, 0.113, tolerance=0.025).verdict
    <Verdict.WITHIN: 'within'>
    """
    return _row(what, published, ours, tolerance, met=abs(ours - published) <= tolerance)


def between(what: str, published: float, ours: Sequence[float], low: float, high: float) -> Row:
    """Judges every one of several by a band; shows the one that is farthest from the published."""
    worst = max(ours, key=lambda value: abs(value - published))
    met = all(low <= value <= high for value in ours)
    return _row(what, published, worst, max(high - published, published - low), met=met)


def at_most(what: str, bar: float, ours: float) -> Row:
    """Judges by a bar from above."""
    return _row(what, bar, ours, 0.0, met=ours <= bar)


def at_least(what: str, bar: float, ours: float) -> Row:
    """Judges by a bar from below."""
    return _row(what, bar, ours, 0.0, met=ours >= bar)


def beats(what: str, bar: float, ours: float, *, lower: bool) -> Row:
    """Judges by a bar that is an objective: what goes beyond it is better, what meets it within."""
    distance = bar - ours if lower else ours - bar
    met = Verdict.BETTER if distance > 0 else Verdict.WITHIN if distance == 0 else Verdict.OUTSIDE
    return Row(what=what, published=bar, ours=ours, tolerance=0.0, verdict=met)


def beside(what: str, published: float | None, ours: float | None) -> Row:
    """Puts a figure beside one of other conditions, or beside none."""
    return Row(
        what=what, published=published, ours=ours, tolerance=None, verdict=Verdict.NOT_COMPARABLE
    )


def tally(rows: Iterable[Row]) -> dict[Verdict, int]:
    """How many rows came to each verdict."""
    counts = dict.fromkeys(Verdict, 0)
    for row in rows:
        counts[row.verdict] += 1
    return counts


def row_from(value: Any) -> Row:
    """A row as it was kept."""
    return Row(**{**value, "verdict": Verdict(value["verdict"])})


def _row(what: str, published: float, ours: float, tolerance: float, *, met: bool) -> Row:
    verdict = Verdict.WITHIN if met else Verdict.OUTSIDE
    return Row(what=what, published=published, ours=ours, tolerance=tolerance, verdict=verdict)


def _tidy(value: float | None) -> float | None:
    """A figure without the digits that nobody measured."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
