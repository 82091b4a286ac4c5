"""Plots of experiments: values in, SVG or PNG out.

Promise  Equal parts give equal SVG, so a plot changes only when a result changes. Colours are those
         of Okabe and Ito; planners of one family share a colour, and differ by line and marker.
Cost     About 200 ms per plot; matplotlib is loaded by the first one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from trimtab.report.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from trimtab.report.policy_comparison import PLOT_STYLE
from trimtab_lab.papers.burato.plots import p95_bars, throughput_bars
from trimtab_lab.papers.part import Part, Parts
from trimtab_lab.papers.published import landau as paper
from trimtab_lab.papers.smalops import plots as keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]
Draw = Callable[["Figure"], None]
_INK = "#222222"
_FAMILY = {"nf": GREY, "ff": SKY, "bf": ORANGE, "wf": GREEN, "mw": BLUE, "mb": PURPLE, "tr": RED}
_CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY, _INK)


def picture(draw: Draw, *, form: Format = "svg") -> bytes:
    """Draws a plot in one of the two file formats."""
    import matplotlib
    from matplotlib.figure import Figure

    written = io.BytesIO()
    # Settings apply only inside the block, and pyplot is not used: no effect on other figures.
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        draw(figure)
        if form == "svg":
            figure.savefig(written, format="svg", metadata={"Date": None})
            lines = (line.rstrip() for line in written.getvalue().decode().splitlines())
            return ("\n".join(lines) + "\n").encode()
        figure.savefig(written, format="png", dpi=144, metadata={"Software": None})
    return written.getvalue()


def drawings(experiment: str, parts: Parts) -> dict[str, Draw]:
    """The plots that can be drawn from these parts, by name."""
    found: dict[str, Draw] = {}
    for name, part in parts.items():
        for suffix, draw in _DRAWN.get(name, {}).items():
            if draw not in (_fronts, _beyond) or _moving(part):
                found[f"{experiment}-{name}-{suffix}"] = partial(draw, part)
    return found


# ---------------------------------------------------------------- Landau


def _over_delta(figure: str, label: str, published: Mapping[str, Sequence[float]]) -> Any:
    def draw(part: Part, canvas: Figure) -> None:
        canvas.set_size_inches(7.2, 3.6)
        axes = canvas.add_subplot()
        for planner, by_delta in part.figures[figure].items():
            points = sorted((int(delta), value) for delta, value in by_delta.items())
            axes.plot(*zip(*points, strict=True), label=planner, **_line(planner))
            if planner in published:
                known = zip(paper.DELTAS, published[planner], strict=True)
                shown = [(d, value) for d, value in known if str(d) in by_delta]
                axes.plot(
                    [d for d, _ in shown],
                    [value for _, value in shown],
                    "x",
                    color=_line(planner)["color"],
                    markersize=5,
                )
        axes.set_xlabel("delta: largest change of a load in one step, % of the capacity")
        axes.set_ylabel(label)
        axes.set_xticks(sorted(int(d) for d in next(iter(part.figures[figure].values()))))
        axes.grid()
        handles, _ = axes.get_legend_handles_labels()
        (mark,) = axes.plot([], [], "x", color=_INK)
        canvas.legend(
            [*handles, mark], [*part.figures[figure], "paper"], loc="outside right center"
        )

    return draw


def _moving(part: Part) -> list[str]:
    """The deltas at which loads change; at delta 0 no planner moves anything."""
    return [str(delta) for delta in part.settings["deltas"] if delta > 0]


def _fronts(part: Part, canvas: Figure) -> None:
    for axes, delta in _panels(canvas, _moving(part)):
        found = part.figures["front"][delta]
        _scatter(axes, found["points"], found["front"])
        axes.set_title(f"delta {delta}", fontsize=9)


def _latency_histogram(part: Part, canvas: Figure) -> None:
    edges = part.figures["edges_s"]
    axes = canvas.add_subplot()
    for (name, found), colour in zip(_waiting(part).items(), _CYCLE, strict=False):
        counts = [high - low for low, high in pairwise(found["at_most"])]
        shares = [100 * count / found["samples"] for count in counts]
        axes.stairs(shares, edges, label=name, color=colour, fill=name == "mwf", alpha=0.8)
    axes.set_xscale("log")
    _plain(axes.xaxis)
    axes.set_xlabel("latency of a byte that waits, s")
    axes.set_ylabel("% of all bytes")
    axes.grid()
    axes.legend()


def _latency_boxes(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.2, 3.4)
    left, right = canvas.subplots(1, 2)
    waiting = _waiting(part)
    _boxes(left, waiting)
    left.set_ylabel("latency of bytes that wait, s")
    edges = part.figures["edges_s"]
    for (name, found), colour in zip(waiting.items(), _CYCLE, strict=False):
        shares = [100 * count / found["samples"] for count in found["at_most"]]
        right.plot(edges, shares, label=name, color=colour)
    right.set_xscale("log")
    _plain(right.xaxis)
    right.set_xlabel("latency at most, s")
    right.set_ylabel("% of all bytes")
    right.grid()
    right.legend()


def _waiting(part: Part) -> dict[str, Mapping[str, Any]]:
    return {name: found for name, found in part.figures["latencies"].items() if found["positive"]}


def _beyond(part: Part, canvas: Figure) -> None:
    shown = part.figures["planners"]
    for axes, delta in _panels(canvas, list(shown)):
        points = {
            name: (found["cbs"], found["e_rscore"])
            for name, found in shown[delta].items()
            if not name.startswith("kafka-")
        }
        _scatter(axes, points, [name for name in points if name.startswith("trim")])
        axes.set_title(f"delta {delta}", fontsize=9)


def _panels(canvas: Figure, names: Sequence[str]) -> Iterator[tuple[Axes, str]]:
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    canvas.set_size_inches(7.6, 0.4 + 2.6 * rows)
    grid = canvas.subplots(rows, columns, squeeze=False)
    places = [axes for row in grid for axes in row]
    for axes, name in zip(places, names, strict=False):
        yield axes, name
        axes.grid()
        axes.set_xlabel("CBS")
        axes.set_ylabel("E[Rscore]")
    for axes in places[len(names) :]:
        axes.set_visible(False)


def _scatter(axes: Axes, points: Mapping[str, Sequence[float]], joined: Sequence[str]) -> None:
    """Planners as points; those in `joined` are filled and connected by a line."""
    on = sorted((points[name][0], points[name][1]) for name in joined)
    axes.plot(*zip(*on, strict=True), color=_INK, linewidth=0.8, zorder=1)
    for name, (x, y) in points.items():
        colour = _line(name)["color"]
        axes.scatter(x, y, s=22, color=colour if name in joined else "white", edgecolors=colour)
    for (x, y), names in _neighbours(points).items():
        label = " ".join(name.replace("slack ", "") for name in names)
        axes.annotate(label, (x, y), (4, 3), textcoords="offset points", fontsize=6.5)
    axes.margins(x=0.18, y=0.1)


def _neighbours(points: Mapping[str, Sequence[float]]) -> dict[tuple[float, float], list[str]]:
    """Names by position; points too close for separate labels are listed with the first one."""
    spans = [max(axis) - min(axis) or 1.0 for axis in zip(*points.values(), strict=True)]
    places: dict[tuple[float, float], list[str]] = {}
    for name, (x, y) in points.items():
        for (u, v), names in places.items():
            if abs(x - u) < 0.03 * spans[0] and abs(y - v) < 0.03 * spans[1]:
                names.append(name)
                break
        else:
            places[x, y] = [name]
    return places


def _line(planner: str) -> dict[str, Any]:
    colour = _FAMILY.get(planner[:2], _INK)
    if planner.startswith("m"):
        return {"color": colour, "linestyle": ":" if planner.endswith("p") else "-", "linewidth": 2}
    return {"color": colour, "linestyle": "--" if planner.endswith("d") else "-", "linewidth": 1}


# ---------------------------------------------------------------- Ezzeddine


def _cost(part: Part, canvas: Figure) -> None:
    found = part.figures["controllers"]
    canvas.set_size_inches(7.2, 0.8 + 0.3 * len(found))
    axes = canvas.add_subplot()
    for at, figures in enumerate(found.values()):
        kept = figures["sla_share"] >= 0.999
        minutes = figures["replica_minutes"]
        axes.barh(at, minutes, color=BLUE if kept else RED, height=0.65)
        axes.text(minutes, at, f" {minutes:.1f}, {figures['sla_share']:.1%} in time", va="center")
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xlabel("replica-minutes; blue: at least 99.9 % within the SLA")


def _delays(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.6, 4.6)
    left, right = canvas.subplots(1, 2)
    # mwf and bfd coincide with ll-ffd, and with one consumer per partition no record waits.
    late = {n: d for n, d in part.figures["delays"].items() if n not in ("mwf", "bfd", "fixed 5")}
    _shares(left, late, part.settings["sla_s"])
    canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    short = {name.replace("kafka-sticky, keeps", "sticky,"): found for name, found in late.items()}
    _boxes(right, short, low="p25_s", high="p99_s", scale="symlog")
    right.set_ylabel("latency, s: half of all, and 99 %")
    right.tick_params(axis="x", labelrotation=90)


def _over_time(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.2, 4.2)
    above, below = canvas.subplots(2, 1, sharex=True)
    curves = part.figures["curves"]
    for (name, found), colour in zip(curves.items(), _CYCLE, strict=False):
        if not name.startswith("kafka-sticky"):  # it is given the replicas of ll-ffd
            seconds = range(1, len(found["replicas"]) + 1)
            above.step(seconds, found["replicas"], where="pre", color=colour, linewidth=1.1)
        below.plot(range(1, len(found["lag"]) + 1), found["lag"], color=colour, label=name)
    _replicas_and_lag(canvas, above, below)


def _shares(axes: Axes, delays: Mapping[str, Mapping[str, Any]], sla_s: float) -> None:
    """The share of records with at most a given latency."""
    for (name, found), colour in zip(delays.items(), _CYCLE, strict=False):
        shares = [100 * share for share in found["within"]]
        axes.plot(found["edges_s"], shares, label=name, color=colour)
    axes.axvline(sla_s, color=_INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    _plain(axes.xaxis)
    axes.set_xlabel("latency at most, s; dotted: the SLA")
    axes.set_ylabel("% of all records")
    axes.grid()


def _replicas_and_lag(canvas: Figure, above: Axes, below: Axes) -> None:
    """Labels and legend of a plot of replicas and lag over time."""
    above.set_ylabel("replicas")
    below.set_ylabel("records behind")
    below.set_yscale("symlog", linthresh=10)
    _plain(below.yaxis)
    below.set_xlabel("s")
    for axes in (above, below):
        axes.grid()
    canvas.legend(*below.get_legend_handles_labels(), loc="outside upper center", ncols=3)


# ---------------------------------------------------------------- live


def _live_delays(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.2, 3.4)
    axes = canvas.add_subplot()
    _shares(axes, part.figures["delays"], part.settings["sla_s"])
    canvas.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def _live_time(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.2, 4.4)
    above, below = canvas.subplots(2, 1, sharex=True)
    for (name, found), colour in zip(part.figures["curves"].items(), _CYCLE, strict=False):
        times = [*(t_s for t_s, _ in found["replicas"]), found["ended_s"]]
        counts = [n for _, n in found["replicas"]]
        above.step(times, [*counts, counts[-1]], where="post", color=colour, linewidth=1.1)
        lags = [(t_s, lag) for t_s, lag in found["lag"] if t_s <= found["ended_s"] + 1]
        below.plot(*zip(*lags, strict=True), color=colour, label=name, linewidth=1.0)
    _replicas_and_lag(canvas, above, below)


def _live_blocked(part: Part, canvas: Figure) -> None:
    moved = {
        name: figures
        for name, figures in part.figures["strategies"].items()
        if figures["blocked_p90_s"] is not None
    }
    canvas.set_size_inches(7.2, 1.0 + 0.35 * len(moved))
    axes = canvas.add_subplot()
    for at, figures in enumerate(moved.values()):
        axes.barh(at, figures["blocked_p90_s"], color=BLUE, height=0.6)
        axes.plot(figures["blocked_max_s"], at, "|", color=RED, markersize=10)
    axes.set_yticks(range(len(moved)), list(moved))
    axes.invert_yaxis()
    axes.set_xlabel("s during which a moved partition was not read, p90; red: the longest")
    axes.grid(axis="x")


def _peak_rates(part: Part, canvas: Figure) -> None:
    axes = canvas.add_subplot()
    found = part.figures["conditions"]
    top = 1.1 * max(max(figures["rates_mb_s"]) for figures in found.values())
    for (name, figures), colour in zip(found.items(), _CYCLE, strict=False):
        axes.hist(
            figures["rates_mb_s"],
            bins=24,
            range=(0, top),
            density=True,
            histtype="step",
            color=colour,
            label=f"{name}: {figures['partitions']} partitions, {figures['tables']} tables",
        )
    axes.set_xlabel("MB/s of one cycle")
    axes.set_ylabel("density")
    axes.grid()
    axes.legend()


def _response_curves(part: Part, canvas: Figure) -> None:
    canvas.set_size_inches(7.6, 3.4)
    panels = list(canvas.subplots(1, len(part.figures["responses"]), squeeze=False)[0])
    for axes, (workload, spans) in zip(panels, part.figures["responses"].items(), strict=True):
        for (name, found), colour in zip(spans.items(), _CYCLE, strict=False):
            if found["within"]:
                shares = [100 * share for share in found["within"]]
                axes.plot(found["edges_s"], shares, color=colour, label=name)
        axes.set_title(workload, fontsize=9)
        axes.set_xscale("log")
        _plain(axes.xaxis)
        axes.set_xlabel("s")
        axes.grid()
    panels[0].set_ylabel("% of all")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def _boxes(
    axes: Axes,
    found: Mapping[str, Mapping[str, Any]],
    *,
    low: str = "p5_s",
    high: str = "p95_s",
    scale: str = "log",
) -> None:
    stats = [
        {
            "label": name,
            "whislo": figures[low],
            "q1": figures["p25_s"],
            "med": figures["p50_s"],
            "q3": figures["p75_s"],
            "whishi": figures[high],
        }
        for name, figures in found.items()
    ]
    axes.bxp(stats, showfliers=False, medianprops={"color": RED})
    axes.set_yscale(scale)
    _plain(axes.yaxis)
    axes.grid(axis="y")


def _plain(axis: Axis) -> None:
    """Writes powers of ten as plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


