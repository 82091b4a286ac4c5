"""Comparison of dispatching policies: a table per utilisation, and a plot over all of them.

Promise  Equal cells give equal tables and equal SVG. Colours are those of Okabe and Ito.
Cost     About 300 ms for the plot; only the plot loads matplotlib.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.report.columns import new_table
from trimtab.report.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from trimtab.simulate.closed_forms import ClosedForm, FormKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

    from trimtab.simulate.brokers import QueueWorld
    from trimtab.simulate.policy_comparison import ComparisonCell

Format = Literal["svg", "png"]
Curves = Mapping[tuple[str, int | None], Sequence[tuple[float, ClosedForm]]]
_BEST = "least-work"
_INK = "#222222"
_LOOK = {
    "random": (GREY, "o"),
    "round-robin": (ORANGE, "o"),
    "jsq-d": (SKY, "o"),
    "jiq": (PURPLE, "o"),
    "jsq-own": (GREEN, "o"),
    "jsq": (BLUE, "o"),
    "least-work": (_INK, "o"),
    "default": (RED, "x"),
    "improved": (RED, "+"),
    "node": (RED, "s"),
    "sqf": (RED, "D"),
    "weighted-node": (RED, "^"),
}
_ROUND = frozenset({"default", "improved", "node", "sqf", "weighted-node"})
_WIDE = frozenset({"round-robin", "jsq-own"})  # other marks may have the same position
_DASHES: dict[FormKind, Literal["-", "--"]] = {FormKind.EXACT: "-", FormKind.LIMIT: "--"}
PLOT_STYLE: dict[RcKeyType, Any] = {
    "font.size": 9.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "trimtab",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "grid.alpha": 0.25,
}
_KIND = {FormKind.EXACT: "", FormKind.LIMIT: "→ ", FormKind.BOUND: "≥ "}


def comparison_view(
    cells: Sequence[ComparisonCell], world: QueueWorld, *, arrivals: int, seeds: int
) -> RenderableType:
    """A table for each utilisation, with the policies in the requested order."""
    parts: list[RenderableType] = []
    for utilisation in dict.fromkeys(cell.utilisation for cell in cells):
        shown = [cell for cell in cells if cell.utilisation == utilisation]
        parts += [_table(shown, world), Text()]
    forms = {cell.closed_form.kind for cell in cells if cell.closed_form is not None}
    grows = any(cell.overloaded for cell in cells)
    notes = [
        "Waits last until service begins; the unit is the mean service time at speed 1.",
        f"{arrivals:,} records × {seeds} run{'s' * (seeds > 1)}; the first fifth is warm-up.",
        *(["± is half the width of the 95 % confidence interval."] if seeds > 1 else []),
        *([f"× is the wait divided by the wait under {_BEST}."] if _best(cells) else []),
        *(["→ is the limit for many brokers."] if FormKind.LIMIT in forms else []),
        *(["≥ is a lower bound: one queue for all brokers."] if FormKind.BOUND in forms else []),
        *(["'grows': a broker receives more than it can serve."] if grows else []),
    ]
    return Group(*parts, Text("\n".join(notes), style="dim"))


def _best(cells: Sequence[ComparisonCell]) -> float | None:
    return next((cell.mean_wait for cell in cells if cell.policy == _BEST), None)


def _table(cells: Sequence[ComparisonCell], world: QueueWorld) -> Table:
    best = _best(cells)
    uneven = any(max(c.offered.values()) > 1.05 * c.utilisation for c in cells)
    known = any(c.closed_form is not None for c in cells)
    table = new_table(
        *("policy", "dispat-\nchers", "mean wait"),
        *(["×"] if best else []),
        *("p95", "p99"),
        *(["in\ntheory", "off by"] if known else []),
        *(["busiest"] if uneven else []),
        title=f"{len(world.brokers)} brokers, {cells[0].utilisation:.4g} busy",
        left=1,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for cell in cells:
        mean = cell.mean_wait
        busiest = max(cell.offered, key=lambda broker: cell.offered[broker])
        table.add_row(
            cell.policy,
            "any" if cell.dispatchers is None else str(cell.dispatchers),
            _interval(mean, cell.half_width),
            *([_digits(None if mean is None else mean / best)] if best else []),
            _digits(cell.mean(lambda run: run.p95)),
            _digits(cell.mean(lambda run: run.p99)),
            *([_theory(cell.closed_form), _off(cell)] if known else []),
            *([f"{busiest}: {cell.offered[busiest]:.0%}"] if uneven else []),
            style="red" if mean is None else None,
        )
    return table


def _interval(mean: float | None, half_width: float | None) -> str:
    """A mean to three digits, and its interval to the same place.

    >>> _interval(4.5512, 0.1234), _interval(0.0123456, None), _interval(None, None)
    ('4.55 ± 0.12', '0.0123', 'grows')
    """
    if mean is None:
        return "grows"
    shown = _digits(mean)
    after = len(shown.partition(".")[2])
    return shown if half_width is None else f"{shown} ± {half_width:.{after}f}"


def _off(cell: ComparisonCell) -> str:
    if cell.difference is None or (cell.closed_form and cell.closed_form.kind is FormKind.BOUND):
        return "–"
    return f"{cell.difference:+.1%}"


def _theory(form: ClosedForm | None) -> str:
    if form is None:
        return "–"
    mean = "∞" if math.isinf(form.mean_wait) else _digits(form.mean_wait)
    return f"{_KIND[form.kind]}{mean}"


def _digits(number: float | None) -> str:
    """Three digits, and never an exponent.

    >>> _digits(12.345), _digits(0.0123456), _digits(1234.5), _digits(0.0), _digits(None)
    ('12.3', '0.0123', '1234', '0', '–')
    """
    if number is None:
        return "–"
    if abs(number) < 1e-6:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{digits}f}"


def picture(cells: Sequence[ComparisonCell], curves: Curves, *, form: Format = "svg") -> bytes:
    """Mean waits over utilisation: simulated values as marks, closed forms as lines.

    Each number of dispatchers has its own panel; policies that do not depend on it are in all.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = sorted({c.dispatchers for c in cells if c.dispatchers is not None}) or [1]
    written = io.BytesIO()
    # Settings apply inside the block only, without pyplot: other figures are not affected.
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(2.4 + 2.5 * len(panels), 3.6), layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, many in zip(row, panels, strict=True):
            _panel(axes, cells, curves, many)
            axes.set_title(f"{many} dispatcher{'s' * (many > 1)}", fontsize=9)
        row[0].set_ylabel("mean wait, in mean service times")
        figure.legend(handles=_legend(cells, curves), loc="outside right center", handlelength=1.8)
        if form == "png":
            figure.savefig(written, format="png", dpi=144, metadata={"Software": None})
            return written.getvalue()
        figure.savefig(written, format="svg", metadata={"Date": None})
    lines = (line.rstrip() for line in written.getvalue().decode().splitlines())
    return ("\n".join(lines) + "\n").encode()


