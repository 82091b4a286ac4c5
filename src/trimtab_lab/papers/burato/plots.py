"""Plots of the experiment: a panel per setting, a bar with its interval per policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trimtab.report.plots import BLUE, GREY, ORANGE
from trimtab_lab.papers.burato.design import OURS, RACK_AWARE, STOCK
from trimtab_lab.papers.part import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = (*STOCK, RACK_AWARE)


def p95_bars(part: Part, canvas: Figure) -> None:
    """The 95th percentile of the latency, on a logarithmic scale."""
    _panels(part, canvas, "p95_ms", "p95 ms", logarithmic=True)


def throughput_bars(part: Part, canvas: Figure) -> None:
    """The throughput of saturating runs."""
    _panels(part, canvas, "mb_s", "MB/s", logarithmic=False)


def _panels(part: Part, canvas: Figure, name: str, label: str, *, logarithmic: bool) -> None:
    settings = [(title, list(found)) for title, found in groupby(part.figures["cells"], key=_title)]
    columns = min(3, len(settings))
    rows = [settings[at : at + columns] for at in range(0, len(settings), columns)]
    heights = [0.75 + 0.19 * max(len(found) for _, found in row) for row in rows]
    canvas.set_size_inches(3.4 * columns, 0.5 + sum(heights))
    grid = canvas.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, (title, found) in zip(axes_row, row, strict=False):
            _bars(axes, found, name, logarithmic=logarithmic)
            if logarithmic:  # bars on such a scale can only be compared if they start at one value
                axes.set_xlim(*_decades(part, name))
            axes.set_title(title, fontsize=8)
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
    canvas.supxlabel(
        f"{label}; blue: ours (weighted), grey: stock partitioners, orange: the thesis'", fontsize=9
    )


def _decades(part: Part, name: str) -> tuple[float, float]:
    """The range of powers of ten that contains every mean."""
    means = [cell[name][0] for cell in part.figures["cells"]]
    return 10 ** math.floor(math.log10(min(means))), 10 ** math.ceil(math.log10(max(means)))


def _bars(axes: Axes, found: Sequence[Mapping[str, Any]], name: str, *, logarithmic: bool) -> None:
    ordered = sorted(found, key=lambda cell: cell[name][0], reverse=not logarithmic)
    for at, cell in enumerate(ordered):
        mean, low, high = cell[name]
        axes.barh(at, mean, color=_colour(cell["policy"]), height=0.7)
        if low is not None:
            axes.plot([max(low, mean / 100), high], [at, at], color="black", linewidth=0.8)
    axes.set_yticks(range(len(ordered)), [cell["policy"] for cell in ordered], fontsize=6.5)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=7)
    if logarithmic:
        axes.set_xscale("log")
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x")


def _colour(policy: str) -> str:
    if policy.startswith(OURS):
        return BLUE
    return GREY if policy.startswith(_GREY) else ORANGE


def _title(cell: Mapping[str, Any]) -> str:
    size = "" if cell["value_bytes"] == 100 else f", {cell['value_bytes']} B"
    load = f" at {cell['load']:.0%}" if cell["load"] else ""
    return f"{cell['topic']} acks={cell['acks']}, {cell['world']}{size}{load}"
