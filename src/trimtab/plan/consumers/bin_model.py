"""Items into bins as an integer programme, and the solver HiGHS that is asked for an answer.

Promise  Capacities hold exactly: every answer is checked, and an overfull set is excluded before
         the solver runs again. An answer says whether it is proven optimal or infeasible.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import TYPE_CHECKING

from trimtab.model.cluster import TopicPartition
from trimtab.plan.consumers.deadline import Deadline

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class BinModel:
    """Items into bins, each item once: min Σ price·y − Σ gain·x.

    Attributes:
        sizes: Sizes of the items, in each dimension.
        rooms: Capacities of the bins, in each dimension.
        price: Price of each bin in use; without it all are free.
        gain: Gain of each (bin, item).
        least: Minimum number of bins in use.
        most: Maximum number of bins in use.
        alike: Interchangeable bins, used from the first on.
        barred: Forbidden pairs (bin, item).
    """

    sizes: tuple[tuple[float, ...], ...]
    rooms: tuple[tuple[float, ...], ...]
    price: tuple[int, ...] = ()
    gain: Mapping[tuple[int, int], float] = field(default_factory=dict)
    least: int = 0
    most: int | None = None
    alike: range = range(0)
    barred: frozenset[tuple[int, int]] = frozenset()

    def overfull(self, bin_of: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Dimension and items of each overfull bin, compared exactly."""
        for b in sorted(set(bin_of)):
            inside = tuple(k for k, at in enumerate(bin_of) if at == b)
            for d, sizes in enumerate(self.sizes):
                if _sum(sizes, inside) > self.rooms[d][b]:
                    yield d, inside
                    break


def _sum(sizes: Sequence[float], inside: Iterable[int]) -> float:
    return sum(sizes[k] for k in inside)


def alike_bins(
    sizes: tuple[tuple[float, ...], ...], rooms: tuple[float, ...], least: int, bins: int
) -> BinModel:
    """Breaks symmetry: bins are ordered by their first item, so item k is in bins 0..k."""
    return BinModel(
        sizes=sizes,
        rooms=tuple((room,) * bins for room in rooms),
        price=(1,) * bins,
        least=least,
        alike=range(bins),
        barred=frozenset((b, k) for b in range(bins) for k in range(min(b, len(sizes[0])))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BinAnswer:
    """The bin of each item, None if none was found; whether proven optimal or infeasible."""

    bin_of: tuple[int, ...] | None
    proven: bool
    bound: float

    @property
    def bound_up(self) -> int:
        """The bound, rounded up to an integer."""
        return math.ceil(self.bound - 1e-6) if math.isfinite(self.bound) else 0

    def bins(self, items: Sequence[TopicPartition]) -> list[list[TopicPartition]]:
        """The items bin by bin, without bins that are not in use."""
        held: dict[int, list[TopicPartition]] = {}
        for item, b in zip(items, self.bin_of or (), strict=True):
            held.setdefault(b, []).append(item)
        return [held[b] for b in sorted(held)]


def solved(model: BinModel, deadline: Deadline) -> BinAnswer:
    """Runs HiGHS, again and again while its answer has an overfull bin."""
    too_much: set[tuple[int, tuple[int, ...]]] = set()
    while True:
        answer = _asked(model, too_much, deadline)
        found = set(model.overfull(answer.bin_of or ()))
        if not found:
            return answer
        if found <= too_much:  # within its tolerance the solver may ignore an exclusion
            return BinAnswer(bin_of=None, proven=False, bound=answer.bound)
        too_much |= found


def _asked(
    model: BinModel, too_much: Collection[tuple[int, tuple[int, ...]]], deadline: Deadline
) -> BinAnswer:
    """One run of the solver. Its variables: x of bin 0, of bin 1, …, then y of all bins."""
    import numpy as np
    from scipy.optimize import Bounds, milp

    bins, items = len(model.rooms[0]), len(model.sizes[0])
    if not bins:
        return BinAnswer(bin_of=None, proven=True, bound=math.inf)
    cost = np.zeros(bins * (items + 1))
    for (b, k), gain in model.gain.items():
        cost[b * items + k] = -gain
    cost[bins * items :] = model.price or 0
    upper = np.ones(len(cost))
    for b, k in model.barred:
        upper[b * items + k] = 0
    for sizes, rooms in zip(model.sizes, model.rooms, strict=True):
        upper[: bins * items][np.less.outer(rooms, sizes).ravel()] = 0
    result = milp(
        cost,
        integrality=np.ones(len(cost), dtype=np.int64),
        bounds=Bounds(np.zeros(len(cost)), upper),
        constraints=_rows(model, too_much).constraint(len(cost)),
        options={"mip_rel_gap": 0.0, "time_limit": deadline.left_s()},
    )
    if result.status not in _ANSWERS:
        raise RuntimeError(f"the solver failed: {result.message}")
    bound = -math.inf if result.mip_dual_bound is None else float(result.mip_dual_bound)
    chosen = None
    if result.x is not None:
        x = result.x[: bins * items].reshape(bins, items)
        chosen = tuple(int(b) for b in x.argmax(axis=0))
    return BinAnswer(bin_of=chosen, proven=result.status != _OUT_OF_TIME, bound=bound)


_OUT_OF_TIME, _INFEASIBLE = 1, 2
_ANSWERS = (0, _OUT_OF_TIME, _INFEASIBLE)


def _rows(model: BinModel, too_much: Collection[tuple[int, tuple[int, ...]]]) -> _Rows:
    """The constraints of a model, and exclusions of sets that were found overfull."""
    bins, items = range(len(model.rooms[0])), range(len(model.sizes[0]))
    x = [[b * len(items) + k for k in items] for b in bins]
    y = [len(bins) * len(items) + b for b in bins]
    rows = _Rows()
    for k in items:
        rows.add({x[b][k]: 1.0 for b in bins}, low=1, high=1)
    for d, b in product(range(len(model.rooms)), bins):
        # Sizes relative to the room, so that the solver's tolerance is relative to it.
        parts = {x[b][k]: model.sizes[d][k] / model.rooms[d][b] for k in items}
        rows.add({**parts, y[b]: -1.0}, high=0)
    for b, k in product(bins, items):
        rows.add({x[b][k]: 1.0, y[b]: -1.0}, high=0)
    for b in model.alike[1:]:
        rows.add({y[b]: 1.0, y[b - 1]: -1.0}, high=0)
    rows.add(
        {y[b]: 1.0 for b in bins},
        low=model.least,
        high=len(bins) if model.most is None else model.most,
    )
    for (d, inside), b in product(sorted(too_much), bins):
        if _sum(model.sizes[d], inside) > model.rooms[d][b]:
            rows.add({x[b][k]: 1.0 for k in inside}, high=len(inside) - 1)
    return rows


@dataclass(slots=True)
class _Rows:
    """Linear constraints, row by row."""

    rows: list[dict[int, float]] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    def add(self, row: dict[int, float], *, low: float = -math.inf, high: float) -> None:
        self.rows.append(row)
        self.lows.append(low)
        self.highs.append(high)

    def constraint(self, variables: int) -> LinearConstraint:
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_array

        values = [value for row in self.rows for value in row.values()]
        columns = [column for row in self.rows for column in row]
        starts = [0, *accumulate(len(row) for row in self.rows)]
        matrix = csr_array((values, columns, starts), shape=(len(self.rows), variables))
        return LinearConstraint(matrix, self.lows, self.highs)
