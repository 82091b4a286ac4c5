"""A topology audit as figures: leaders, broker loads, effects of failures.

Promise  Equal audits give equal text. Colours can be told apart by colour-blind people and have
         one meaning each: blue is normal, orange is uneven, red is bad, green is the best possible.
Cost     About 200 ms per figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trimtab.audit.faults import Fault
from trimtab.audit.finding import counted, named
from trimtab.audit.known_loads import ROUNDING, Basis, CarriedLoads
from trimtab.audit.layout import Layout
from trimtab.audit.topology import Audit
from trimtab.audit.unevenness import Level
from trimtab.model.cluster import BrokerId
from trimtab.report.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    SKY,
    engineering,
    inline_figure,
    legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOPICS = 30
MOST_BROKERS = 40
MOST_FAULTS = 12
_LONGEST = 34
_SMALL = 7.0
_MOST_LABELS = 16
_MOST_DEAD = 6
_UPRIGHT = 24


def matrix(audit: Audit) -> str:
    """Topics × brokers: the number of partitions led; darker cells have more load."""
    topics = shown_topics(audit)
    with inline_figure("leaders by topic", height=1.0 + 0.22 * max(len(topics), 2)) as (axes, svg):
        draw_matrix(axes, audit)
    return svg()


def loads(audit: Audit) -> str:
    """The load of each broker under every policy."""
    with inline_figure("load of each broker") as (axes, svg):
        draw_loads(axes, audit)
    return svg()


def failures(audit: Audit) -> str:
    """The worst failures: what goes offline, and the peak on the remaining brokers."""
    count = min(len(audit.faults), MOST_FAULTS)
    with inline_figure("the worst failures", height=1.1 + 0.28 * max(count, 2)) as (axes, svg):
        draw_failures(axes, audit)
    return svg()


def worst_failure(audit: Audit, after: CarriedLoads) -> str:
    """The load of each broker before and after the worst failure."""
    with inline_figure("load of each broker after the worst failure") as (axes, svg):
        draw_worst(axes, audit, after)
    return svg()


# ---------------------------------------------------------------- leaders


def shown_topics(audit: Audit) -> list[int]:
    """The busiest topics with a leader, grouped by max group, as positions in the layout."""
    layout = audit.layout
    known = {one.topic: one.peak_to_mean for one in audit.uneven}
    rate = [sum(led.values()) for led in _led_loads(audit)]

    def importance(topic: int) -> tuple[float, float, str]:
        name = layout.topics[topic]
        return -rate[topic], -float(known.get(name, 1)), name

    online = [t for t, count in enumerate(layout.available.tolist()) if count]
    busiest = sorted(online, key=importance)[:MOST_TOPICS]
    group = {name: at for at, one in enumerate(audit.groups) for name in one.topics}
    return sorted(busiest, key=lambda topic: (group[layout.topics[topic]], layout.topics[topic]))


def _led_loads(audit: Audit) -> list[dict[BrokerId, float]]:
    """For each topic, the load of each of its leaders."""
    layout = audit.layout
    found: list[dict[BrokerId, float]] = [{} for _ in layout.topics]
    rows = zip(
        layout.topic_of.tolist(),
        layout.leader_of.tolist(),
        audit.weights.weight.tolist(),
        strict=True,
    )
    for topic, place, weight in rows:
        if place >= 0:
            led, broker = found[topic], layout.brokers[place]
            led[broker] = led.get(broker, 0.0) + weight
    return found


def draw_matrix(axes: Axes, audit: Audit) -> None:
    """Draws the matrix."""
    from matplotlib.patches import Rectangle

    layout, topics, brokers = audit.layout, shown_topics(audit), _busiest(audit)
    column = {broker: at for at, broker in enumerate(brokers)}
    loads = _led_loads(audit)
    judged = [_Judged.of(audit, topic, loads[topic]) for topic in topics]
    cells = [
        (row, column[broker], count, loads[topic][broker], judged[row].colour(broker))
        for row, topic in enumerate(topics)
        for broker, count in _led(layout, topic)
        if broker in column
    ]
    most = max((sent for *_, sent, _ in cells), default=0.0) or 1.0
    for row, at, count, sent, colour in cells:
        axes.add_patch(
            Rectangle(
                (at - 0.5, row - 0.5),
                1,
                1,
                facecolor=colour,
                alpha=0.25 + 0.55 * (sent / most),
                linewidth=0,
            )
        )
        axes.text(at, row, str(count), ha="center", va="center", fontsize=_SMALL)
    group = {name: at for at, one in enumerate(audit.groups) for name in one.topics}
    of_row = [group[layout.topics[topic]] for topic in topics]
    for row in range(1, len(topics)):
        apart = of_row[row] != of_row[row - 1]
        axes.axhline(row - 0.5, color=INK, linewidth=0.9 if apart else 0.2, alpha=0.5)
    for row, one in enumerate(judged):
        if one.full:
            _beside(axes, row, f"{one.peak_to_mean:.2f} × mean", INK)
    axes.set_yticks(range(len(topics)), [_short(layout.topics[t]) for t in topics])
    _brokers_below(axes, audit, brokers, with_loads=len(brokers) <= _MOST_LABELS)
    axes.set_ylim(max(len(topics), 1) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    kinds = {colour for *_, colour in cells}
    words = {
        "even, or fewer than others": BLUE,
        "more than other leaders": ORANGE,
        "more than necessary": RED,
    }
    legend(axes, {word: colour for word, colour in words.items() if colour in kinds})


class _Judged(NamedTuple):
    """How evenly a topic is spread over its leaders: by measured load, else by number."""

    full: frozenset[BrokerId]
    avoidable: bool
    peak_to_mean: float

    @classmethod
    def of(cls, audit: Audit, topic: int, loads: Mapping[BrokerId, float]) -> _Judged:
        name = audit.layout.topics[topic]
        uneven = next((one for one in audit.uneven if one.topic == name), None)
        if audit.carried.basis is Basis.RATES and name not in audit.loads.unmeasured:
            mean = sum(loads.values()) / len(loads)
            wanted = audit.options.wanted_peak * mean
            full = frozenset(broker for broker, load in loads.items() if load > wanted)
            return cls(full, False, max(loads.values()) / mean if mean else 1.0)
        if uneven is None:
            return cls(frozenset(), False, 1.0)
        counts = zip(uneven.brokers, uneven.counts, strict=True)
        full = frozenset(broker for broker, count in counts if count > min(uneven.counts))
        return cls(full, uneven.level is not Level.NOTE, float(uneven.peak_to_mean))

    def colour(self, broker: BrokerId) -> str:
        """The colour of a broker's cell."""
        if broker not in self.full:
            return BLUE
        return RED if self.avoidable else ORANGE


