"""The parts with a steady load: the workload itself, delays, service times, thresholds, load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, median
from typing import Any

from trimtab_lab.papers.grid import GridCell, code_version
from trimtab_lab.papers.part import Part, Runner, figures_of
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops import key_runs as runs
from trimtab_lab.papers.smalops import workload_runs
from trimtab_lab.papers.smalops.design import (
    HASH,
    ROUND_ROBIN,
    SMALOPS,
    TRIM,
    Figures,
    Found,
    SmalopsDesign,
    SmalopsRun,
    lower,
    over_seeds,
    ratios,
    simulated_runs,
)
from trimtab_lab.papers.verdict import VerdictRow, for_information

FOUR = (HASH, SMALOPS, TRIM, ROUND_ROBIN)
LITERAL_SHARE = 0.05
"""The largest key has 4.5 % of the records: with this share, read literally, no key is hot."""


def steady(
    design: SmalopsDesign,
    rates_s: Sequence[float],
    service_times_us: Sequence[float] = (50.0,),
    windows_s: Sequence[float] = (paper.DECISION_INTERVAL_S,),
) -> list[SmalopsRun]:
    """All combinations of these settings with the design's seeds and duration."""
    every = product(range(design.seeds), rates_s, service_times_us, windows_s)
    return [SmalopsRun("", *each, design.duration_s) for each in every]


def workload(design: SmalopsDesign, run: Runner) -> Part:
    """The generator: keys used, hot keys, tracked keys (section II of the paper)."""
    parameters = {
        "records": paper.RECORDS,
        "keys": paper.RECORDS,
        "duration_s": paper.WORKLOAD_S,
        "window_s": paper.DECISION_INTERVAL_S,
        "hot_count": paper.HOT_COUNT,
    }
    code = code_version([workload_runs.__name__])
    cells = [GridCell({**parameters, "seed": seed}, code) for seed in range(design.seeds)]
    each = figures_of(cells, run(cells, workload_runs.counted, 1))

    def mean(name: str) -> float:
        return fmean(figures[name] for figures in each)

    figures = {
        "tracked": [figures["tracked"] for figures in each],
        "tracked_in_two": [figures["tracked_in_two"] for figures in each],
        "hot_share": mean("hot_records") / mean("records"),
        "sketch_entries": mean("sketch_entries"),
        "sketch_hot": mean("sketch_hot"),
    }
    settings = {
        "seeds": design.seeds,
        **parameters,
        "records/s": round(paper.RECORDS / paper.WORKLOAD_S),
    }
    return Part(settings=settings, rows=tuple(_workload_rows(design, each)), figures=figures)


def _workload_rows(design: SmalopsDesign, each: Sequence[Figures]) -> list[VerdictRow]:
    def mean(name: str) -> float:
        return fmean(figures[name] for figures in each)

    tracked = {
        10.0: fmean(fmean(figures["tracked"]) for figures in each),
        20.0: fmean(fmean(figures["tracked_in_two"]) for figures in each),
    }
    return [
        design.near(
            "keys used", mean("used_keys"), paper.USED_KEYS_MODEL, published=paper.USED_KEYS
        ),
        design.near(
            "keys with 100 records or more over the whole run",
            mean("hot_keys"),
            paper.HOT_KEYS_MODEL,
            published=paper.HOT_KEYS,
        ),
        design.near(
            "records of these keys",
            mean("hot_records"),
            paper.HOT_RECORDS_MODEL,
            published=paper.HOT_RECORDS,
        ),
        *(
            design.near(
                f"keys tracked, windows of {length_s:g} s (paper: {_range(paper.TRACKED)})",
                tracked[length_s],
                known,
            )
            for length_s, known in paper.TRACKED_MODEL.items()
        ),
        design.near(
            "tracked part of the keys used, windows of 20 s, %",
            100 * tracked[20.0] / mean("used_keys"),
            paper.ModelFigure(*(100 * each for each in paper.TRACKED_SHARE_MODEL)),
            published=100 * paper.TRACKED_SHARE,
        ),
        *_first_shares(design, each),
    ]


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(f"{end:g}" for end in ends)


def _first_shares(design: SmalopsDesign, each: Sequence[Figures]) -> list[VerdictRow]:
    return [
        design.near(
            f"share of key {key}, %",
            100 * fmean(figures["first_shares"][key] for figures in each),
            paper.ModelFigure(100 * share, 100 * paper.FIRST_SHARES_TOLERANCE),
        )
        for key, share in enumerate(paper.FIRST_SHARES)
    ]


