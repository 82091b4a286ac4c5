"""Runs of Landau's streams and their scores: means, orderings, Pareto fronts.

CBS is always relative to the paper's twelve heuristics, whichever other planners take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import Any, NamedTuple

from trimtab.evaluate.rscore import TWELVE, cbs, pareto_front
from trimtab_lab.papers.grid import CellResult, GridCell
from trimtab_lab.papers.landau import packing_runs as runs
from trimtab_lab.papers.landau.design import CELLS_PER_TASK, TRIM, UNIFORM, Contestant, LandauDesign
from trimtab_lab.papers.part import Runner, figures_of


class LandauRun(NamedTuple):
    """Identifies a run."""

    name: str
    delta: int
    start: str
    seed: int


class Score(NamedTuple):
    """The figures by which a planner's run on one stream is compared."""

    cbs: float
    e_rscore: float


def packed_runs(
    contestants: Iterable[Contestant],
    design: LandauDesign,
    starts: Iterable[str],
    run: Runner,
    *,
    deltas: Iterable[int] | None = None,
) -> dict[LandauRun, Mapping[str, Any]]:
    """Every planner on every stream."""
    cells = {
        LandauRun(c.name, delta, start, seed): GridCell(
            {
                "planner": c.planner,
                "slack": c.slack,
                "nf_first_bin": str(c.nf_first_bin),
                "delta": delta,
                "start": start,
                "seed": seed,
                "partitions": design.partitions,
                "iterations": design.iterations,
            },
            c.code,
        )
        for c in contestants
        for delta in (design.deltas if deltas is None else deltas)
        for start in starts
        for seed in range(design.seeds)
    }
    long = [cell for cell in cells.values() if cell.parameters["planner"] == TRIM.planner]
    short = [cell for cell in cells.values() if cell.parameters["planner"] != TRIM.planner]
    found: dict[str, CellResult] = {}
    for asked, per_task in ((short, CELLS_PER_TASK), (long, 1)):
        if asked:
            found |= run(asked, runs.packed, per_task)
    return dict(zip(cells, figures_of(list(cells.values()), found), strict=True))


def scores_of(
    found: Mapping[LandauRun, Mapping[str, Any]], reference: Sequence[str]
) -> dict[LandauRun, Score]:
    """The score of every run, CBS relative to the reference on the same stream."""
    streams: dict[tuple[int, str, int], dict[str, Mapping[str, Any]]] = {}
    for r, figures in found.items():
        streams.setdefault((r.delta, r.start, r.seed), {})[r.name] = figures
    scores = {}
    for (delta, start, seed), named in streams.items():
        counts = {name: figures["consumers"] for name, figures in named.items()}
        for name, score in cbs(counts, reference=reference).items():
            scores[LandauRun(name, delta, start, seed)] = Score(
                score.value, named[name]["e_rscore"]
            )
    return scores


def mean_scores(scores: Mapping[LandauRun, Score]) -> dict[tuple[str, int], Score]:
    """The means over all streams of a planner at a delta."""
    grouped: dict[tuple[str, int], list[Score]] = {}
    for r, score in scores.items():
        grouped.setdefault((r.name, r.delta), []).append(score)
    return {
        place: Score(fmean(s.cbs for s in each), fmean(s.e_rscore for s in each))
        for place, each in grouped.items()
    }


def by_planner(
    means: Mapping[tuple[str, int], Score], figure: Callable[[Score], float]
) -> dict[str, dict[str, float]]:
    """One figure by planner and delta."""
    table: dict[str, dict[str, float]] = {}
    for (name, delta), score in means.items():
        table.setdefault(name, {})[str(delta)] = _tidy(figure(score))
    return table


