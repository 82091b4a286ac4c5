"""Ours beside the paper, a model of it, or a bar: one row per figure, with how it was judged."""

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
    """One figure of ours beside what it is compared with.

    `paper` is what the paper states or its authors published, `model` what another implementation
    of the paper's system as a model gave, `bar` a limit that we set ourselves. `tolerance` is
    absolute, in the unit of the figure: how far ours may be from the model's figure, or from the
    paper's where there is no model. A bar has none. `interval` is that of ours, where it is known.
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
        """The row for programs."""
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
    """Judges by the distance to the model's figure, or to the paper's where there is no model.

    >>> near("cbs mwf d=5", 0.113, paper=0.118, tolerance=0.025).verdict
    <RowVerdict.WITHIN: 'within'>
    """
    known = paper if model is None else model
    if known is None:
        raise ValueError(f"{what}: there is neither a paper's nor a model's figure")
    met = RowVerdict.WITHIN if abs(ours - known) <= tolerance else RowVerdict.OUTSIDE
    return VerdictRow(
        what=what, paper=paper, model=model, ours=ours, tolerance=tolerance, verdict=met
    )


def at_most(what: str, bar: float, ours: float, *, paper: float | None = None) -> VerdictRow:
    """Judges by a bar from above.

    >>> at_most("replica-minutes", 22, 21.4).what
    'replica-minutes, at most'
    """
    met = RowVerdict.WITHIN if ours <= bar else RowVerdict.OUTSIDE
    named = f"{what}, at most" if bar else what  # of what is counted, none
    return VerdictRow(what=named, paper=paper, bar=bar, ours=ours, verdict=met)


def at_least(what: str, bar: float, ours: float, *, paper: float | None = None) -> VerdictRow:
    """Judges by a bar from below."""
    met = RowVerdict.WITHIN if ours >= bar else RowVerdict.OUTSIDE
    return VerdictRow(what=f"{what}, at least", paper=paper, bar=bar, ours=ours, verdict=met)


def beats(what: str, bar: float, ours: float, *, lower: bool) -> VerdictRow:
    """Judges by a bar that is an objective: what goes beyond it is better, what meets it within."""
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


def beside(
    what: str,
    ours: float | None,
    *,
    paper: float | None = None,
    model: float | None = None,
    bar: float | None = None,
    interval: tuple[float, float] | None = None,
) -> VerdictRow:
    """Shows a figure beside those of other conditions, without judging it."""
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
    """A row as it was kept."""
    known = {**value, "verdict": RowVerdict(value["verdict"])}
    if "interval" in known:
        low, high = known["interval"]
        known["interval"] = (low, high)
    return VerdictRow(**known)


def _tidy(value: float | None) -> float | None:
    """A figure to six digits; what is not a number is null."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
