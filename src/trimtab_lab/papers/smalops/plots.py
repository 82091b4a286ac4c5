"""Plots of the experiment: delays, service times, thresholds, load, shifting keys, rivals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trimtab.report.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import smalops as paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_INK = "#222222"
_COLOURS = {
    "hash": GREY,
    "smalops": ORANGE,
    "trim": BLUE,
    "round-robin": GREEN,
    "pkg": PURPLE,
    "d-choices": PURPLE,
    "w-choices": PURPLE,
    "ch-bl": SKY,
    "gedik": RED,
    "dkg": RED,
}
_MARKERS = ("o", "s", "^", "D", "v")
_NINES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)


def delay_curves(part: Part, canvas: Figure) -> None:
    """Percentiles of the delay, with as much room for each further nine (figure 7)."""
    canvas.set_size_inches(7.6, 3.6)
    curves = part.figures["quantiles_us"]
    panels = canvas.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    shares = part.figures["probabilities"]
    for axes, (service_us, by_policy) in zip(panels, curves.items(), strict=True):
        for name, quantiles in by_policy.items():
            points = [
                (us, _nines(share)) for us, share in zip(quantiles, shares, strict=True) if us >= 1
            ]
            axes.plot(*zip(*points, strict=True), label=name, **_line(name))
        axes.axhline(_nines(0.99), color=_INK, linewidth=0.7, linestyle=":")
        axes.set_xscale("log")
        _plain(axes.xaxis)
        axes.set_yticks([_nines(share) for share in _NINES], [f"{100 * s:g}" for s in _NINES])
        axes.set_xlabel("queueing delay, µs")
        axes.set_title(_fall(part, service_us), fontsize=9)
        axes.grid()
    panels[0].set_ylabel("% of the records wait at most")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def _fall(part: Part, service_us: str) -> str:
    policies = part.figures["policies"][service_us]
    hashed, ours = (policies[name]["p99_us"] for name in ("hash", "smalops"))
    return f"{service_us} µs a record: p99 {1 - ours / hashed:.0%} lower"


def p99_over_service_time(part: Part, canvas: Figure) -> None:
    """The 99th percentile against the service time (figure 8)."""
    canvas.set_size_inches(7.2, 3.4)
    axes = canvas.add_subplot()
    times = part.figures["service_times_us"]
    p99 = part.figures["p99_us"]
    for name, values in p99.items():
        waits = [(at, value) for at, value in zip(times, values, strict=True) if value > 0]
        if waits:
            axes.plot(
                *zip(*waits, strict=True), marker="o", markersize=4, label=name, **_line(name)
            )
    for at, hashed, ours in zip(times, p99["hash"], p99["smalops"], strict=True):
        fall = f"{ours / hashed - 1:+.0%}".replace("-", "−")
        axes.annotate(
            fall, (at, hashed), (0, 7), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_yscale("log")
    _plain(axes.yaxis)
    axes.margins(y=0.12)
    axes.set_xticks(times)
    axes.set_xlabel("service time, µs a record, all at the same rate; %: smalops and hash")
    axes.set_ylabel("p99 of the delay, µs")
    axes.grid()
    canvas.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def threshold_sweep(part: Part, canvas: Figure) -> None:
    """What counts as hot: the tail above, the tracked keys below (figure 9)."""
    canvas.set_size_inches(7.2, 4.4)
    above, below = canvas.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    found = part.figures
    percents = [100 * coverage for coverage in found["coverages"]]
    above.fill_between(
        percents,
        _ms(found["p99_us of the best draw"]),
        _ms(found["p99_us of the worst draw"]),
        color=ORANGE,
        alpha=0.25,
        linewidth=0,
        label="best and worst draw",
    )
    above.plot(
        percents, _ms(found["p99_us"]), "o-", color=ORANGE, markersize=4, label="median draw"
    )
    above.axhline(found["hash p99_us"] / 1000, color=GREY, label="hash")
    above.axvline(100 * paper.SHARP_GAIN_AT, color=_INK, linewidth=0.8, linestyle=":")
    above.text(
        100 * paper.SHARP_GAIN_AT,
        1.0,
        " the paper's drop",
        transform=above.get_xaxis_transform(),
        va="top",
        fontsize=8,
    )
    above.set_ylabel("p99 of the delay, ms")
    above.set_yscale("log")
    _plain(above.yaxis)
    above.legend(loc="upper right")
    below.plot(percents, found["tracked"], "o-", color=BLUE, markersize=4)
    below.set_yscale("log")
    _plain(below.yaxis)
    below.set_ylabel("tracked keys")
    below.set_xlabel("hot are the top keys that hold so many % of the records")
    for axes in (above, below):
        axes.grid()


def gain_over_utilisation(part: Part, canvas: Figure) -> None:
    """The fall of the 99th percentile against the utilisation of hash's busiest partition."""
    canvas.set_size_inches(7.2, 3.4)
    axes = canvas.add_subplot()
    at = part.figures["utilisations"]
    known = [paper.P99_LOWER_MODEL[each] for each in at]
    axes.errorbar(
        at,
        [100 * each.value for each in known],
        [100 * each.tolerance for each in known],
        fmt="none",
        ecolor=GREY,
        capsize=3,
        label="expected of the model",
    )
    for name, gains in part.figures["below"].items():
        percents = [100 * gain for gain in gains]
        axes.plot(at, percents, marker="o", markersize=4, label=name, **_line(name))
    for service_us, fall in paper.P99_LOWER.items():
        axes.axhline(100 * fall, color=_INK, linewidth=0.8, linestyle=":")
        axes.text(min(at), 100 * fall + 0.6, f"paper, {service_us:g} µs: {fall:.0%}", fontsize=8)
    axes.set_xlabel("utilisation of hash's busiest partition")
    axes.set_ylabel("p99 below hash's, %")
    axes.grid()
    axes.legend(loc="lower right")


