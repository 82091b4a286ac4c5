"""Results as figures: values in, inline SVG text out.

Promise  Equal values give equal text. Text and lines inherit the text colour of the page, so a
         figure is readable on light and dark backgrounds. The palette is that of Okabe and Ito,
         which colour-blind people can tell apart.
Cost     About 100 ms per figure; matplotlib is loaded by the first one.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, KeyLoad, PartitionLoad, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import EngFormatter
    from matplotlib.typing import RcKeyType

BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"
RED, PURPLE, SKY, GREY = "#d55e00", "#cc79a7", "#56b4e9", "#999999"
OWNERS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
STATES = {
    "ok": GREEN,
    "warning": ORANGE,
    "error": RED,
    "stalled": PURPLE,
    "stopped": PURPLE,
    "rewound": BLUE,
    "unknown": GREY,
}
MOST_BARS = 40
MOST_LINES = 5
MOST_KEYS = 15
MOST_LABELS = 8

INK = "#0b0c0d"  # placeholder for the text colour of the page; no palette uses it
_STYLE: dict[RcKeyType, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "svg.fonttype": "none",  # keep text as text: smaller, and searchable
    "svg.hashsalt": "trimtab",
    "text.parse_math": False,  # a key may contain dollar signs
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "grid.color": INK,
    "grid.alpha": 0.15,
}


class RatePoint(NamedTuple):
    """The rate of a partition in one window; `ts` is the middle of the window, in microseconds."""

    ts: int
    bytes_s: float | None
    records_s: float | None

    def rate(self, unit: Unit) -> float | None:
        """The rate in this unit; None if it is unknown."""
        return self.bytes_s if unit is Unit.BYTES_S else self.records_s


RateHistory = Mapping[TopicPartition, Sequence[RatePoint]]


def rates(loads: Mapping[TopicPartition, float], owners: Assignment, unit: Unit) -> str:
    """Each partition's rate, coloured by the consumer that reads it."""
    shown = _heaviest(loads)
    by_owner = len(owners.consumers) <= len(OWNERS)
    with inline_figure("rate of each partition") as (axes, svg):
        for at, name in enumerate(shown):
            owner = owners.get(name)
            plain = GREY if owner is None else BLUE
            axes.bar(
                at, loads[name], color=OWNERS[owner] if by_owner and owner is not None else plain
            )
        if by_owner and owners:
            legend(axes, {f"consumer {c}": OWNERS[c] for c in owners.consumers})
        _partitions_below(axes, shown, of=len(loads))
        _rates_left(axes, unit)
    return svg()


def rates_over_time(history: RateHistory, *, from_ts: int, unit: Unit) -> str:
    """Rates over the windows: the fastest partitions in colour, the others in grey."""
    lines = {
        name: [((p.ts - from_ts) / 1e6, rate) for p in points if (rate := p.rate(unit)) is not None]
        for name, points in history.items()
    }
    order = sorted(lines, key=lambda n: (-max((rate for _, rate in lines[n]), default=0.0), n))
    with inline_figure("rates over time") as (axes, svg):
        for name in reversed(order[MOST_LINES:]):
            axes.plot(*_columns(lines[name]), color=GREY, linewidth=0.8, alpha=0.7)
        for name, colour in reversed(list(zip(order[:MOST_LINES], OWNERS, strict=False))):
            axes.plot(*_columns(lines[name]), color=colour, linewidth=1.8, marker="o", markersize=3)
        named = dict(zip(map(str, order), OWNERS[:MOST_LINES], strict=False))
        rest = {f"{len(order) - MOST_LINES} others": GREY} if len(order) > MOST_LINES else {}
        legend(axes, named | rest)
        axes.set_xlabel("seconds since the start of the span")
        axes.set_ylim(bottom=0)
        _rates_left(axes, unit)
    return svg()


