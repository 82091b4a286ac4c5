"""The parts in which the keys shift every minute, the table of rivals, and the bars of `trim`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean, median
from typing import Any

from trimtab_lab.papers.part import Part, Runner
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops import key_runs as runs
from trimtab_lab.papers.smalops.design import (
    HASH,
    SMALOPS,
    TRIM,
    Figures,
    Found,
    KeyContestant,
    SmalopsDesign,
    SmalopsRun,
    over_seeds,
    ratios,
    simulated_runs,
)
from trimtab_lab.papers.smalops.rival_list import RIVALS, SETTINGS
from trimtab_lab.papers.smalops.steady_parts import steady, summary
from trimtab_lab.papers.verdict import VerdictRow, for_information

_SHIFTED = (HASH, SMALOPS, TRIM)


def shifted(
    design: SmalopsDesign,
    *,
    service_us: float = paper.SHIFTING_SERVICE_US,
    windows_s: Sequence[float] = (paper.DECISION_INTERVAL_S,),
) -> list[SmalopsRun]:
    """Runs in which the keys shift, four times as long as steady ones."""
    rate_s = paper.SHIFTING_UTILISATION * paper.PARTITIONS / (service_us * 1e-6)
    every = product(range(design.seeds), [rate_s], [service_us], windows_s)
    return [
        SmalopsRun("", *each, 4 * design.duration_s, shift)
        for each, shift in product(every, design.shifts)
    ]


def shifting(design: SmalopsDesign, run: Runner) -> Part:
    """Keys that shift every minute (figure 10), judged without 20 s after each shift."""
    found = simulated_runs(_SHIFTED, shifted(design), run)
    rows = [row for shift in design.shifts for row in _shift_rows(design, found, shift)]
    figures = {
        str(shift): {
            one.name: {
                **summary(found, one.name, shift=shift),
                "minutes_p99_us": _minutes(found, one.name, shift),
                "windows": found[_first(found, one.name, shift)]["windows"],
            }
            for one in _SHIFTED
        }
        for shift in design.shifts
    }
    settings = {
        **design.settings,
        "duration_s": round(4 * design.duration_s),
        "service_us": round(paper.SHIFTING_SERVICE_US),
        "utilisation": paper.SHIFTING_UTILISATION,
        "shifts": list(design.shifts),
    }
    return Part(settings=settings, rows=tuple(rows), figures={"shifts": figures})


def _shift_rows(design: SmalopsDesign, found: Found, shift: int) -> list[VerdictRow]:
    ours, theirs = (_minutes(found, one.name, shift) for one in (SMALOPS, HASH))
    ratio = [low / high for low, high in zip(ours, theirs, strict=True)]
    name = f"shift {shift}"
    rows = [
        design.at_most(
            f"{name}: minutes in which smalops' p99 is not below hash's",
            0,
            sum(each >= 1 for each in ratio),
        )
    ]
    if shift in paper.SHIFTED_P99_LOWER_BAR:
        least, most = paper.SHIFTED_P99_LOWER_BAR[shift]
        rows += [
            design.at_least(f"{name}: fall of p99 in the worst minute", least, 1 - max(ratio)),
            design.at_most(f"{name}: fall of p99 in the best minute", most, 1 - min(ratio)),
        ]
    whole = fmean(ratios(found, SMALOPS.name, HASH.name, "p99_us", shift=shift))
    rows += [
        design.at_most(
            f"{name}: smalops' p99 of a minute, largest distance from the median of all",
            paper.SAME_IN_ALL_MINUTES_BAR,
            max(abs(minute / median(ours) - 1) for minute in ours),
        ),
        for_information(f"{name}: p99 of smalops by hash's, worst minute", max(ratio)),
        for_information(f"{name}: p99 of smalops by hash's, whole run", whole),
    ]
    return rows


def _minutes(found: Found, name: str, shift: int) -> list[float]:
    """The settled p99 of each minute, mean over seeds."""
    each = [
        figures["minutes_p99_us"]
        for r, figures in found.items()
        if (r.name, r.shift) == (name, shift)
    ]
    return [fmean(minute) for minute in zip(*each, strict=True)]


def _first(found: Found, name: str, shift: int) -> SmalopsRun:
    return next(r for r in found if (r.name, r.seed, r.shift) == (name, 0, shift))


def rivals(design: SmalopsDesign, run: Runner) -> Part:
    """All policies on the same arrivals, steady and shifting."""
    loads = {"steady": steady(design, [design.rate(paper.UTILISATION_AT_73)])}
    for shift in design.shifts:
        asked = [r for r in shifted(design, service_us=50.0) if r.shift == shift]
        loads[f"shift {shift}"] = asked
    tables, bounds, rows = {}, {}, []
    for name, asked in loads.items():
        found = simulated_runs([each.contestant for each in RIVALS], asked, run)
        tables[name] = {
            each.contestant.name: summary(found, each.contestant.name) for each in RIVALS
        }
        bounds[name] = over_seeds(found, HASH.name, "imbalance_bound")
        better = ahead_of_trim(tables[name])
        listed = f": {', '.join(better)}" if better else ""
        what = f"{name}: policies with whole keys, a lower p99 and no more migrations than trim"
        rows.append(design.at_most(what + listed, 0, len(better)))
    figures = {
        "loads": tables,
        "least imbalance": bounds,
        "whole keys": {each.contestant.name: each.whole_keys for each in RIVALS},
        "gives up": {each.contestant.name: each.gives_up for each in RIVALS},
        "chosen": {each.contestant.name: each.chosen for each in RIVALS},
    }
    settings = {
        **design.settings,
        "duration_s": f"{design.duration_s:g} (steady), {4 * design.duration_s:g} (shifting)",
        "service_us": 50,
        "utilisation": f"{paper.UTILISATION_AT_73:g} of hash's busiest partition (steady), "
        f"{paper.SHIFTING_UTILISATION:g} on average (shifting)",
    }
    return Part(settings=settings, rows=tuple(rows), figures=figures)


def ahead_of_trim(policies: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The policies that keep keys whole and beat `trim` in delays and in migrations."""
    trim = policies[TRIM.name]
    return [
        name
        for name in (each.contestant.name for each in RIVALS if each.whole_keys)
        if policies[name]["p99_us"] < trim["p99_us"]
        and policies[name]["migrations"] <= trim["migrations"]
    ]


