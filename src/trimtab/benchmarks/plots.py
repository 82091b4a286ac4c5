"""Results as pictures: values in, SVG text out.

Promise  Equal results give equal text, so that a picture changes only when a result does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trimtab.benchmarks.benchmark import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

_MET, _MISSED, _BAR, _SECOND = "#0072b2", "#d55e00", "#222222", "#009e73"


def ratios(results: Sequence[Result], bars: Mapping[str, float]) -> str:
    """Each result's ratio as a bar, with a stroke where it should reach."""
    with _figure(0.7 + 0.36 * len(results)) as (axes, svg):
        for at, result in enumerate(results):
            bar = bars[result.name]
            axes.barh(at, result.ratio, color=_MET if result.ratio >= bar else _MISSED, height=0.6)
            axes.plot([bar, bar], [at - 0.42, at + 0.42], color=_BAR, linewidth=2)
            axes.text(result.ratio, at, f" {result.ratio:.2f}", va="center")
        axes.axvline(1.0, color=_BAR, linewidth=0.6, linestyle=":")
        axes.set_yticks(range(len(results)), [result.name for result in results])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel("ratio: above 1, ours is better; the stroke is the bar")
    return "".join(svg)


def growth(results: Sequence[Result]) -> str:
    """Time per row over the number of rows."""
    with _figure(2.8) as (axes, svg):
        for result, colour in zip(results, (_MET, _SECOND), strict=False):
            curve = {int(rows): us for rows, us in result.settings["curve"].items()}
            points = sorted(curve.items())
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=result.name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(*_ticks(results))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("rows")
        axes.set_ylabel("µs per row")
        axes.legend(frameon=False)
    return "".join(svg)


def _ticks(results: Sequence[Result]) -> tuple[list[int], list[str]]:
    rows = sorted({int(n) for result in results for n in result.settings["curve"]})
    return rows, [f"{n / 1e6:g} M" for n in rows]


@contextmanager
def _figure(height: float) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on, and a list that holds the SVG once the block has ended."""
    import matplotlib
    from matplotlib.figure import Figure

    # Inside the block only, and no pyplot: other figures of the process stay as they are.
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