def heavy_keys(keys: Sequence[KeyLoad]) -> str:
    """The heaviest keys with the uncertain part of their count."""
    shown = sorted(keys, key=lambda k: (-k.lower, k.topic, k.key))[:MOST_KEYS]
    with inline_figure("heavy keys", height=0.6 + 0.22 * len(shown)) as (axes, svg):
        places = range(len(shown))
        axes.barh(places, [k.lower for k in shown], color=BLUE)
        doubtful = [k.upper - k.lower for k in shown]
        if any(doubtful):
            axes.barh(places, doubtful, left=[k.lower for k in shown], color=SKY)
            legend(axes, {"surely": BLUE, "at most": SKY})
        for at, key in enumerate(shown):
            axes.annotate(
                f"{key.share:.1%}, partition {key.partition_home}",
                (key.upper, at),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(places, [label(k.key) for k in shown])
        axes.invert_yaxis()
        axes.margins(x=0.22)
        axes.set_xlabel("records in the span")
        axes.xaxis.set_major_formatter(engineering())
        axes.grid(axis="x")
    return svg()


def lag(
    partitions: Collection[PartitionLoad],
    group: str,
    states: Mapping[tuple[str, TopicPartition], str],
) -> str:
    """A group's lag on each partition, coloured by its state."""
    known = {p.name: p.lag[group] for p in partitions if group in p.lag}
    shown = _heaviest({name: float(lag or 0) for name, lag in known.items()})
    with inline_figure(f"lag of group {group}") as (axes, svg):
        seen = []
        for at, name in enumerate(shown):
            records, state = known[name], states.get((group, name), "unknown")
            seen.append(state)
            axes.bar(at, records or 0, color=STATES.get(state, GREY))
            if records is None:
                axes.text(at, 0, "?", ha="center", va="bottom")
        legend(axes, {state: colour for state, colour in STATES.items() if state in seen})
        _partitions_below(axes, shown, of=len(known))
        axes.set_ylabel("records behind")
        axes.yaxis.set_major_formatter(engineering())
        axes.set_ylim(bottom=0, top=None if any(known.values()) else 1)
        axes.grid(axis="y")
    return svg()


def consumers(
    loads: Mapping[TopicPartition, float],
    before: Assignment,
    after: Assignment,
    limits: GroupLimits,
) -> str:
    """The load of each consumer before and after, beside its capacity."""
    carried, carries = before.loads(loads), after.loads(loads)
    shown = sorted({*carried, *carries})[:MOST_BARS]
    with inline_figure("load of each consumer, before and after") as (axes, svg):
        overloaded, names = False, []
        for at, consumer in enumerate(shown):
            room = limits.of(consumer)
            was, will = carried.get(consumer, 0.0), carries.get(consumer, 0.0)
            overloaded |= max(was, will) > room
            axes.bar(at - 0.2, was, 0.38, color=RED if was > room else GREY)
            axes.bar(at + 0.2, will, 0.38, color=RED if will > room else BLUE)
            axes.plot([at - 0.45, at + 0.45], [room, room], color=INK, linewidth=1.4)
            names.append(f"{consumer}\n{was / room:.0%} → {will / room:.0%}")
        over = {"over its capacity": RED} if overloaded else {}
        legend(axes, {"before": GREY, "after": BLUE, **over, "capacity": INK})
        roomy = len(shown) <= MOST_LABELS
        axes.set_xticks(range(len(shown)), names if roomy else [str(c) for c in shown])
        axes.set_xlabel("consumer" + (", and its load in % of its capacity" if roomy else ""))
        _rates_left(axes, limits.unit)
    return svg()


def label(key: bytes, *, longest: int = 24) -> str:
    r"""A key as a short printable text.

    >>> label(b"a\x00b"), label(b"\xff"), label(b"x" * 30)
    ('a\\x00b', '\\xff', 'xxxxxxxxxxxxxxxxxxxxxxx…')
    """
    text = key.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


# ---------------------------------------------------------------- parts of figures


def _heaviest(loads: Mapping[TopicPartition, float]) -> list[TopicPartition]:
    """The partitions to show, in their own order; only the heaviest if there are too many."""
    heaviest = sorted(loads, key=lambda name: (-loads[name], name))
    return sorted(heaviest[:MOST_BARS])


def _partitions_below(axes: Axes, shown: Sequence[TopicPartition], *, of: int) -> None:
    topics = sorted({name.topic for name in shown})
    several = len(topics) > 1
    names = [str(name) if several else str(name.partition) for name in shown]
    axes.set_xticks(range(len(shown)), names, rotation=90 if several else 0)
    axes.set_xlim(-0.6, max(len(shown), 1) - 0.4)
    rest = f" (the {len(shown)} heaviest of {of})" if of > len(shown) else ""
    axes.set_xlabel(f"partition{'' if several or not topics else f' of {topics[0]}'}{rest}")


def _rates_left(axes: Axes, unit: Unit) -> None:
    axes.set_ylabel(str(unit))
    axes.yaxis.set_major_formatter(engineering())
    axes.grid(axis="y")


def engineering() -> EngFormatter:
    """Numbers with k, M and so on."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="\N{NARROW NO-BREAK SPACE}")


def legend(axes: Axes, colours: Mapping[str, str], *, columns: int = 6) -> None:
    """Draws a legend above the figure."""
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(color=colour, label=name) for name, colour in colours.items()],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.0,
        columnspacing=1.2,
    )


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


@contextmanager
def inline_figure(title: str, *, height: float = 2.6) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """Axes to draw on, and a function that returns their SVG after the block."""
    import matplotlib
    from matplotlib.figure import Figure

    text = ""
    # Settings apply inside the block only, without pyplot: other figures are not affected.
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # browsers have other fonts
        figure = Figure(figsize=(7.2, height), layout="constrained")
        yield figure.add_subplot(), lambda: text
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = _inline(written.getvalue(), title)


def _inline(svg: str, title: str) -> str:
    """The SVG for a page: no prolog, no fixed size, no ids that two figures would share."""
    from markupsafe import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r' id="[\w.]+?_\d+"', "", body)  # only labels; nothing refers to them
    body = re.sub(r'(<svg [^>]*?) ?width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg [^>]*?) ?height="[^"]*"', r"\1", body, count=1)
    body = body.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return body.replace(INK, "currentColor").strip()
