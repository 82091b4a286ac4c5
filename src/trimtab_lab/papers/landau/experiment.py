"""Landau et al.: the tables and figures of their paper, and comparisons beyond it.

One function per part: it defines the cells to run and compares the figures with the paper's.
CBS is always relative to the paper's twelve heuristics, whichever other planners take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from trimtab.evaluate.rscore import TWELVE
from trimtab_lab.papers.grid import GridCell, code_version
from trimtab_lab.papers.landau import packing_runs as runs
from trimtab_lab.papers.landau.design import (
    CELLS_PER_TASK,
    RIVALS,
    STARTS,
    STICKY_NFD,
    TRIM,
    UNIFORM,
    Contestant,
    LandauDesign,
)
from trimtab_lab.papers.landau.scores import (
    LandauRun,
    Score,
    broken_orderings,
    by_planner,
    dominated,
    mean_scores,
    over_seeds,
    packed_runs,
    pareto_fronts,
    saved_rscore,
    scores_of,
)
from trimtab_lab.papers.part import Part, Runner, figures_of
from trimtab_lab.papers.published import landau as paper
from trimtab_lab.papers.verdict import VerdictRow, at_least, at_most, beats, for_information

KAFKA_AT = (15, 24, 30)


def tables(design: LandauDesign, run: Runner) -> Part:
    """CBS and E[Rscore] of the twelve, the orderings of every seed, the Pareto front."""
    found = packed_runs([Contestant.of(p) for p in design.reference], design, design.starts, run)
    scores = scores_of(found, design.reference)
    uniform = {r: score for r, score in scores.items() if r.start == UNIFORM}
    means = mean_scores(uniform)
    front = pareto_fronts(scores)
    rows = []
    for planner, delta in product(design.planners, design.deltas):
        mean = means[planner, delta]
        if (known := paper.published(paper.CBS, planner, delta)) is not None:
            tolerance = paper.cbs_tolerance(planner, delta)
            rows.append(design.near(f"cbs {planner} d={delta}", known, mean.cbs, tolerance))
        if (known := paper.published(paper.E_RSCORE, planner, delta)) is not None:
            tolerance = paper.rscore_tolerance(planner, delta)
            what = f"e_rscore {planner} d={delta}"
            rows.append(design.near(what, known, mean.e_rscore, tolerance))
    broken = broken_orderings(uniform, design.seeds)
    rows += [design.none(f"orderings broken: {what}", len(at)) for what, at in broken.items()]
    if set(design.reference) == set(TWELVE) and set(design.starts) >= set(STARTS):
        rows += _front_rows(front, design)
    figures = {
        "cbs": by_planner(means, lambda score: score.cbs),
        "e_rscore": by_planner(means, lambda score: score.e_rscore),
        "seeds": [[*r, *score] for r, score in sorted(uniform.items())],
        "orderings broken": broken,
        "front": front,
    }
    settings = {**design.settings, "starts": list(design.starts)}
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def headline(design: LandauDesign, run: Runner) -> Part:
    """The percentages of the paper's conclusions, each with its baseline."""
    contestants = [*(Contestant.of(p) for p in design.reference), STICKY_NFD]
    found = packed_runs(contestants, design, (UNIFORM,), run, deltas=tuple(paper.HEADLINE))
    means = mean_scores(scores_of(found, design.reference))
    rows = []
    for delta, (more, less) in paper.HEADLINE.items():
        mwf = means["mwf", delta]
        part = paper.relative_tolerance(delta)
        rows.append(
            design.near(
                f"mwf's consumers above bfd's d={delta}",
                more,
                mwf.cbs,
                paper.cbs_tolerance("mwf", delta),
            )
        )
        for baseline in ("nfd", "bfd", STICKY_NFD.name):
            saved = saved_rscore(mwf, means[baseline, delta])
            compared_with = baseline.replace("nfd sticky", "nfd as eq. 14 has it")
            what = f"mwf's e_rscore below that of {compared_with} d={delta}"
            if baseline == "nfd":
                # Each of the two figures may differ by its own tolerance.
                rows.append(design.near(what, less, saved, 2 * part * (1 - less)))
            elif baseline == "bfd":
                figures = [paper.published(paper.E_RSCORE, p, delta) for p in ("mwf", "bfd")]
                known = 1 - (figures[0] or 0) / (figures[1] or 1)
                rows.append(design.near(what, known, saved, 2 * part * (1 - known)))
            else:
                rows.append(for_information(what, saved))
    settings = {**design.settings, "deltas": list(paper.HEADLINE), "start": UNIFORM}
    return Part(settings=settings, rows=tuple(rows), figures={})