def _led(layout: Layout, topic: int) -> list[tuple[BrokerId, int]]:
    begin, end = layout.led.start[topic : topic + 2].tolist()
    rows = zip(
        layout.led.broker[begin:end].tolist(), layout.led.count[begin:end].tolist(), strict=True
    )
    return [(layout.brokers[place], count) for place, count in rows]


# ---------------------------------------------------------------- broker loads


def draw_loads(axes: Axes, audit: Audit) -> None:
    """Draws the load of each broker, with the mean and the least possible peak."""
    now, brokers = audit.carried, _busiest(audit)
    measured = now.basis is Basis.RATES
    bars = [("as measured" if measured else "now", now.by_broker, BLUE)]
    if measured:
        bars += [
            ("if sent to partitions in turn", audit.loads.default.by_broker, GREY),
            ("if sent to leaders in turn", audit.loads.node.by_broker, SKY),
        ]
    width = 0.84 / len(bars)
    full = _full(audit, now)
    for number, (_, by_broker, colour) in enumerate(bars):
        left = -0.42 + width * (number + 0.5)
        for at, broker in enumerate(brokers):
            high = colour == BLUE and by_broker[broker] > full
            axes.bar(at + left, by_broker[broker], width, color=RED if high else colour)
    least = audit.loads.least.peak if measured else now.bound
    axes.axhline(now.mean, color=INK, linewidth=1.0, linestyle=":")
    axes.axhline(least, color=GREEN, linewidth=1.6)
    over = any(now.by_broker[broker] > full for broker in brokers)
    legend(
        axes,
        {
            **{name: colour for name, _, colour in bars},
            **({_over(audit, now): RED} if over else {}),
            "mean (dotted)": INK,
            "least possible with any partitioner" if measured else "best spread of leaders": GREEN,
        },
        columns=3,
    )
    _brokers_below(axes, audit, brokers)
    _loads_left(axes, now)