def shifting_load(part: Part, canvas: Figure) -> None:
    """Each window's 99th percentile over time, and the migrations at its end (figure 10)."""
    shifts = part.figures["shifts"]
    canvas.set_size_inches(7.8, 4.6)
    grid = canvas.subplots(
        2, len(shifts), sharex=True, sharey="row", height_ratios=(3, 2), squeeze=False
    )
    for column, (shift, policies) in enumerate(shifts.items()):
        above, below = grid[0][column], grid[1][column]
        ends: list[float] = []
        for name, found in policies.items():
            windows = found["windows"]
            ends = [*windows["start_s"], 2 * windows["start_s"][-1] - windows["start_s"][-2]]
            above.stairs(_ms(windows["p99_us"]), ends, baseline=None, label=name, **_stairs(name))
            if name != "hash":
                below.stairs(windows["migrations"], ends, baseline=None, **_stairs(name))
        for at in range(60, math.ceil(ends[-1]), 60):
            for axes in (above, below):
                axes.axvline(at, color=_INK, linewidth=0.7, linestyle=":")
        above.set_title(f"keys shift by {shift} every minute", fontsize=9)
        above.set_yscale("log")
        _plain(above.yaxis)
        below.set_yscale("symlog", linthresh=1)
        _plain(below.yaxis)
        below.set_ylim(0, 10_000)
        below.set_xticks(range(0, math.ceil(ends[-1]) + 1, 60))
        below.set_xlabel("s")
        above.grid()
        below.grid()
    grid[0][0].set_ylabel("p99 of the delay, ms")
    grid[1][0].set_ylabel("migrations")
    canvas.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)


