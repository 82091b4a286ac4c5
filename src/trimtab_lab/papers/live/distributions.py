"""Distributions of measured values: percentiles, cumulative curves, modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from trimtab.model.quantiles import quantile


def levels(
    values: Iterable[float], parts: Sequence[float] = (0.5, 0.9, 0.99)
) -> Mapping[str, float]:
    """Nearest-rank percentiles and the maximum; empty if there are no values.

    >>> levels([4.0, 1.0, 3.0, 2.0])
    {'p50': 2.0, 'p90': 4.0, 'p99': 4.0, 'max': 4.0}
    """
    ordered = sorted(values)
    if not ordered:
        return {}
    named = {f"p{part * 100:g}": quantile(ordered, part) for part in parts}
    return {**named, "max": ordered[-1]}


def curve(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    """The share of values that do not exceed each edge.

    >>> curve([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 9.0])
    [0.0, 0.5, 1.0]
    """
    return [sum(value <= edge for value in values) / len(values) for edge in edges]


def mode(values: Sequence[float], *, width: float = 0.1) -> float:
    """The centre of the window with the most values; the higher one if two have as many.

    All windows have the same width, `width` times the median to each side: windows that grow with
    the value would favour high values.

    >>> mode([1.0, 5.0, 20.0, 21.0, 19.5])
    20.0
    """
    reach = width * median(values)

    def around(value: float) -> list[float]:
        return [v for v in values if abs(v - value) <= reach]

    return median(around(max(values, key=lambda value: (len(around(value)), value))))
