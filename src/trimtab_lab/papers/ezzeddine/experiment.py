"""Ezzeddine et al.: load-aware scaling compared with Kafka's assignors, KEDA and fixed groups.

Two parts: the paper's workload 1, compared with its figures; and rate curves with the skew of its
second workload, which is published only as a picture. All run in the same fluid simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS
from trimtab_lab.papers.ezzeddine import fluid_runs as runs
from trimtab_lab.papers.grid import GridCell, code_version
from trimtab_lab.papers.part import Part, Runner, figures_of
from trimtab_lab.papers.published import ezzeddine as paper
from trimtab_lab.papers.verdict import VerdictRow, at_least, at_most, for_information, near

CELLS_PER_TASK = 3
CONTROLLERS = (
    runs.AUTOSCALER,
    *runs.STICKY,
    runs.LAG_BASED,
    *runs.KEDA,
    *runs.BY_RATE,
    f"{runs.FIXED} 3",
    f"{runs.FIXED} 5",
)
_PLANNER_OF = {
    **dict.fromkeys(runs.STICKY, "kafka-sticky"),
    **dict.fromkeys(runs.KEDA, "keda-lag"),
}
_SHOWN = ("sla_share", "replica_minutes", "p50_s", "p90_s", "p99_s", "max_s", "max_lag", "moves")
_DRAWN = (runs.AUTOSCALER, *runs.STICKY, "keda-lag 10", "trim")


@dataclass(frozen=True, slots=True, kw_only=True)
class EzzeddineDesign:
    """The parameters of the experiment."""

    seeds: int = 3
    intervals_s: tuple[float, ...] = (1.0, 10.0, 30.0)
    cooldowns_s: tuple[float, ...] = (0.0, 30.0)
    controllers: tuple[str, ...] = CONTROLLERS


class EzzeddineRun(NamedTuple):
    """Identifies a run."""

    controller: str
    interval_s: float
    cooldown_s: float
    reported_rate: float
    seed: int


Found = Mapping[EzzeddineRun, Mapping[str, Any]]


def workload_1(design: EzzeddineDesign, run: Runner) -> Part:
    """The paper's first experiment, its rivals, and other intervals and cooldowns."""
    found = _scaled(runs.WORKLOAD_1, design, (0,), run)
    ours = _one(found, runs.AUTOSCALER)
    sticky = {name: _one(found, name) for name in runs.STICKY}
    rows = [
        at_least(
            "sla share load-aware", paper.SLA_SHARE_BAR, ours["sla_share"], paper=paper.SLA_SHARE
        ),
        near(
            "replica-minutes load-aware",
            ours["replica_minutes"],
            paper=paper.REPLICA_MINUTES,
            model=paper.REPLICA_MINUTES_MODEL[paper.REPORTED_RATE],
            tolerance=paper.REPLICA_MINUTES_TOLERANCE,
        ),
        near(
            f"replica-minutes load-aware, reported {runs.SERVICE_RATE:g}/s",
            _mean(found, "replica_minutes", (runs.AUTOSCALER, 1.0, 0.0, runs.SERVICE_RATE)),
            model=paper.REPLICA_MINUTES_MODEL[runs.SERVICE_RATE],
            tolerance=paper.REPLICA_MINUTES_TOLERANCE,
        ),
        at_most("max lag load-aware", paper.MAX_LAG_BAR, ours["max_lag"]),
        *_action_rows(ours["changes"]),
    ]
    for name, figures in sticky.items():
        keeps = name.rsplit(" ", 1)[-1]
        most = paper.STICKY_MAX_LAG_MODEL[keeps]
        rows += [
            near(
                f"sla share {name}",
                figures["sla_share"],
                paper=paper.STICKY_SLA_SHARE,
                model=paper.STICKY_SLA_SHARE_MODEL[keeps],
                tolerance=paper.STICKY_SLA_SHARE_TOLERANCE,
            ),
            near(
                f"max lag {name}",
                figures["max_lag"],
                paper=paper.STICKY_MAX_LAG,
                model=most,
                tolerance=paper.STICKY_MAX_LAG_TOLERANCE * most,
            ),
            at_least(
                f"max lag {name}, times that of load-aware",
                paper.STICKY_LAG_TIMES_BAR,
                figures["max_lag"] / ours["max_lag"],
            ),
        ]
    return Part(
        settings=_settings(design, runs.WORKLOAD_1), rows=tuple(rows), figures=_figures(found)
    )


def curve(design: EzzeddineDesign, run: Runner) -> Part:
    """Rate curves with the skew of the second experiment, whose figures are for information."""
    seeds = tuple(range(design.seeds))
    found = _scaled(runs.CURVE, design, seeds, run)

    def mean(controller: str, figure: str, *, interval_s: float = 1.0) -> float:
        return _mean(found, figure, (controller, interval_s, 30.0, paper.REPORTED_RATE))

    minutes = mean(runs.AUTOSCALER, "replica_minutes")
    most = _mean(found, "replica_minutes", _plainly(f"{runs.FIXED} 5"))
    rows = [
        for_information(
            "sla share load-aware, cooldown 30 s",
            mean(runs.AUTOSCALER, "sla_share"),
            paper=paper.SLA_SHARE,
        ),
        for_information(
            "replica-minutes load-aware, cooldown 30 s",
            minutes,
            paper=paper.SECOND_REPLICA_MINUTES,
        ),
        for_information(
            "replica-minutes as a part of those of 5 fixed consumers",
            minutes / most,
            paper=paper.SECOND_REMAINING,
        ),
        for_information(
            "sla share load-aware, interval 30 s, cooldown 30 s",
            mean(runs.AUTOSCALER, "sla_share", interval_s=30.0),
            paper=paper.SECOND_30_S_INTERVAL_SLA_SHARE,
        ),
    ]
    for name in runs.STICKY:
        share = _mean(found, "sla_share", _plainly(name))
        rows.append(
            for_information(f"sla share {name}", share, paper=paper.SECOND_STICKY_SLA_SHARE)
        )
    settings = {**_settings(design, runs.CURVE), "seeds": len(seeds), "shares": list(runs.SHARES)}
    # Rows of workload 1 have the same names, so the workload is added.
    named = tuple(replace(row, what=f"{row.what}, {runs.CURVE}") for row in rows)
    return Part(settings=settings, rows=named, figures=_figures(found))