def _full(audit: Audit, of: CarriedLoads) -> float:
    """The load above which a broker is overloaded: more than wanted and more than necessary."""
    return max(audit.options.wanted_peak * of.mean, _held(of)) * (1 + ROUNDING)


def _held(of: CarriedLoads) -> float:
    """The peak of the best spread; used if loads are estimated from leaders only."""
    return 0.0 if of.basis is Basis.RATES else of.bound


def _over(audit: Audit, of: CarriedLoads) -> str:
    """The meaning of red bars."""
    if _held(of) > audit.options.wanted_peak * of.mean:
        return "more than the best spread"
    return f"more than {audit.options.wanted_peak:g} × mean"


def draw_worst(axes: Axes, audit: Audit, after: CarriedLoads) -> None:
    """Draws the load of each broker before and after the worst failure."""
    fault = audit.faults[0]
    before, now = audit.carried.by_broker, after.by_broker
    alive = sorted(set(audit.brokers).difference(fault.dead), key=lambda b: (-now[b], b))
    few = fault.dead[:_MOST_DEAD]
    brokers = sorted((*few, *alive[: MOST_BROKERS - len(few)]))
    full = _full(audit, after)
    for at, broker in enumerate(brokers):
        axes.bar(at - 0.21, before[broker], 0.4, color=GREY)
        axes.bar(at + 0.21, now[broker], 0.4, color=RED if now[broker] > full else BLUE)
    axes.axhline(after.mean, color=INK, linewidth=1.0, linestyle=":")
    over = any(now[broker] > full for broker in brokers)
    above = {_over(audit, after): RED} if over else {}
    legend(axes, {"now": GREY, "afterwards": BLUE, **above, "mean afterwards (dotted)": INK})
    apart = "\n" if len(brokers) <= _UPRIGHT else " "
    names = [f"{b}{apart}dead" if b in fault.dead else str(b) for b in brokers]
    _below(axes, names, of=len(audit.brokers))
    _loads_left(axes, after)


# ---------------------------------------------------------------- failures


