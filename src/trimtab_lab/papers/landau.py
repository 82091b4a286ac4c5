"""Landau et al.: the tables and figures of their paper, and comparisons beyond it.

One function per part: it defines the cells to run and compares the figures with the paper's.
CBS is always relative to the paper's twelve heuristics, whichever other planners take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import Any, NamedTuple

from trimtab.evaluate.rscore import TWELVE, cbs, pareto_front
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import FirstBin, PackingPlanner
from trimtab.plan.registry import planner_of
from trimtab_lab.papers import packing_runs as runs
from trimtab_lab.papers.grid import Finished, GridCell, code_version
from trimtab_lab.papers.part import Part, Runner, figures_of
from trimtab_lab.papers.published import landau as paper
from trimtab_lab.papers.verdict import VerdictRow, at_least, at_most, beats, for_information, near

NAME = "landau"
UNIFORM = "uniform"
STARTS = (UNIFORM, "0", "0.5", "1")
RIVALS = ("kafka-range", "kafka-round-robin", "kafka-sticky")
SLACKS = (0.03,)
KAFKA_AT = (15, 24, 30)
CELLS_PER_TASK = 6
"""A cell takes about half a second, a task about 0.15 s more; cells of trim take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A planner with its options; one with a fixed group size gets as many members as `bfd`."""

    name: str
    planner: str
    slack: float = 0.0
    nf_first_bin: FirstBin = FirstBin.ZERO

    @classmethod
    def of(cls, planner: str) -> Contestant:
        """Returns the planner with the options of the published comparison."""
        return cls(name=planner, planner=planner)

    @property
    def code(self) -> str:
        """The version of all code that its figures depend on."""
        planner = planner_of(Layer.CONSUMERS, self.planner)
        counted = [planner_of(Layer.CONSUMERS, "bfd")] if "members" in planner.reads else []
        return code_version([runs.__name__, *map(_module_of, (planner, *counted))])


def _module_of(planner: PackingPlanner) -> str:
    rule = planner.rule
    return str((rule.func if isinstance(rule, partial) else rule).__module__)


_STICKY_NFD = Contestant(name="nfd sticky", planner="nfd", nf_first_bin=FirstBin.STICKY)
_TRIM = Contestant.of("trim")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandauDesign:
    """The parameters of the experiment; the defaults are those of the published comparison."""

    seeds: int = 3
    iterations: int = 500
    partitions: int = 200
    deltas: tuple[int, ...] = paper.DELTAS
    starts: tuple[str, ...] = STARTS
    planners: tuple[str, ...] = TWELVE
    slacks: tuple[float, ...] = SLACKS
    streams: int = 10  # for the latencies
    reference: tuple[str, ...] = TWELVE

    @property
    def moving(self) -> tuple[int, ...]:
        """The deltas at which loads change."""
        return tuple(delta for delta in self.deltas if delta > 0)

    @property
    def comparable(self) -> bool:
        """Whether the published figures are for these parameters; seeds only add precision."""
        return (self.partitions, self.iterations) == (200, 500)

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters by name."""
        return {
            "seeds": self.seeds,
            "iterations": self.iterations,
            "partitions": self.partitions,
            "capacity": runs.CAPACITY,
            "deltas": list(self.deltas),
        }

    def near(
        self, what: str, known: float, ours: float | None, tolerance: float | None
    ) -> VerdictRow:
        """Compares a figure with the paper's; without verdict if the parameters differ."""
        if ours is None or tolerance is None or not self.comparable:
            return for_information(what, ours, paper=known)
        return near(what, ours, paper=known, tolerance=tolerance)

    def none(self, what: str, broken: int) -> VerdictRow:
        """How often a property shown in the paper does not hold; verdict as in `near`."""
        return at_most(what, 0, broken) if self.comparable else for_information(what, broken, bar=0)


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


def tables(design: LandauDesign, run: Runner) -> Part:
    """CBS and E[Rscore] of the twelve, the orderings of every seed, the Pareto front."""
    found = _packed([Contestant.of(p) for p in design.reference], design, design.starts, run)
    scores = _scores(found, design.reference)
    uniform = {r: score for r, score in scores.items() if r.start == UNIFORM}
    means = _means(uniform)
    front = _fronts(scores)
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
    broken = _broken_orderings(uniform, design.seeds)
    rows += [design.none(f"orderings broken: {what}", len(at)) for what, at in broken.items()]
    if set(design.reference) == set(TWELVE) and set(design.starts) >= set(STARTS):
        rows += _front_rows(front, design)
    figures = {
        "cbs": _by_planner(means, lambda score: score.cbs),
        "e_rscore": _by_planner(means, lambda score: score.e_rscore),
        "seeds": [[*r, *score] for r, score in sorted(uniform.items())],
        "orderings broken": broken,
        "front": front,
    }
    settings = {**design.settings, "starts": list(design.starts)}
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def headline(design: LandauDesign, run: Runner) -> Part:
    """The percentages of the paper's conclusions, each with its baseline."""
    contestants = [*(Contestant.of(p) for p in design.reference), _STICKY_NFD]
    found = _packed(contestants, design, (UNIFORM,), run, deltas=tuple(paper.HEADLINE))
    means = _means(_scores(found, design.reference))
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
        for baseline in ("nfd", "bfd", _STICKY_NFD.name):
            saved = _below(mwf, means[baseline, delta])
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
    ours = [_TRIM, *settings]
    others = [Contestant.of(p) for p in (*design.reference, *RIVALS)]
    deltas = design.moving
    found = _packed([*ours, *others], design, (UNIFORM,), run, deltas=deltas)
    means = _means(_scores(found, design.reference))
    rows = [*_objective_a(found, means, deltas), *_objective_b(means, settings, deltas)]
    rows += _objective_c(means, deltas)
    figures = {
        "planners": {
            str(delta): {
                c.name: {
                    "cbs": means[c.name, delta].cbs,
                    "e_rscore": means[c.name, delta].e_rscore,
                    **_over_seeds(found, c.name, delta),
                }
                for c in (*ours, *others)
            }
            for delta in deltas
        },
        "dominated": {str(delta): _dominated(means, ours, delta) for delta in deltas},
    }
    conditions = {**design.settings, "deltas": list(deltas), "start": UNIFORM}
    return Part(settings=conditions, rows=tuple(rows), figures=figures)