def _panel(axes: Axes, cells: Sequence[ComparisonCell], curves: Curves, many: int) -> None:
    from matplotlib.ticker import PercentFormatter

    for (name, of), points in curves.items():
        if of not in (None, many):
            continue
        for kind, dashes in _DASHES.items():
            line = [
                (u, f.mean_wait) for u, f in points if f.kind is kind and 0 < f.mean_wait < math.inf
            ]
            if line:
                colour = _LOOK[name][0] if name not in _ROUND else _LOOK["round-robin"][0]
                axes.plot(*zip(*line, strict=True), dashes, color=colour, linewidth=1.2, zorder=1)
    for name in dict.fromkeys(cell.policy for cell in cells):
        shown = [c for c in cells if c.policy == name and c.dispatchers in (None, many)]
        marks = [(c.utilisation, c.mean_wait, c.half_width or 0.0) for c in shown if c.mean_wait]
        if marks:
            x, y, spread = zip(*marks, strict=True)
            dots = "none" if _drawn(curves, name, many) else ":"
            axes.errorbar(x, y, yerr=spread, linestyle=dots, linewidth=0.8, zorder=2, **_mark(name))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("utilisation of all brokers together")
    axes.grid()


def _drawn(curves: Curves, name: str, many: int) -> bool:
    """Whether there is a closed form to compare the marks with."""
    points = [*curves.get((name, None), ()), *curves.get((name, many), ())]
    return any(form.kind in _DASHES for _, form in points)


def _mark(name: str) -> dict[str, Any]:
    colour, marker = _LOOK[name]
    size = 8 if name in _WIDE else 5
    return {"color": colour, "marker": marker, "markersize": size, "markerfacecolor": "none"}


def _legend(cells: Sequence[ComparisonCell], curves: Curves) -> list[Any]:
    from matplotlib.lines import Line2D

    steady = {cell.policy for cell in cells if cell.mean_wait}
    handles = [
        Line2D(
            [],
            [],
            linestyle="none",
            label=name if name in steady else f"{name} (grows)",
            **_mark(name),
        )
        for name in dict.fromkeys(cell.policy for cell in cells)
    ]
    kinds = {f.kind for points in curves.values() for _, f in points if f.mean_wait < math.inf}
    words = {FormKind.EXACT: "in theory", FormKind.LIMIT: "in theory,\nmany brokers"}
    handles += [
        Line2D([], [], linestyle=_DASHES[kind], color=_INK, linewidth=1.2, label=words[kind])
        for kind in _DASHES
        if kind in kinds
    ]
    return handles