def latency(design: LandauDesign, run: Runner) -> Part:
    """How long bytes wait with each planner, and with Kafka's default (section VI-C).

    Uses its own parameters: 32 partitions, 100 iterations, delta 5.
    """
    seeds, partitions, iterations, delta = range(design.streams), 32, 100, 5
    names = (*TWELVE, runs.KAFKA)
    cells = {
        (name, seed): GridCell(
            {
                "planner": name,
                "delta": delta,
                "start": UNIFORM,
                "seed": seed,
                "partitions": partitions,
                "iterations": iterations,
            },
            code_version([runs.__name__]) if name == runs.KAFKA else Contestant.of(name).code,
        )
        for name in names
        for seed in seeds
    }
    found = run(list(cells.values()), runs.delayed, 2 * CELLS_PER_TASK)
    each = dict(zip(cells, figures_of(list(cells.values()), found), strict=True))
    kafka = {seed: each[runs.KAFKA, seed] for seed in seeds}
    rows = _latency_rows(each, kafka, seeds)
    seed = 0
    count = round(each["mwf", seed]["mean_consumers"])
    shown = {name: each[name, seed] for name in ("mwf", "bfd", "nfd")} | {
        f"kd_{n}": kafka[seed][str(n)] for n in sorted({count, *KAFKA_AT, partitions})
    }
    figures = {
        "latencies": shown,
        "edges_s": list(runs.LATENCY_EDGES_S),
        "planners": {
            name: {
                "p90_s": [each[name, s]["p90_s"] for s in seeds],
                "waiting": [each[name, s]["positive"] / each[name, s]["samples"] for s in seeds],
                "consumers": [each[name, s]["mean_consumers"] for s in seeds],
            }
            for name in TWELVE
        },
        "kafka p90_s": {n: [kafka[s][n]["p90_s"] for s in seeds] for n in kafka[seed]},
    }
    settings = {
        "seeds": len(seeds),
        "partitions": partitions,
        "iterations": iterations,
        "delta": delta,
        "capacity ratio": runs.CAPACITY_RATIO,
    }
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def beyond(design: LandauDesign, run: Runner) -> Part:
    """The objectives beyond the paper: `trim`, with and without slack, and all other planners."""
    settings = [
        Contestant(name=f"trim slack {slack:g}", planner="trim", slack=slack)
        for slack in design.slacks
    ]
    ours = [TRIM, *settings]
    others = [Contestant.of(p) for p in (*design.reference, *RIVALS)]
    deltas = design.moving
    found = packed_runs([*ours, *others], design, (UNIFORM,), run, deltas=deltas)
    means = mean_scores(scores_of(found, design.reference))
    rows = [*_objective_a(found, means, deltas), *_objective_b(means, settings, deltas)]
    rows += _objective_c(means, deltas)
    figures = {
        "planners": {
            str(delta): {
                c.name: {
                    "cbs": means[c.name, delta].cbs,
                    "e_rscore": means[c.name, delta].e_rscore,
                    **over_seeds(found, c.name, delta),
                }
                for c in (*ours, *others)
            }
            for delta in deltas
        },
        "dominated": {str(delta): dominated(means, ours, delta) for delta in deltas},
    }
    conditions = {**design.settings, "deltas": list(deltas), "start": UNIFORM}
    return Part(settings=conditions, rows=tuple(rows), figures=figures)


PARTS: Mapping[str, Callable[[LandauDesign, Runner], Part]] = {
    "tables": tables,
    "headline": headline,
    "latency": latency,
    "beyond": beyond,
}


def _front_rows(front: Mapping[str, Any], design: LandauDesign) -> list[VerdictRow]:
    rows = []
    for delta, found in front.items():
        if int(delta) > 0:
            on = set(found["front"])
            missing, wrong = paper.ON_THE_FRONT - on, paper.NEVER_ON_THE_FRONT & on
            rows += [
                design.none(
                    _listed(f"on the paper's front, not on ours d={delta}", missing), len(missing)
                ),
                design.none(
                    _listed(f"on our front, never on the paper's d={delta}", wrong), len(wrong)
                ),
            ]
    return rows