def delays(design: SmalopsDesign, run: Runner) -> Part:
    """Distribution of the queueing delay at 20 and 50 µs (figure 7)."""
    rate_s = design.rate(paper.UTILISATION_AT_73)
    found = simulated_runs(FOUR, steady(design, [rate_s], (20.0, 50.0)), run)

    def below(service_us: float) -> float:
        return lower(found, SMALOPS.name, HASH.name, service_us=service_us)

    p90 = fmean(ratios(found, SMALOPS.name, HASH.name, "p90_us", service_us=20.0))
    p50 = fmean(ratios(found, HASH.name, SMALOPS.name, "p50_us", service_us=50.0))
    at_50 = {"service_us": 50.0}
    rows = [
        design.near(
            "p99 of smalops below hash's at 50 µs",
            below(50.0),
            paper.P99_LOWER_MODEL[paper.UTILISATION_AT_73],
            published=paper.P99_LOWER[50.0],
        ),
        design.near(
            "p99 of smalops below hash's at 20 µs, the same rate",
            below(20.0),
            paper.P99_LOWER_AT_20_MODEL,
            published=paper.P99_LOWER[20.0],
        ),
        design.at_most(
            "p90 at 20 µs: distance of smalops from hash", paper.P90_AT_20_BAR, abs(p90 - 1)
        ),
        design.at_least("p50 at 50 µs: hash's by that of smalops", 1.0, p50),
        design.near(
            "imbalance of hash",
            over_seeds(found, HASH.name, "imbalance", **at_50),
            paper.HASH_IMBALANCE_MODEL,
        ),
        design.at_most(
            "imbalance of smalops",
            paper.SMALOPS_IMBALANCE_BAR,
            over_seeds(found, SMALOPS.name, "imbalance", **at_50),
        ),
        design.near(
            "keys tracked by smalops",
            over_seeds(found, SMALOPS.name, "tracked", **at_50),
            paper.TRACKED_AT_73_MODEL,
        ),
    ]
    figures = {
        "policies": {
            f"{us:g}": {one.name: summary(found, one.name, service_us=us) for one in FOUR}
            for us in (20.0, 50.0)
        },
        "probabilities": list(runs.PROBABILITIES),
        "quantiles_us": {
            f"{service_us:g}": {
                one.name: mean_quantiles(found, one.name, service_us=service_us) for one in FOUR
            }
            for service_us in (20.0, 50.0)
        },
    }
    settings = {**design.settings, "records/s": round(rate_s), "service_us": [20, 50]}
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def service_times(design: SmalopsDesign, run: Runner) -> Part:
    """The 99th percentile against the service time, at one rate (figure 8)."""
    rate_s = design.rate(paper.UTILISATION_AT_73)
    times = design.service_times_us
    found = simulated_runs(FOUR, steady(design, [rate_s], times), run)
    p99 = {
        one.name: [over_seeds(found, one.name, "p99_us", service_us=each) for each in times]
        for one in FOUR
    }
    rows = [
        design.at_most(
            f"p99 of smalops by hash's at {each:g} µs",
            paper.P99_OVER_HASH_BAR,
            fmean(ratios(found, SMALOPS.name, HASH.name, "p99_us", service_us=each)),
        )
        for each in times
    ]
    gaps = [high - low for high, low in zip(p99[HASH.name], p99[SMALOPS.name], strict=True)]
    rows.append(
        design.at_most(
            "service times with a wider gap between hash and smalops than the longest",
            0,
            sum(gap > gaps[-1] for gap in gaps),
        )
    )
    settings = {
        **design.settings,
        "records/s": round(rate_s),
        "service_us": list(map(round, times)),
    }
    figures = {"service_times_us": list(times), "p99_us": p99}
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def thresholds(design: SmalopsDesign, run: Runner) -> Part:
    """What counts as hot: the top keys that hold a share of all records (figure 9).

    With few keys the result depends on the two random choices of each: several draws are made.
    """
    rate_s = design.rate(paper.UTILISATION_AT_73)
    drawn = {
        coverage: [
            SMALOPS.with_options(
                f"coverage {coverage:.0%}, draw {draw}",
                threshold=f"coverage:{coverage}",
                first_plan=1000 * draw,
            )
            for draw in range(design.draws)
        ]
        for coverage in design.coverages
    }
    literal = SMALOPS.with_options("share 5 %", threshold=f"share:{LITERAL_SHARE}")
    contestants = [HASH, SMALOPS, literal, *(one for each in drawn.values() for one in each)]
    found = simulated_runs(contestants, steady(design, [rate_s]), run)
    by_draw = {
        figure: {
            c: [over_seeds(found, one.name, figure) for one in each] for c, each in drawn.items()
        }
        for figure in ("p99_us", "tracked", "imbalance", "migrations")
    }
    rows = _threshold_rows(design, found, by_draw["p99_us"])
    rows.append(
        design.at_most(
            "p99 with a share of 5% for each key: distance from hash",
            0,
            abs(lower(found, literal.name, HASH.name)),
        )
    )
    p99 = by_draw["p99_us"].values()
    figures = {
        "coverages": [*drawn],
        **{name: [median(each) for each in values.values()] for name, values in by_draw.items()},
        "p99_us of the best draw": [min(each) for each in p99],
        "p99_us of the worst draw": [max(each) for each in p99],
        "hash p99_us": over_seeds(found, HASH.name, "p99_us"),
        "count p99_us": over_seeds(found, SMALOPS.name, "p99_us"),
        "count tracked": over_seeds(found, SMALOPS.name, "tracked"),
    }
    settings = {
        **design.settings,
        "records/s": round(rate_s),
        "service_us": 50,
        "draws": design.draws,
    }
    del settings["threshold"]
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def _threshold_rows(
    design: SmalopsDesign, found: Found, p99: Mapping[float, Sequence[float]]
) -> list[VerdictRow]:
    hashed = over_seeds(found, HASH.name, "p99_us")
    below = {coverage: 1 - median(each) / hashed for coverage, each in p99.items()}
    rows = []
    for coverage, each in p99.items():
        what = f"p99 below hash's, top keys with {coverage:.0%} of the records"
        if coverage <= paper.SHARP_GAIN_AT:
            rows += [
                for_information(what, below[coverage]),
                for_information(
                    f"draws of {len(each)} that are worse than hash, top keys with {coverage:.0%}",
                    sum(value > hashed for value in each),
                ),
            ]
        if coverage == 0.2:
            rows.append(design.at_least(what, paper.GAIN_AT_20_BAR, below[coverage]))
    if {0.3, 0.5} <= p99.keys():
        flat = median(p99[0.3]) / median(p99[0.5])
        rows.append(
            design.at_most(
                "p99 with 30% of the records: distance from that with 50%",
                paper.FLAT_FROM_30_BAR,
                abs(flat - 1),
            )
        )
    return rows