PARTS: Mapping[str, Callable[[LandauDesign, Runner], Part]] = {
    "tables": tables,
    "headline": headline,
    "latency": latency,
    "beyond": beyond,
}


# ---------------------------------------------------------------- runs and their scores


def _packed(
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
    long = [cell for cell in cells.values() if cell.parameters["planner"] == _TRIM.planner]
    short = [cell for cell in cells.values() if cell.parameters["planner"] != _TRIM.planner]
    found: dict[str, Finished] = {}
    for asked, per_task in ((short, CELLS_PER_TASK), (long, 1)):
        if asked:
            found |= run(asked, runs.packed, per_task)
    return dict(zip(cells, figures_of(list(cells.values()), found), strict=True))


def _scores(
    found: Mapping[LandauRun, Mapping[str, Any]], reference: Sequence[str]
) -> dict[LandauRun, Score]:
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


def _means(scores: Mapping[LandauRun, Score]) -> dict[tuple[str, int], Score]:
    """The means over all streams of a planner at a delta."""
    grouped: dict[tuple[str, int], list[Score]] = {}
    for r, score in scores.items():
        grouped.setdefault((r.name, r.delta), []).append(score)
    return {
        place: Score(fmean(s.cbs for s in each), fmean(s.e_rscore for s in each))
        for place, each in grouped.items()
    }


def _by_planner(
    means: Mapping[tuple[str, int], Score], figure: Callable[[Score], float]
) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for (name, delta), score in means.items():
        table.setdefault(name, {})[str(delta)] = _tidy(figure(score))
    return table


def _over_seeds(
    found: Mapping[LandauRun, Mapping[str, Any]], name: str, delta: int
) -> dict[str, float]:
    each = [figures for r, figures in found.items() if (r.name, r.delta) == (name, delta)]
    named = ("mean_consumers", "moved_fraction", "utilisation", "overload")
    means = {figure: _tidy(fmean(figures[figure] for figures in each)) for figure in named}
    plans = sum(len(figures["consumers"]) for figures in each)
    return {**means, "plan_ms": _tidy(1e3 * sum(f["seconds"] for f in each) / plans)}


# ---------------------------------------------------------------- orderings and fronts

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


def _broken_orderings(scores: Mapping[LandauRun, Score], seeds: int) -> dict[str, list[list[int]]]:
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


def _fronts(scores: Mapping[LandauRun, Score]) -> dict[str, Any]:
    """By delta: every planner's mean over starts and seeds, and the planners on the front."""
    means = _means(scores)
    fronts = {}
    for delta in sorted({delta for _, delta in means}):
        points = {name: (*means[name, d],) for name, d in means if d == delta}
        fronts[str(delta)] = {
            "points": {name: [_tidy(x), _tidy(y)] for name, (x, y) in points.items()},
            "front": sorted(pareto_front({name: (x, y) for name, (x, y) in points.items()})),
        }
    return fronts


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
            if (r.name, r.delta) == (_TRIM.name, delta):
                bfd = found[r._replace(name="bfd")]["consumers"]
                more += sum(z > m for z, m in zip(figures["consumers"], bfd, strict=True))
        less = _below(means[_TRIM.name, delta], means["bfd", delta])
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
        less = _below(ours, mwf)
        rows += [
            beats(f"(b) cbs {c.name} d={delta}", 0.02, ours.cbs, lower=True),
            _saves(f"(b) e_rscore {c.name} below mwf's d={delta}", 0.02, less),
        ]
    return rows


def _objective_c(means: Mapping[tuple[str, int], Score], deltas: Sequence[int]) -> list[VerdictRow]:
    rows = []
    for delta in deltas:
        ours, mwf = means[_TRIM.name, delta], means["mwf", delta]
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


def _below(ours: Score, theirs: Score) -> float | None:
    """The fraction of their Rscore that we save; None if theirs is 0."""
    return 1 - ours.e_rscore / theirs.e_rscore if theirs.e_rscore else None


def _saves(what: str, bar: float, part: float | None) -> VerdictRow:
    return (
        for_information(what, None, bar=bar)
        if part is None
        else beats(what, bar, part, lower=False)
    )


def _dominated(
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