def ours(design: SmalopsDesign, run: Runner) -> Part:
    """The bars of `trim`: as good as SMALOPS with far fewer migrations, steady and shifting."""
    windows_s = design.our_windows_s
    rate_s = design.rate(paper.UTILISATION_AT_73)
    at_rest = simulated_runs(
        (HASH, SMALOPS, TRIM), steady(design, [rate_s], windows_s=windows_s), run
    )
    rows = [row for w in windows_s if w == 10.0 for row in _steady_rows(design, at_rest, w)]
    moving: dict[SmalopsRun, Figures] = {}
    for window_s in windows_s:
        settings = [HASH, TRIM, *SETTINGS[window_s]]
        moving |= simulated_runs(settings, shifted(design, windows_s=(window_s,)), run)
    for window_s, shift in product(windows_s, design.shifts):
        rows += _moving_rows(design, moving, window_s, shift)
    for shift in design.shifts:
        shorter, longer = (
            over_seeds(moving, TRIM.name, "p99_us", window_s=w, shift=shift) for w in windows_s
        )
        rows.append(
            for_information(
                f"shift {shift}: trim's p99 with windows of 1 s by that with 10 s, whole run",
                shorter / longer,
            )
        )
    figures = {
        "steady": {
            f"{w:g}": {one.name: summary(at_rest, one.name, window_s=w) for one in _SHIFTED}
            for w in windows_s
        },
        "shifting": {
            f"{w:g}": {
                str(shift): {
                    one.name: summary(moving, one.name, window_s=w, shift=shift)
                    for one in (HASH, TRIM, *SETTINGS[w])
                }
                for shift in design.shifts
            }
            for w in windows_s
        },
        "worse windows": {
            f"{w:g}": {str(shift): all_worse_windows(moving, w, shift) for shift in design.shifts}
            for w in windows_s
        },
    }
    conditions = {
        **design.settings,
        "window_s": [round(each) for each in windows_s],
        "steady": f"50 µs, {rate_s:.0f} records/s",
        "shifting": f"{paper.SHIFTING_SERVICE_US:g} µs, utilisation "
        f"{paper.SHIFTING_UTILISATION:g}, {4 * design.duration_s:g} s",
    }
    return Part(settings=conditions, rows=tuple(rows), figures=figures)


