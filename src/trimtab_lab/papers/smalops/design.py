"""The policies, the layout and the parameters of the comparison by Bhattacharya & Wood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from trimtab.model.murmur2 import homes
from trimtab.workload.key_streams import ZipfMandelbrot, key_bytes
from trimtab_lab.papers.grid import GridCell
from trimtab_lab.papers.part import Runner, figures_of
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops import key_runs as runs
from trimtab_lab.papers.verdict import VerdictRow, at_least, at_most, for_information, near

SLA_US = 1000.0
"""The paper's "freshness" has no number; 1 ms is 20 service times of 50 µs."""

LEAST_DURATION_S = 20.0
"""Two windows: the first one is warm-up."""

_EXACT_KEYS = 200_000  # the homes of the keys behind them are taken as even


@dataclass(frozen=True, slots=True)
class KeyContestant:
    """A policy with its options, by the name under which it is shown."""

    name: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_options(self, name: str, **options: Any) -> KeyContestant:
        """The same policy with other options."""
        return replace(self, name=name, options={**self.options, **options})


HASH = KeyContestant("hash", "hash")
ROUND_ROBIN = KeyContestant("round-robin", "round-robin")
SMALOPS = KeyContestant("smalops", "smalops", {"cool_below": "threshold"})
"""As in the paper: a key cools down below the threshold at which it becomes hot."""

TRIM = KeyContestant("trim", "trim")


class SmalopsRun(NamedTuple):
    """Identifies a run; the rate follows from the utilisation."""

    name: str
    seed: int
    rate_s: float
    service_us: float
    window_s: float
    duration_s: float
    shift: int = 0


Figures = Mapping[str, Any]
Found = Mapping[SmalopsRun, Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmalopsDesign:
    """The parameters of the experiment; the defaults are those of the expected figures.

    Runs with keys that shift are four times as long as the others. Short runs and single seeds
    are shown without verdict, unless `judges_short_runs` is set.
    """

    seeds: int = 2
    duration_s: float = 60.0
    utilisations: tuple[float, ...] = tuple(paper.P99_LOWER_MODEL)
    service_times_us: tuple[float, ...] = paper.SERVICE_TIMES_US
    coverages: tuple[float, ...] = paper.COVERAGES
    draws: int = 6  # of the two random choices, for the thresholds
    shifts: tuple[int, ...] = paper.SHIFTS
    our_windows_s: tuple[float, ...] = paper.OUR_WINDOWS_S
    judges_short_runs: bool = False

    @property
    def comparable(self) -> bool:
        """Whether the expected figures are for these parameters; more seeds add precision."""
        enough = self.seeds >= 2 and self.duration_s >= 60.0
        return enough or self.judges_short_runs

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters by name."""
        return {
            "seeds": self.seeds,
            "partitions": paper.PARTITIONS,
            "duration_s": round(self.duration_s),
            "threshold": f"{paper.HOT_COUNT} records per window",
            "window_s": round(paper.DECISION_INTERVAL_S),
        }

    def rate(self, utilisation: float, service_us: float = 50.0) -> float:
        """Records a second at which hash's busiest partition is so busy."""
        share = busiest_share(paper.PARTITIONS)
        return float(round(utilisation / (share * service_us * 1e-6)))

    def near(
        self,
        what: str,
        ours: float,
        known: paper.ModelFigure,
        *,
        published: float | None = None,
    ) -> VerdictRow:
        """Compares with an expected figure; without verdict if the parameters differ."""
        if not self.comparable:
            return for_information(what, ours, paper=published, model=known.value)
        return near(what, ours, paper=published, model=known.value, tolerance=known.tolerance)

    def at_most(self, what: str, bar: float, ours: float) -> VerdictRow:
        """Checks an upper bar; without verdict if the parameters differ."""
        row = at_most(what, bar, ours)
        return row if self.comparable else for_information(row.what, ours, bar=bar)

    def at_least(
        self, what: str, bar: float, ours: float, *, published: float | None = None
    ) -> VerdictRow:
        """Checks a lower bar; without verdict if the parameters differ."""
        row = at_least(what, bar, ours, paper=published)
        return row if self.comparable else for_information(row.what, ours, paper=published, bar=bar)


@cache
def busiest_share(partitions: int) -> float:
    """The part of all records that hash sends to its busiest partition.

    >>> round(8 * busiest_share(8), 2)
    1.34
    """
    zipf = ZipfMandelbrot()
    ranks = np.arange(min(_EXACT_KEYS, zipf.keys))
    weights = (zipf.v + ranks) ** -zipf.s
    shares = weights * (zipf.share(0) / weights[0])
    loads = np.bincount(homes(key_bytes(ranks), partitions), shares, partitions)
    return float(loads.max() + (1 - shares.sum()) / partitions)


def simulated_runs(
    contestants: Sequence[KeyContestant], asked: Sequence[SmalopsRun], run: Runner
) -> dict[SmalopsRun, Figures]:
    """The figures of every contestant in every asked setting, whose name is left out."""
    cells = {
        setting._replace(name=one.name): GridCell(
            {
                "policy": one.policy,
                "options": dict(one.options),
                **{key: value for key, value in setting._asdict().items() if key != "name"},
                "partitions": paper.PARTITIONS,
                "sla_us": SLA_US,
            },
            runs.code_of(one.policy),
        )
        for setting, one in product(asked, contestants)
    }
    found = run(list(cells.values()), runs.simulated, 1)
    return dict(zip(cells, figures_of(list(cells.values()), found), strict=True))


def over_seeds(
    found: Found, name: str, figure: str | Callable[[Figures], float], **setting: Any
) -> float:
    """The mean over seeds of a figure of the runs that have this name and these settings."""
    read = figure if callable(figure) else lambda figures: figures[figure]
    return fmean(
        read(figures)
        for r, figures in found.items()
        if r.name == name and all(getattr(r, key) == value for key, value in setting.items())
    )


def ratios(
    found: Found,
    ours: str,
    other: str,
    figure: str | Callable[[Figures], float],
    **setting: Any,
) -> list[float]:
    """A figure of one policy by that of another on the same arrivals, for each seed."""
    read = figure if callable(figure) else lambda figures: figures[figure]
    return [
        read(figures) / read(found[r._replace(name=other)])
        for r, figures in sorted(found.items())
        if r.name == ours and all(getattr(r, key) == value for key, value in setting.items())
    ]


def lower(found: Found, ours: str, other: str, **setting: Any) -> float:
    """How far the p99 of one policy is below that of another, as a fraction; mean over seeds."""
    return 1 - fmean(ratios(found, ours, other, "p99_us", **setting))
