"""Summarises the experiment's figures in a few sentences: gains and their cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab_lab.papers.burato.design import OURS, RACK_AWARE, STOCK, BrokerWorld
from trimtab_lab.papers.part import Parts
from trimtab_lab.papers.verdict import RowVerdict, VerdictRow

NEARLY = 1.5
"""Largest ratio of two p95s that counts as nearly as good."""

_Cell = Mapping[str, Any]


def result(parts: Parts) -> list[str]:
    """The lines of the page's first section; empty if nothing was run."""
    found = [*_slow_broker(parts), *_even_brokers(parts), *_throughput(parts)]
    return ["## The result\n", *(f"- {line}" for line in found), ""] if found else []


# ---------------------------------------------------------------- one slow broker


def _slow_broker(parts: Parts) -> Iterator[str]:
    if "open-loop" not in parts:
        return
    cells = [c for c in parts["open-loop"].figures["cells"] if c["world"] == BrokerWorld.SLOWED]
    compared = list(_with_best_stock(cells))
    if not compared:
        return
    listed = ", ".join(
        f"{_where(ours)} {best['p95_ms'][0] / ours['p95_ms'][0]:.2g} times ({best['policy']})"
        for ours, best in compared
    )
    yield (
        f"**With one slow broker** the p95 of {OURS} is lower than that of the best stock "
        f"partitioner by: {listed}. Below 1 is a loss; intervals are in the table."
    )
    yield from _overload(cells)
    yield from _one_partition([ours for ours, _ in compared])
    yield from _avoiding(cells, [ours for ours, _ in compared])


def _overload(cells: Sequence[_Cell]) -> Iterator[str]:
    over: dict[str, list[float]] = {}
    for cell in cells:
        if (cell["of_own"] or 0.0) > 1:
            over.setdefault(cell["policy"], []).append(cell["of_own"])
    unknown = sorted(
        {c["policy"] for c in cells if c["of_own"] is None and c["policy"].startswith(STOCK)}
    )
    if over:
        listed = ", ".join(f"{policy} {_span(times, '.2g')}" for policy, times in over.items())
        yield (
            "**The others were overloaded in these runs**: the sending rate, divided by their own "
            f"throughput in saturating runs, was for {listed}. Above 1 a queue grows until the run "
            "ends, and the p95 depends on the length of the run."
            + (f" Not measured for {', '.join(unknown)}." if unknown else "")
        )


def _one_partition(ours: Sequence[_Cell]) -> Iterator[str]:
    shares = [100 * max(cell["by_partition"].values()) for cell in ours if cell["topic"] == "U2"]
    if shares and min(shares) > 90:
        yield (
            f"**{OURS} put {_span(shares, '.0f')} % of U2 on one partition**, the one that the "
            "other broker leads: the consumer of that partition gets nearly all records."
        )


def _avoiding(cells: Sequence[_Cell], ours: Sequence[_Cell]) -> Iterator[str]:
    pairs = [
        (cell, float(cell["p95_ms"][0]), float(other["p95_ms"][0]))
        for cell in ours
        for other in cells
        if other["policy"] == f"{RACK_AWARE} in a" and _alike(other, cell)
    ]
    if pairs:
        near = all(other < NEARLY * mine for _, mine, other in pairs)
        listed = ", ".join(
            f"{other:.0f} ms compared with {mine:.0f} ms on {_where(cell)}"
            for cell, mine, other in pairs
        )
        yield (
            "**A partitioner that just avoids the slow broker** "
            f"{'does nearly as well' if near else 'behaves differently'}: {RACK_AWARE} in the rack "
            f"of broker 1, which sends nothing to the slow broker, has a p95 of {listed}. {OURS} "
            "finds the slow broker by itself, and uses it again when it has recovered."
        )


# ---------------------------------------------------------------- even brokers, throughput


def _even_brokers(parts: Parts) -> Iterator[str]:
    rows = parts["open-loop"].rows if "open-loop" in parts else ()
    even = [row for row in rows if f"p95 of {OURS} over the other's" in row.what]
    judged = [row for row in even if row.verdict is not RowVerdict.NOT_COMPARABLE]
    if even and not judged:
        yield (
            f"**On even brokers there is no clear result**, in {len(even)} settings: two policies "
            "that make the same choices differ as much."
        )
    elif even:
        listed = ", ".join(f"{row.ours:.2g} ({row.verdict})" for row in judged)
        yield (
            f"**On even brokers** {len(judged)} of {len(even)} settings have a verdict; the p95 of "
            f"{OURS} over that of the best stock partitioner: {listed}."
        )


def _throughput(parts: Parts) -> Iterator[str]:
    rows = parts["saturating"].rows if "saturating" in parts else ()
    if not rows:
        return
    clear = [row for row in rows if _clear_of_nothing(row)]
    listed = ", ".join(f"{_setting(row)} {row.ours:.0f} %" for row in clear) or "none"
    gained = [row for row in clear if _setting(row) == "node, U2 acks=all" and (row.ours or 0) > 0]
    yield (
        f"**Throughput**: of {len(rows)} differences between the thesis' partitioners and "
        f"Default, those with an interval that excludes 0 are: {listed}. The thesis' gain of 14 % "
        f"with Node on U2 with acks=-1 is {'also found here' if gained else 'not found here'}; "
        "with records of 100 bytes the client saturates before a broker."
    )


def _clear_of_nothing(row: VerdictRow) -> bool:
    """Whether a row's interval excludes 0.

    Older results have the interval only in their text, rounded; "-0" has kept its sign there, and
    an end of exactly 0 does not occur.
    """
    if row.interval is not None:
        low, high = row.interval
        return low > 0 or high < 0
    text, _, rest = row.what.rsplit("interval ", 1)[1].partition(" to ")
    return math.copysign(1, float(text)) == math.copysign(1, float(rest.split(" ")[0]))


def _setting(row: VerdictRow) -> str:
    return row.what.split(";")[0].removeprefix("% more throughput than default, ")


# ---------------------------------------------------------------- cells


def _with_best_stock(cells: Sequence[_Cell]) -> Iterator[tuple[_Cell, _Cell]]:
    """Each of our cells, with the cell of the stock partitioner that has the lowest p95."""
    for ours in (c for c in cells if c["policy"].startswith(OURS)):
        stock = [c for c in cells if _alike(c, ours) and c["policy"].startswith(STOCK)]
        if stock:
            yield ours, min(stock, key=lambda c: float(c["p95_ms"][0]))


def _alike(one: _Cell, other: _Cell) -> bool:
    named = ("topic", "acks", "world", "value_bytes", "load")
    return all(one[name] == other[name] for name in named)


def _where(cell: _Cell) -> str:
    return f"{cell['topic']} acks={cell['acks']} at {cell['load']:.0%}"


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