def over_seeds(
    found: Mapping[LandauRun, Mapping[str, Any]], name: str, delta: int
) -> dict[str, float]:
    """The other figures of a planner, as means over its streams at a delta."""
    each = [figures for r, figures in found.items() if (r.name, r.delta) == (name, delta)]
    named = ("mean_consumers", "moved_fraction", "utilisation", "overload")
    means = {figure: _tidy(fmean(figures[figure] for figures in each)) for figure in named}
    plans = sum(len(figures["consumers"]) for figures in each)
    return {**means, "plan_ms": _tidy(1e3 * sum(f["seconds"] for f in each) / plans)}


_Of = Mapping[str, Score]
ORDERINGS: Mapping[str, Callable[[_Of], bool]] = {
    "cbs bfd <= ffd <= 0.003": lambda s: s["bfd"].cbs <= s["ffd"].cbs <= 0.003,
    "cbs mbfp < mbf < mwf < nfd < nf": lambda s: _rising(
        s[p].cbs for p in ("mbfp", "mbf", "mwf", "nfd", "nf")
    ),
    "e_rscore mwf < mwfp < nfd": lambda s: _rising(s[p].e_rscore for p in ("mwf", "mwfp", "nfd")),
    "e_rscore mwf < mbf < mbfp < bfd": lambda s: _rising(
        s[p].e_rscore for p in ("mwf", "mbf", "mbfp", "bfd")
    ),
}
"""Orderings that must hold on every stream whose loads change."""

_GROWS = "e_rscore mwf grows with delta"


def broken_orderings(scores: Mapping[LandauRun, Score], seeds: int) -> dict[str, list[list[int]]]:
    """The streams, as (delta, seed), on which an ordering does not hold.

    An ordering that cannot be checked is taken to hold. The ordering of MWF over delta is reported
    with the delta up to which it grew.
    """
    broken: dict[str, list[list[int]]] = {what: [] for what in (*ORDERINGS, _GROWS)}
    moving = sorted({r.delta for r in scores if r.delta > 0})
    for delta, seed in product(moving, range(seeds)):
        here = {r.name: score for r, score in scores.items() if (r.delta, r.seed) == (delta, seed)}
        for what, holds in ORDERINGS.items():
            try:
                held = holds(here)
            except KeyError:  # a planner was not run
                continue
            if not held:
                broken[what].append([delta, seed])
    for seed in range(seeds):
        grown = [
            (delta, scores[r].e_rscore)
            for delta in moving
            if (r := LandauRun("mwf", delta, UNIFORM, seed)) in scores
        ]
        for (delta, low), (_, high) in pairwise(grown):
            if not low < high:
                broken[_GROWS].append([delta, seed])
    return broken


def _rising(values: Iterable[float]) -> bool:
    return all(low < high for low, high in pairwise(values))


def pareto_fronts(scores: Mapping[LandauRun, Score]) -> dict[str, Any]:
    """By delta: every planner's mean over starts and seeds, and the planners on the front."""
    means = mean_scores(scores)
    fronts = {}
    for delta in sorted({delta for _, delta in means}):
        points = {name: (*means[name, d],) for name, d in means if d == delta}
        fronts[str(delta)] = {
            "points": {name: [_tidy(x), _tidy(y)] for name, (x, y) in points.items()},
            "front": sorted(pareto_front({name: (x, y) for name, (x, y) in points.items()})),
        }
    return fronts


def saved_rscore(ours: Score, theirs: Score) -> float | None:
    """The fraction of their Rscore that we save; None if theirs is 0."""
    return 1 - ours.e_rscore / theirs.e_rscore if theirs.e_rscore else None


def dominated(
    means: Mapping[tuple[str, int], Score], ours: Sequence[Contestant], delta: int
) -> dict[str, list[str]]:
    """For each of our settings: the heuristics worse on one axis and no better on the other."""
    found = {}
    for c in ours:
        x, y = means[c.name, delta]
        found[c.name] = [
            p
            for p in TWELVE
            if (p, delta) in means
            and x <= means[p, delta].cbs
            and y <= means[p, delta].e_rscore
            and (x, y) != means[p, delta]
        ]
    return found


def _tidy(value: float) -> float:
    return float(f"{value:.6g}")