_DRAWN: Mapping[str, Mapping[str, Callable[[Part, Figure], None]]] = {
    "tables": {
        "cbs": _over_delta("cbs", "cardinal bin score", paper.CBS),
        "e-rscore": _over_delta("e_rscore", "E[Rscore]", paper.E_RSCORE),
        "front": _fronts,
    },
    "latency": {"histogram": _latency_histogram, "boxes": _latency_boxes},
    "beyond": {"front": _beyond},
    **{
        part: {"cost": _cost, "delays": _delays, "time": _over_time}
        for part in ("workload-1", "curve")
    },
    **{
        f"live-{workload}": {"delays": _live_delays, "time": _live_time, "blocked": _live_blocked}
        for workload in ("workload-1", "delta-5", "delta-25", "bytes-5", "bytes-25")
    },
    "peak": {"rates": _peak_rates},
    "responses": {"curves": _response_curves},
    "responses-bytes": {"curves": _response_curves},
    "saturating": {"throughput": throughput_bars},
    "open-loop": {"p95": p95_bars},
    "delays": {"curves": keys.delay_curves},
    "service-times": {"p99": keys.p99_over_service_time},
    "thresholds": {"sweep": keys.threshold_sweep},
    "utilisation": {"gain": keys.gain_over_utilisation},
    "shifting": {"time": keys.shifting_load},
    "rivals": {"scatter": keys.rival_scatter},
    "ours": {"scatter": keys.our_scatter},
}