def utilisation(design: SmalopsDesign, run: Runner) -> Part:
    """The gain as a function of the utilisation of hash's busiest partition."""
    rates = {each: design.rate(each) for each in design.utilisations}
    found = simulated_runs((HASH, SMALOPS, TRIM), steady(design, list(rates.values())), run)
    below = {
        one.name: [lower(found, one.name, HASH.name, rate_s=rate_s) for rate_s in rates.values()]
        for one in (SMALOPS, TRIM)
    }
    rows = [
        design.near(
            f"p99 of smalops below hash's at a utilisation of {each:g}",
            gain,
            paper.P99_LOWER_MODEL[each],
            published=paper.P99_LOWER[50.0] if each == paper.UTILISATION_AT_73 else None,
        )
        for each, gain in zip(rates, below[SMALOPS.name], strict=True)
    ]
    at = crossing(list(rates), below[SMALOPS.name], paper.P99_LOWER[20.0])
    rows.append(for_information("utilisation at which p99 is 57 % below hash's", at, model=0.90))
    figures = {
        "utilisations": [*rates],
        "rates_s": [*rates.values()],
        "below": below,
        "p99_us": {
            one.name: [over_seeds(found, one.name, "p99_us", rate_s=r) for r in rates.values()]
            for one in (HASH, SMALOPS, TRIM)
        },
    }
    settings = {**design.settings, "service_us": 50}
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def crossing(at: Sequence[float], values: Sequence[float], level: float) -> float | None:
    """Where a rising line through the points reaches a level; None if it does not.

    >>> crossing([0.8, 0.9], [0.35, 0.55], 0.45)
    0.85
    """
    for (x, y), (u, v) in zip(zip(at, values), zip(at[1:], values[1:]), strict=False):  # noqa: B905
        if y <= level <= v and v > y:
            return round(x + (u - x) * (level - y) / (v - y), 6)
    return None


def summary(found: Found, name: str, **setting: Any) -> dict[str, float]:
    """The means over seeds of the figures in a table of policies."""
    return {figure: over_seeds(found, name, figure, **setting) for figure in runs.SUMMARY}


def mean_quantiles(found: Found, name: str, **setting: Any) -> list[float]:
    """The mean over seeds of each quantile."""
    return [
        fmean(values)
        for values in zip(
            *(
                figures["quantiles_us"]
                for r, figures in found.items()
                if r.name == name and all(getattr(r, key) == it for key, it in setting.items())
            ),
            strict=True,
        )
    ]