def _steady_rows(design: SmalopsDesign, found: Found, window_s: float) -> list[VerdictRow]:
    at = {"window_s": window_s}

    def mean(name: str, figure: str) -> float:
        return over_seeds(found, name, figure, **at)

    def fewer(figure: str) -> float:
        return mean(SMALOPS.name, figure) / max(mean(TRIM.name, figure), 1.0)

    worse = [w for r in found if r.name == TRIM.name for w in worse_windows(found, r)]
    return [
        design.at_most(
            "steady: imbalance of trim by that of smalops",
            1.0,
            mean(TRIM.name, "imbalance") / mean(SMALOPS.name, "imbalance"),
        ),
        design.at_most(
            "steady: p99 of trim by that of smalops",
            paper.STEADY_P99_OVER_SMALOPS_BAR,
            fmean(ratios(found, TRIM.name, SMALOPS.name, "p99_us", **at)),
        ),
        design.at_least(
            "steady: migrations, smalops' by trim's", paper.STEADY_FEWER_BAR, fewer("migrations")
        ),
        design.at_least(
            "steady: tracked keys, smalops' by trim's", paper.STEADY_FEWER_BAR, fewer("tracked")
        ),
        design.at_most(
            "steady: windows after the first in which trim is worse than hash", 0, len(worse)
        ),
    ]


def _moving_rows(
    design: SmalopsDesign, found: Found, window_s: float, shift: int
) -> list[VerdictRow]:
    at = {"window_s": window_s, "shift": shift}
    # Windows of 10 s are judged without the first one after each shift, whose plan is outdated.
    judged = "p99_us" if window_s < paper.DECISION_INTERVAL_S else "p99_without_first_us"
    name = f"shift {shift}, windows of {window_s:g} s"
    best = best_setting(found, SETTINGS[window_s], judged, at)
    many, few = (over_seeds(found, each, "migrations", **at) for each in (best, TRIM.name))
    worse = all_worse_windows(found, window_s, shift)
    rows = [
        design.at_most(
            f"{name}: p99 of trim by that of the best setting, {best}",
            paper.SHIFTING_P99_OVER_BEST_BAR,
            fmean(ratios(found, TRIM.name, best, judged, **at)),
        ),
        design.at_least(
            f"{name}: migrations, those of {best} by trim's",
            paper.SHIFTING_FEWER_BAR,
            many / max(few, 1.0),
        ),
        design.at_most(
            f"{name}: windows in which trim is worse than hash, first after a shift left out",
            0,
            len(worse),
        ),
    ]
    if judged != "p99_us":
        whole = fmean(ratios(found, TRIM.name, best, "p99_us", **at))
        rows.append(for_information(f"{name}: p99 of trim by that of {best}, whole run", whole))
    rows += [
        for_information(
            f"{name}: p99 of {each} by hash's, worst first window after a shift",
            worst_first_window(found, each, window_s, shift),
        )
        for each in (TRIM.name, SMALOPS.name)
    ]
    return rows


def best_setting(
    found: Found, settings: Iterable[KeyContestant], figure: str, at: Mapping[str, Any]
) -> str:
    """The setting of SMALOPS with the lowest figure."""
    return min(
        (one.name for one in settings), key=lambda name: over_seeds(found, name, figure, **at)
    )


def worst_first_window(found: Found, name: str, window_s: float, shift: int) -> float:
    """A policy's p99 by hash's in the first window after a shift, where it is largest."""
    each = []
    for r, figures in found.items():
        if (r.name, r.window_s, r.shift) == (name, window_s, shift):
            mine, known = figures["windows"], found[r._replace(name=HASH.name)]["windows"]
            each += [
                p99 / hashed
                for start_s, p99, hashed in zip(
                    mine["start_s"], mine["p99_us"], known["p99_us"], strict=True
                )
                if start_s > 0 and runs.after_shift(start_s, window_s)
            ]
    return max(each, default=1.0)


def all_worse_windows(found: Found, window_s: float, shift: int) -> list[float]:
    """The starts of the windows in which `trim` is worse than hash, over all seeds."""
    return [
        start_s
        for r in found
        if (r.name, r.window_s, r.shift) == (TRIM.name, window_s, shift)
        for start_s in worse_windows(found, r)
    ]


def worse_windows(found: Found, r: SmalopsRun) -> list[float]:
    """Starts of windows with a higher p99 than hash's; warm-up and first after a shift left out."""
    mine, theirs = (found[r._replace(name=name)]["windows"] for name in (r.name, HASH.name))
    return [
        start_s
        for start_s, p99, known in zip(
            mine["start_s"], mine["p99_us"], theirs["p99_us"], strict=True
        )
        if p99 > known and not runs.after_shift(start_s, r.window_s)
    ]
