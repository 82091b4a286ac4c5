"""One self-contained HTML page of a keys simulation: delays, imbalance, costs, and what was chosen.

Promise  Values in, text out: only the packaged template is read, and the page loads nothing from
         the network. Equal results give an equal page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from trimtab.report.html import Figure, template
from trimtab.report.key_simulation import (
    REFERENCE,
    change_to_hash,
    gives_up,
    moves_in_words,
    waited,
)
from trimtab.report.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY, inline_figure
from trimtab.simulate.keys.registry import key_policies
from trimtab.simulate.keys.result import QUANTILES, KeySimulation, PolicyRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Dashes = Literal["-", "--", ":"]
_LEAST_US = 1.0  # delays below it, and none at all, are drawn here
_TAIL = 1e-4  # the share of records beyond which a curve ends
LOOKS: Mapping[str, tuple[str, Dashes]] = {
    "hash": (INK, "-"),
    "smalops": (BLUE, "-"),
    "smalops-paper": (SKY, "-"),
    "trim": (RED, "-"),
    "round-robin": (GREY, "--"),
    "pkg": (ORANGE, "--"),
    "d-choices": (PURPLE, "--"),
    "w-choices": (GREEN, "--"),
    "ch-bl-1.25": (ORANGE, ":"),
    "ch-bl-1.05": (PURPLE, ":"),
    "gedik": (GREEN, ":"),
    "dkg": (GREY, ":"),
}
"""Colour and line of each policy: dashed ones split keys, dotted ones are rivals that do not."""


class PolicyRow(NamedTuple):
    """A policy in the table of results."""

    name: str
    delays: list[str]
    change: str
    within: str
    imbalance: str
    moves: str
    reasons: str
    tracked: str
    split: str
    gives_up: str


class ChosenRow(NamedTuple):
    """A policy in the table of what it does."""

    name: str
    what: str
    memory: str
    gives_up: str
    chosen: str


def key_simulation_page(found: KeySimulation, facts: Mapping[str, str]) -> str:
    """The whole page; `facts` are the settings of the run."""
    return template("key_simulation.html").render(
        title="Trimtab: hot keys, simulated",
        figures=_figures(found),
        found=found,
        quantiles=list(QUANTILES),
        rows=[_row(found, run) for run in found.runs],
        curves=delay_curves(found.runs) if found.records else None,
        imbalances=imbalance_lines(found) if len(found.arrivals) > 1 else None,
        tails=tail_lines(found) if len(found.arrivals) > 1 else None,
        arrivals=found.arrivals,
        chosen=_chosen(run.name for run in found.runs),
        facts=facts,
    )


def _figures(found: KeySimulation) -> list[Figure]:
    figures = [Figure(f"{found.records:,}", "records", f"{len(found.arrivals)} windows")]
    whole = [run for run in found.runs if run.whole_state and run.name != REFERENCE]
    if whole and found.records:
        best = min(whole, key=lambda run: run.measured.quantile_s(0.99))
        change = change_to_hash(found, best)
        if change != "–":
            figures.append(Figure(change, "p99 delay against hash", f"{best.name}, keys whole"))
        even = min(whole, key=lambda run: run.mean_imbalance)
        figures.append(
            Figure(
                f"{even.mean_imbalance:.3f}",
                "imbalance: busiest partition ÷ mean",
                f"{even.name}; at least {found.bound:.3f}",
            )
        )
        fewest = min(whole, key=lambda run: run.moved)
        figures.append(Figure(f"{fewest.moved:,}", "fewest migrations", fewest.name))
    return figures


def _row(found: KeySimulation, run: PolicyRun) -> PolicyRow:
    measured = run.measured
    return PolicyRow(
        name=run.name,
        delays=[waited(s) for s in measured.quantiles_s(list(QUANTILES.values()))],
        change=change_to_hash(found, run),
        within="–" if not measured.records else f"{measured.within_share:.2%}",
        imbalance=f"{run.mean_imbalance:.3f} ({run.max_imbalance:.3f})",
        moves=f"{run.moved:,}",
        reasons=moves_in_words(run),
        tracked=f"{run.tracked:,}",
        split=f"{run.split_keys:,.0f}",
        gives_up=gives_up(run.name),
    )


def _chosen(names: Iterable[str]) -> list[ChosenRow]:
    known = key_policies()
    return [
        ChosenRow(k.name, k.what, k.memory, gives_up(k.name), k.chosen)
        for k in (known[name] for name in names if name in known)
    ]


def delay_curves(runs: Sequence[PolicyRun]) -> str:
    """The share of records that wait longer, over the delay; both axes by decades."""
    with inline_figure("distribution of queueing delays", height=3.4) as (axes, svg):
        for run in runs:
            delays, shares = run.measured.curve_s()
            rows = [
                (max(_LEAST_US, 1e6 * delay), 1 - share)
                for delay, share in zip(delays, shares, strict=True)
                if 1 - share >= _TAIL
            ]
            _line(axes, run.name, [x for x, _ in rows], [y for _, y in rows])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(1.0, _TAIL)
        ticks = [0.5, 0.1, 0.01, 0.001, _TAIL]
        axes.set_yticks(ticks, ["p50", "p90", "p99", "p99.9", "p99.99"])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: waited(value * 1e-6))
        axes.set_xlabel("queueing delay (1 µs or less at the left edge)")
        axes.grid()
        _name_lines(axes)
    return svg()


def imbalance_lines(found: KeySimulation) -> str:
    """The imbalance of each window, above the bound."""

    def draw(axes: Axes) -> None:
        bound = [window.bound for window in found.arrivals]
        axes.plot(_begins(found), bound, color=INK, linewidth=0.8, alpha=0.5, label="bound")
        axes.set_ylabel("busiest partition ÷ mean")

    return _over_time(
        found, "imbalance of each window", draw, lambda run, n: run.windows[n].imbalance
    )


def tail_lines(found: KeySimulation) -> str:
    """The p99 delay of each window."""

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: waited(value * 1e-6))
        axes.minorticks_off()
        axes.set_ylabel("p99 delay")

    def tail(run: PolicyRun, number: int) -> float:
        delay = run.delays[number].quantile_s(0.99)
        return math.nan if math.isnan(delay) else max(_LEAST_US, 1e6 * delay)

    return _over_time(found, "p99 delay of each window", draw, tail)


def _over_time(
    found: KeySimulation,
    title: str,
    draw: Callable[[Axes], None],
    value: Callable[[PolicyRun, int], float],
) -> str:
    with inline_figure(title, height=2.8) as (axes, svg):
        begins = _begins(found)
        draw(axes)
        for run in found.runs:
            values = [value(run, number) for number in range(len(begins))]
            _line(axes, run.name, begins, values, marker="o" if len(begins) <= 30 else "")
        axes.axvspan(begins[0], begins[1], color=INK, alpha=0.06, linewidth=0)
        axes.set_xlabel("beginning of the window, in seconds; the first is warm-up")
        axes.grid()
        _name_lines(axes)
    return svg()


def _begins(found: KeySimulation) -> list[float]:
    return [window.number * found.window_s for window in found.arrivals]


def _line(
    axes: Axes, name: str, x: Sequence[float], y: Sequence[float], *, marker: str = ""
) -> None:
    colour, dashes = LOOKS.get(name, (BLUE, "-"))
    axes.plot(x, y, dashes, color=colour, linewidth=1.5, marker=marker, markersize=3, label=name)


def _name_lines(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.2)