PARTS: Mapping[str, Callable[[EzzeddineDesign, Runner], Part]] = {
    "workload-1": workload_1,
    "curve": curve,
}


def _settings(design: EzzeddineDesign, workload: str) -> dict[str, Any]:
    return {
        "workload": workload,
        "service rate": runs.SERVICE_RATE,
        "reported rate": paper.REPORTED_RATE,
        "sla_s": runs.SLA_S,
        "intervals_s": list(design.intervals_s),
        "cooldowns_s": list(design.cooldowns_s),
    }


def _scaled(workload: str, design: EzzeddineDesign, seeds: Iterable[int], run: Runner) -> Found:
    """All controllers at the default interval; the autoscaler at all intervals and cooldowns."""
    known = [c for c in design.controllers if _planner(c) in PLANNERS[Layer.CONSUMERS]]
    plain = [(name, 1.0, 0.0, paper.REPORTED_RATE) for name in known]
    effects = [
        (runs.AUTOSCALER, interval_s, cooldown_s, paper.REPORTED_RATE)
        for interval_s, cooldown_s in product(design.intervals_s, design.cooldowns_s)
    ]
    exact = [(runs.AUTOSCALER, 1.0, 0.0, runs.SERVICE_RATE)]
    asked = dict.fromkeys(
        EzzeddineRun(*how, seed) for how, seed in product((*plain, *effects, *exact), seeds)
    )
    cells = {r: GridCell({"workload": workload, **r._asdict()}, _code(r.controller)) for r in asked}
    found = run(list(cells.values()), runs.scaled, CELLS_PER_TASK)
    return dict(zip(cells, figures_of(list(cells.values()), found), strict=True))


def _planner(controller: str) -> str:
    if controller.startswith(runs.FIXED):
        return runs.AUTOSCALER
    return _PLANNER_OF.get(controller, controller)


def _code(controller: str) -> str:
    rule = PLANNERS[Layer.CONSUMERS][_planner(controller)].rule
    module = (rule.func if isinstance(rule, partial) else rule).__module__
    return code_version([runs.__name__, module])


def _one(found: Found, controller: str) -> Mapping[str, Any]:
    return found[EzzeddineRun(controller, 1.0, 0.0, paper.REPORTED_RATE, 0)]


How = tuple[str, float, float, float]
"""A controller, its interval and cooldown in seconds, and the rate it assumes of a consumer."""


def _plainly(controller: str) -> How:
    return controller, 1.0, 0.0, paper.REPORTED_RATE


def _mean(found: Found, figure: str, how: How) -> float:
    return fmean(figures[figure] for r, figures in found.items() if r[:4] == how)


def _action_rows(changes: list[list[Any]]) -> list[VerdictRow]:
    """Compares the time of every scaling; scalings too many or too few are a separate row."""
    known = paper.ACTIONS_MODEL
    rows = [at_most("scalings too many or too few", 0, abs(len(changes) - len(known)))]
    for (t_s, action, replicas), found in zip(known, changes, strict=False):
        same = (action, replicas) == (found[1], found[3])
        what = f"t_s of {action.replace('_', ' ')}, {replicas} replicas"
        ours = found[0] if same else float("nan")
        rows.append(near(what, ours, model=t_s, tolerance=paper.ACTION_TOLERANCE_S))
    return rows


def _figures(found: Found) -> dict[str, Any]:
    """Means over seeds for tables; the first seed's curves for plots."""
    plain = list(dict.fromkeys(r.controller for r in found))
    effects = sorted({r[1:4] for r in found if r.controller == runs.AUTOSCALER})
    return {
        "controllers": {
            name: {figure: _mean_or_none(found, name, figure) for figure in _SHOWN}
            for name in plain
        },
        "effects": [
            {
                "interval_s": interval_s,
                "cooldown_s": cooldown_s,
                "reported_rate": rate,
                **{
                    figure: _mean(found, figure, (runs.AUTOSCALER, interval_s, cooldown_s, rate))
                    for figure in ("sla_share", "replica_minutes", "max_lag", "p99_s")
                },
            }
            for interval_s, cooldown_s, rate in effects
        ],
        "delays": {
            name: {
                f: _one(found, name)[f]
                for f in ("within", "edges_s", "p25_s", "p50_s", "p75_s", "p90_s", "p99_s", "max_s")
            }
            for name in plain
        },
        "curves": {
            name: {f: _one(found, name)[f] for f in ("replicas", "lag", "changes")}
            for name in plain
            if name in _DRAWN
        },
    }


def _mean_or_none(found: Found, controller: str, figure: str) -> float | None:
    each = [figures[figure] for r, figures in found.items() if r[:4] == _plainly(controller)]
    return None if None in each else float(f"{fmean(each):.6g}")