def draw_failures(axes: Axes, audit: Audit) -> None:
    """Draws the peaks after the worst failures, with what each of them breaks."""
    shown = audit.faults[:MOST_FAULTS]
    now = audit.carried.peak_to_mean
    peaks = [f.peak_to_mean for f in shown] + [now, 1.0]
    for at, fault in enumerate(shown):
        colour = RED if fault.unwritable else BLUE
        axes.plot([1.0, fault.peak_to_mean], [at, at], color=colour, linewidth=5, alpha=0.55)
        axes.plot(fault.peak_to_mean, at, "o", color=colour, markersize=7)
        axes.plot(fault.bound_to_mean, at, "|", color=GREEN, markersize=11, markeredgewidth=2)
        axes.annotate(
            f"{fault.peak_to_mean:.2f}",
            (fault.peak_to_mean, at),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=_SMALL + 1,
        )
        _beside(axes, at, breaks(fault), RED if fault.unwritable else INK)
    axes.axvline(now, color=INK, linewidth=1.0, linestyle="--", zorder=0)
    low, high = min(peaks), max(peaks)
    room = max(high - low, 0.25)
    axes.set_xlim(low - 0.05 * room, high + 0.2 * room)
    axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [_name(fault) for fault in shown])
    some_left = len(audit.faults) > len(shown)
    rest = f"; the worst {len(shown)} of {len(audit.faults):,}" if some_left else ""
    axes.set_xlabel(f"highest load × mean of the remaining brokers{rest}")
    axes.grid(axis="x")
    outage = {"partitions unwritable": RED} if any(f.unwritable for f in shown) else {}
    harmless = {"all stay writable": BLUE} if any(not f.unwritable for f in shown) else {}
    key = {**outage, **harmless, "least possible": GREEN, "today (dashed)": INK}
    legend(axes, key, columns=2)


def _name(fault: Fault) -> str:
    crowd = fault.what and len(fault.dead) > 3
    return _short(f"{fault.what} ({len(fault.dead)} brokers)" if crowd else named(fault))


def breaks(fault: Fault) -> str:
    """A short text that says what a failure breaks; empty if it only adds load."""
    said = []
    if fault.offline_partitions:
        whole = f" ({counted(fault.offline_topics, 'topic')})" if fault.offline_topics else ""
        said.append(f"{fault.offline_partitions:,} offline{whole}")
    if fault.below_min_insync:
        said.append(f"{fault.below_min_insync:,} refuse acks=all")
    return ", ".join(said)


# ---------------------------------------------------------------- parts of figures


def _beside(axes: Axes, row: int, text: str, colour: str) -> None:
    """Writes a text to the right of a row."""
    axes.annotate(
        text,
        (1.0, row),
        xycoords=("axes fraction", "data"),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=_SMALL + 0.5,
        color=colour,
    )


def _busiest(audit: Audit) -> list[BrokerId]:
    by_broker = audit.carried.by_broker
    return sorted(sorted(audit.brokers, key=lambda b: (-by_broker[b], b))[:MOST_BROKERS])


def _brokers_below(
    axes: Axes, audit: Audit, brokers: Sequence[BrokerId], *, with_loads: bool = False
) -> None:
    now, down = audit.carried, audit.options.down
    mean, full = now.mean or 1.0, _full(audit, now)
    apart = "\n" if len(brokers) <= _UPRIGHT else " "
    times = [now.by_broker[broker] / mean for broker in brokers]
    names = [f"{broker}{apart}down" if broker in down else str(broker) for broker in brokers]
    if with_loads:
        names = [f"{name}\n{load:.2f}" for name, load in zip(names, times, strict=True)]
    _below(axes, names, of=len(audit.brokers))
    if with_loads:
        axes.set_xlabel(f"{axes.get_xlabel()}, and its load × mean")
        for mark, load in zip(axes.get_xticklabels(), times, strict=True):
            mark.set_color(RED if load * mean > full else INK)


def _below(axes: Axes, names: Sequence[str], *, of: int) -> None:
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > _UPRIGHT else 0)
    axes.set_xlim(-0.6, max(len(names), 1) - 0.4)
    rest = f" (the {len(names)} busiest of {of:,})" if of > len(names) else ""
    axes.set_xlabel(f"broker{rest}")


def _loads_left(axes: Axes, found: CarriedLoads) -> None:
    from matplotlib.ticker import MaxNLocator

    match found.basis:
        case Basis.RATES:
            axes.set_ylabel("load" if found.unit is None else str(found.unit))
            axes.yaxis.set_major_formatter(engineering())
        case Basis.BYTES:
            axes.set_ylabel("bytes stored")
            axes.yaxis.set_major_formatter(engineering())
        case Basis.LEADERS:
            axes.set_ylabel("partitions led")
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