def rival_scatter(part: Part, canvas: Figure) -> None:
    """The 99th percentile against the migrations of every policy, a panel per load."""
    loads = part.figures["loads"]
    canvas.set_size_inches(8.6, 3.6)
    panels = canvas.subplots(1, len(loads), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (load, policies) in zip(panels, loads.items(), strict=True):
        points = {name: (found["migrations"], found["p99_us"]) for name, found in policies.items()}
        _scatter(axes, points, part.figures["whole keys"])
        axes.set_title(load, fontsize=9)
        axes.set_xlabel("migrations")
    panels[0].set_ylabel("p99 of the delay, µs")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    canvas.supxlabel(
        "filled: keys stay whole; hollow: records and state of a key are split", fontsize=8
    )


def our_scatter(part: Part, canvas: Figure) -> None:
    """`trim` and the settings of SMALOPS: p99 of the whole run by hash's, against migrations."""
    found = part.figures["shifting"]
    panels = [(w, shift) for w, shifts in found.items() for shift in shifts]
    if not panels:
        return
    columns = 2
    rows = -(-len(panels) // columns)
    canvas.set_size_inches(7.6, 0.8 + 2.4 * rows)
    grid = canvas.subplots(rows, columns, squeeze=False, sharex=True)
    legend: dict[str, Any] = {}
    places = [axes for row in grid for axes in row]
    for axes, (window_s, shift) in zip(places, panels, strict=False):
        policies = found[window_s][shift]
        hashed = policies["hash"]["p99_us"]
        points = {
            name: (each["migrations"], each["p99_us"] / hashed) for name, each in policies.items()
        }
        _scatter(axes, points, dict.fromkeys(points, True))
        if max(y for _, y in points.values()) < 10:
            axes.set_yscale("linear")
            axes.set_ylim(0, 1.1 * max(y for _, y in points.values()))
        axes.set_title(f"windows of {window_s} s, keys shift by {shift}", fontsize=9)
        handles, names = axes.get_legend_handles_labels()
        legend |= dict(zip(names, handles, strict=True))
    for row in grid:
        row[0].set_ylabel("p99 of the whole run, hash = 1")
    for axes in grid[-1]:
        axes.set_xlabel("migrations")
    canvas.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=3, fontsize=8)


def _scatter(
    axes: Axes, points: Mapping[str, tuple[float, float]], whole: Mapping[str, bool]
) -> None:
    """A colour for each family, a marker for each policy of it."""
    from matplotlib.ticker import FuncFormatter

    used: Counter[str] = Counter()
    for name, (x, y) in points.items():
        colour = _colour(name)
        marker = "*" if name == "trim" else _MARKERS[used[colour]]
        used[colour] += 1
        axes.scatter(
            x,
            y,
            s=110 if name == "trim" else 34,
            marker=marker,
            color=colour if whole[name] else "white",
            edgecolors=colour,
            label=name,
            zorder=3,
        )
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yscale("log")
    axes.set_xlim(-0.5, 1e6)
    axes.set_xticks([0, 1, 100, 10_000, 1_000_000])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    _plain(axes.yaxis)
    axes.margins(y=0.15)
    axes.grid()


def _short(value: float) -> str:
    """A large number in few characters.

    >>> _short(100), _short(10_000), _short(1_000_000)
    ('100', '10 k', '1 M')
    """
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _nines(share: float) -> float:
    """0, 1, 2 and so on for 0, 90, 99 % and so on."""
    return -math.log10(1 - share)


def _colour(name: str) -> str:
    for known, colour in _COLOURS.items():
        if name.startswith(known):
            return colour
    return _INK


def _line(name: str) -> dict[str, Any]:
    return {**_stairs(name), "linestyle": "--" if name == "round-robin" else "-"}


def _stairs(name: str) -> dict[str, Any]:
    """Lines that often coincide: a wide one below a narrow one."""
    return {"color": _colour(name), "linewidth": 3.0 if name == "smalops" else 1.5}


def _ms(values: Sequence[float]) -> list[float]:
    return [value / 1000 for value in values]


def _plain(axis: Axis) -> None:
    """Writes powers of ten as plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