def _listed(what: str, names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"{what}: {listed}" if listed else what


# ---------------------------------------------------------------- latency


def _latency_rows(
    each: Mapping[tuple[str, int], Mapping[str, Any]],
    kafka: Mapping[int, Mapping[str, Any]],
    seeds: Iterable[int],
) -> list[VerdictRow]:
    seeds = list(seeds)
    late = {s: [kafka[s][n]["p90_s"] or 0.0 for n in kafka[s]] for s in seeds}
    times, helped = [], []
    for s in seeds:
        count = str(round(each["mwf", s]["mean_consumers"]))
        times.append((kafka[s][count]["p90_s"] or 0.0) / each["mwf", s]["p90_s"])
        helped.append(any(more > fewer for fewer, more in pairwise(late[s])))
    waiting = max(each["mwf", s]["positive"] / each["bfd", s]["positive"] for s in seeds)
    rows = [
        at_most("bytes that wait, mwf's by bfd's, the worst stream", 0.40, waiting),
        at_least(
            "streams of ten on which Kafka with mwf's consumers is 20 times later",
            9,
            sum(t >= 20 for t in times) * 10 / len(seeds),
        ),
        at_least(
            "streams of ten on which one more consumer makes Kafka later",
            10,
            sum(helped) * 10 / len(seeds),
        ),
        for_information(
            "mean consumers mwf",
            fmean(each["mwf", s]["mean_consumers"] for s in seeds),
            paper=paper.MWF_CONSUMERS,
        ),
    ]
    rows += [
        for_information(
            f"p90_s kd_{n}, first stream",
            kafka[seeds[0]][str(n)]["p90_s"],
            paper=paper.LATENCY_P90_S[f"kd_{n}"],
        )
        for n in KAFKA_AT
    ]
    return rows


# ---------------------------------------------------------------- objectives


def _objective_a(
    found: Mapping[LandauRun, Mapping[str, Any]],
    means: Mapping[tuple[str, int], Score],
    deltas: Sequence[int],
) -> list[VerdictRow]:
    rows, saved = [], []
    for delta in deltas:
        more = 0
        for r, figures in found.items():
            if (r.name, r.delta) == (TRIM.name, delta):
                bfd = found[r._replace(name="bfd")]["consumers"]
                more += sum(z > m for z, m in zip(figures["consumers"], bfd, strict=True))
        less = saved_rscore(means[TRIM.name, delta], means["bfd", delta])
        saved.append(less)
        rows += [
            at_most(f"(a) plans of trim with more consumers than bfd d={delta}", 0, more),
            _saves(f"(a) trim's e_rscore below bfd's d={delta}", 0.35, less),
        ]
    if known := [less for less in saved if less is not None]:
        rows.append(_saves("(a) the same, mean over delta", 0.42, fmean(known)))
    return rows


def _objective_b(
    means: Mapping[tuple[str, int], Score], settings: Sequence[Contestant], deltas: Sequence[int]
) -> list[VerdictRow]:
    rows = []
    for c, delta in product(settings, deltas):
        ours, mwf = means[c.name, delta], means["mwf", delta]
        less = saved_rscore(ours, mwf)
        rows += [
            beats(f"(b) cbs {c.name} d={delta}", 0.02, ours.cbs, lower=True),
            _saves(f"(b) e_rscore {c.name} below mwf's d={delta}", 0.02, less),
        ]
    return rows


def _objective_c(means: Mapping[tuple[str, int], Score], deltas: Sequence[int]) -> list[VerdictRow]:
    rows = []
    for delta in deltas:
        ours, mwf = means[TRIM.name, delta], means["mwf", delta]
        rows += [
            beats(f"(c) cbs trim d={delta}", 0.0, ours.cbs, lower=True),
            beats(
                f"(c) e_rscore trim against mwf's d={delta}",
                mwf.e_rscore,
                ours.e_rscore,
                lower=True,
            ),
        ]
    return rows


def _saves(what: str, bar: float, part: float | None) -> VerdictRow:
    return (
        for_information(what, None, bar=bar)
        if part is None
        else beats(what, bar, part, lower=False)
    )
