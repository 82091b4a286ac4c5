"""Plots of benchmark results: values in, SVG text out.

Promise  Equal results give equal text, so a plot changes only when a result changes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trimtab_lab.benchmarks.benchmark import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

_ROUND = (0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 100, 500, 1000)
_MET, _MISSED, _BAR, _SECOND = "#0072b2", "#d55e00", "#222222", "#009e73"


def ratios(results: Sequence[Result], bars: Mapping[str, float]) -> str:
    """Each result's ratio as a horizontal bar, with a mark at the ratio it should reach."""
    with _figure(0.7 + 0.36 * len(results)) as (axes, svg):
        for at, result in enumerate(results):
            bar = bars[result.name]
            axes.barh(at, result.ratio, color=_MET if result.ratio >= bar else _MISSED, height=0.6)
            axes.plot([bar, bar], [at - 0.42, at + 0.42], color=_BAR, linewidth=2)
            axes.text(result.ratio, at, f" {result.ratio:.2f}", va="center")
        axes.axvline(1.0, color=_BAR, linewidth=0.6, linestyle=":")
        axes.set_yticks(range(len(results)), [result.name for result in results])
        axes.invert_yaxis()
        # Logarithmic: 2 and 0.5 are equally far from 1, and a ratio of 100 leaves the rest legible.
        axes.set_xscale("log")
        shown = [x for r in results for x in (r.ratio, bars[r.name], 1.0) if x > 0]
        axes.set_xlim(min(shown) / 2, max(shown) * 3)
        ticks = [x for x in _ROUND if min(shown) / 2 <= x <= max(shown) * 3]
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axes.minorticks_off()
        axes.set_xlabel("ratio (above 1: ours is better); the mark is the bar")
    return "".join(svg)


def growth(results: Sequence[Result], *, over: str, unit: str, scale: tuple[float, str]) -> str:
    """Each result's curve over the size `over`, all in the same unit."""
    with _figure(2.8) as (axes, svg):
        for result, colour in zip(results, (_MET, _SECOND), strict=False):
            curve = {int(n): value for n, value in result.settings["curve"].items()}
            points = sorted(curve.items())
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=result.name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(*_ticks(results, *scale))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(over)
        axes.set_ylabel(unit)
        axes.legend(frameon=False)
    return "".join(svg)


def _ticks(results: Sequence[Result], one: float, suffix: str) -> tuple[list[int], list[str]]:
    sizes = sorted({int(n) for result in results for n in result.settings["curve"]})
    return sizes, [f"{n / one:g}{suffix}" for n in sizes]


@contextmanager
def _figure(height: float) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on, and a list that contains the SVG text after the block has ended."""
    import matplotlib
    from matplotlib.figure import Figure

    # Settings apply only inside the block, and pyplot is not used: no effect on other figures.
    style: dict[RcKeyType, Any] = {
        "svg.hashsalt": "trimtab",
        "svg.fonttype": "none",
        "font.size": 9.0,
    }
    text: list[str] = []
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        yield axes, text
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
        lines = (line.rstrip() for line in written.getvalue().splitlines())
        text.append("\n".join(lines) + "\n")
