"""The load of partitions before and after a plan for keys, as a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.plan import KeyPlan
from trimtab.plan.keys.plan import moved_totals
from trimtab.report.plots import (
    BLUE,
    GREY,
    INK,
    MOST_BARS,
    ORANGE,
    SKY,
    engineering,
    inline_figure,
    label,
    legend,
)

_MOST_SEGMENTS = 12
_NAMED_SHARE = 0.1
_MOST_NAMES = 12
_ON_A_BAR: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": "black"}


def partition_loads(counts: KeyCounts, plan: KeyPlan) -> str:
    """Each partition before and after: other keys, keys that stay, and keys that move."""
    target = {move.key: move.target for move in plan.moves}
    before, after = counts.partition_totals, moved_totals(counts.partition_totals, plan.moves)
    busiest = sorted(range(counts.partitions), key=lambda p: (-max(before[p], after[p]), p))
    shown = sorted(busiest[:MOST_BARS])
    mean = sum(before) / counts.partitions
    at_start, at_end = defaultdict(list), defaultdict(list)
    for key in sorted(counts.keys, key=lambda k: (-k.count, k.key)):
        at_start[key.partition].append(key)
        at_end[target.get(key.key, key.partition)].append(key)
    with inline_figure("load of each partition, before and after") as (axes, svg):
        for at, p in enumerate(shown):
            for place, total, keys in (
                (at - 0.2, before[p], at_start[p]),
                (at + 0.2, after[p], at_end[p]),
            ):
                bottom = total - sum(key.count for key in keys)
                axes.bar(place, bottom, 0.38, color=GREY)
                for height, colour, name in _segments(keys, target):
                    axes.bar(
                        place,
                        height,
                        0.38,
                        bottom=bottom,
                        color=colour,
                        edgecolor="white",
                        linewidth=0.4,
                    )
                    if name and height > _NAMED_SHARE * mean and len(shown) <= _MOST_NAMES:
                        axes.text(place, bottom + height / 2, name, **_ON_A_BAR)
                    bottom += height
        axes.axhline(mean, color=INK, linewidth=1.2, linestyle="--")
        colours = {"other keys": GREY, "smaller hot keys": BLUE, "hot keys": SKY}
        legend(axes, colours | {"keys that move": ORANGE, "mean": INK})
        axes.set_xticks(range(len(shown)), [str(p) for p in shown])
        rest = f" (the {len(shown)} busiest of {len(before)})" if len(before) > len(shown) else ""
        axes.set_xlabel(f"partition, left before and right after{rest}")
        axes.set_ylabel("records in the window")
        axes.yaxis.set_major_formatter(engineering())
        axes.grid(axis="y")
    return svg()


def _segments(
    keys: Sequence[KeyCount], moved: Iterable[bytes]
) -> list[tuple[int, str, str | None]]:
    """Height, colour and name of each part of a bar: the large keys alone, the rest together."""
    names = set(moved)
    alone = [key for at, key in enumerate(keys) if at < _MOST_SEGMENTS or key.key in names]
    rest = sum(key.count for key in keys) - sum(key.count for key in alone)
    parts: list[tuple[int, str, str | None]] = [(rest, BLUE, None)] if rest else []
    return parts + [
        (key.count, ORANGE if key.key in names else SKY, label(key.key, longest=8))
        for key in alone
        if key.count
    ]
