"""Least-loaded first fit decreasing: the fewest consumers that keep a latency, evenly loaded.

Why      A record waits at most the SLA W if its consumer keeps up with arrivals, λ <= μ, and reads
         its backlog in time, lag <= μ·W: a bin with two dimensions.
Promise  Both sums stay within bounds on every consumer, each partition capped to a full consumer;
         partitions with lag > μ·W or λ > μ are named in the notes. Bins are tried by arrival rate,
         lag, number; n is the first number of bins from 1 up that places everything (more bins may
         fail where fewer did not, so only provably failing n are skipped).
Cost     For each n tried O(partitions · log n), more where lag binds; n may then be in hundreds.
Paper    Ezzeddine et al., algorithm 1 and appendix. Differs: `<=` throughout, λ is capped too, and
         bins are named by matching, so that little moves.

>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> plan = ll_ffd(
...     dict(zip(orders, (60, 50, 40))),
...     Assignment(),
...     GroupLimits(capacity=100),
...     PackingContext(lags={orders[0]: 450, orders[2]: 100}, sla_s=5),
... )
>>> [plan[p] for p in orders]
[0, 1, 1]
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.latency_demand import ROUNDING, Demand, demand_of
from trimtab.plan.consumers.matching import named
from trimtab.plan.consumers.planner import NO_CONTEXT, NO_OPTIONS, PackingContext, PlannerOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Floats = NDArray[np.float64]
    _Numbers = NDArray[np.int64]

_SIZES = 8  # number of lag sizes for the check whether all remaining items can find room
_BOARD = 64  # bins whose least lag is known

_Bin = tuple[float, float, int]  # its rate, its lag, its number


def ll_ffd(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """Packs by rate and lag, and names the bins so that the least rate changes its consumer."""
    demand = demand_of(loads, limits, context)
    return assigned(packed(demand), demand, current)


def assigned(
    bins: Sequence[Sequence[TopicPartition]],
    demand: Demand,
    current: Assignment,
    *,
    idle: Collection[int] = (),
    notes: Mapping[str, object] | None = None,
) -> Assignment:
    """Names the bins so that most of the arrival rate stays on its consumer."""
    weights = {p: demand.rate_share(p) for p in demand.arrivals}
    names = named(bins, current.only(demand.arrivals), weights, idle=idle)
    owners = {p: name for name, bin_ in zip(names, bins, strict=True) for p in bin_}
    return Assignment({p: owners[p] for p in sorted(owners)}, {**(notes or {}), **demand.notes()})


def fewest(demand: Demand) -> int:
    """A sharper lower bound, at least 1: also counts how many partitions of a size fit."""
    return _Shares(demand).fewest()


def packed(demand: Demand, *, start: int | None = None) -> list[list[TopicPartition]]:
    """The bins of the first number, from `start` up, that places all partitions.

    Without `start` the search skips numbers that are proven to fail; the result is the same as
    from 1. Without partitions there is one empty bin.
    """
    shares = _Shares(demand)
    n = shares.start() if start is None else start
    while (bins := shares.over(n)) is None:
        n += 1
    return bins


def spread(demand: Demand, n: int) -> list[list[TopicPartition]] | None:
    """The partitions over exactly n bins, or None if one does not fit."""
    return _Shares(demand).over(n)


class _Shares:
    """Rates and lags in the order of packing, as arrays."""

    def __init__(self, demand: Demand) -> None:
        import numpy as np

        self._items = demand.in_order()
        self._rates = np.array([demand.rate_share(p) for p in self._items], dtype=np.float64)
        self._lags = np.array([demand.lag_share(p) for p in self._items], dtype=np.float64)
        self._mu, self._most_lag = demand.mu, demand.most_lag

    def fewest(self) -> int:
        """A lower bound in each dimension, and in the mean of both."""
        rates, lags = self._rates / self._mu, self._lags / self._most_lag
        return max(1, *(_fewest(shares) for shares in (rates, lags, (rates + lags) / 2)))

    def start(self) -> int:
        """The first number of bins that is not proven to fail after one item is in each bin.

        If some lag finds no room then, it finds none with fewer bins either: there is one bin less
        and one more item to place. This condition is monotone, so it is found by bisection.
        """
        fewest, busy = self.fewest(), _busy(self._rates, self._lags)

        def may_do(n: int) -> bool:
            return not _lags_exceed_room(self._lags[n:busy], self._lags[:n], self._most_lag)

        return fewest + bisect_left(range(fewest, busy), True, key=may_do)

    def over(self, n: int) -> list[list[TopicPartition]] | None:
        """The partitions over n bins, or None if one does not fit."""
        bin_of = _spread(self._rates, self._lags, self._mu, self._most_lag, n)
        if bin_of is None:
            return None
        bins: list[list[TopicPartition]] = [[] for _ in range(n)]
        for item, number in zip(self._items, bin_of.tolist(), strict=True):
            bins[number].append(item)
        return bins


def _fewest(shares: _Floats) -> int:
    """A lower bound for shares of a full bin: their sum, and how many of each size fit."""
    import numpy as np

    largest_first = np.sort(shares[shares > 0])[::-1]
    if not len(largest_first):
        return 0
    together = math.ceil(float(largest_first.sum()) * (1 - ROUNDING))
    counts = np.arange(1, len(largest_first) + 1)
    # This many items of this size or more fit in one bin, at most all of them.
    abreast = np.floor((1 + ROUNDING) / np.maximum(largest_first, 1 / len(largest_first)))
    return max(together, int(np.ceil(counts / abreast).max()))


def _busy(rates: _Floats, lags: _Floats) -> int:
    """The number of items with rate or lag above 0; the others come last."""
    import numpy as np

    return int(np.count_nonzero((rates > 0) | (lags > 0)))


def _lags_exceed_room(lags: _Floats, bins: _Floats, most_lag: float) -> bool:
    """Whether some of these lags find no room in bins with these lags already."""
    import numpy as np

    # Two lags above half cannot share a bin: the largest needs the emptiest bin, and so on.
    large = np.sort(lags[lags > most_lag / 2 * (1 + ROUNDING)])[::-1]
    if len(large) > len(bins) or (np.sort(bins)[: len(large)] + large > most_lag).any():
        return True
    # Items of at least this size need room each, and a bin takes an integer number of them.
    rooms, parts = 1 + ROUNDING - bins / most_lag, np.sort(lags) / most_lag
    for at in range(0, len(parts), max(1, len(parts) // _SIZES)):
        size, wide = parts[at], rooms[rooms >= parts[at]]
        if parts[at:].sum() * (1 - ROUNDING) > wide.sum():
            return True
        if size * len(parts) > 1 and len(parts) - at > np.floor(wide / size).sum():
            return True
    return False


def _spread(rates: _Floats, lags: _Floats, mu: float, most_lag: float, n: int) -> _Numbers | None:
    """The bin of each item, or None if one does not fit.

    Bins are kept in the order in which they are tried. While each next item fits in the next bin,
    and no bin just filled would be tried before it, items are placed in one array step; from the
    first item that does not fit the first bin's lag, one by one.
    """
    import numpy as np

    bin_of = np.zeros(len(rates), dtype=np.int64)
    busy, at = _busy(rates, lags), 0
    line = _Line(n, mu, most_lag)
    while at < busy and not line.lag_is_in_the_way:
        end = min(busy, at + n)
        filled = line.fill(rates[at:end], lags[at:end])
        if filled is None:
            return None
        bin_of[at : at + len(filled)] = filled
        at += len(filled)
    bins = line.bins()
    full: list[_Bin] = []  # for all remaining items
    while at < busy:
        least = float(lags[at:busy].min())
        held = np.array([lag for _, lag, _ in bins])
        open_ = held + least <= most_lag
        if not open_.all():
            full += compress(bins, ~open_)
            bins, held = list(compress(bins, open_)), held[open_]
        if _lags_exceed_room(lags[at:busy], held, most_lag):
            return None
        end = min(busy, at + max(_BOARD, n // 4))
        shelf = _Shelf(bins, held)
        one_by_one = shelf.fill(rates[at:end].tolist(), lags[at:end].tolist(), mu, most_lag)
        if one_by_one is None:
            return None
        bin_of[at:end], at = one_by_one, end
        bins = shelf.bins()
    bin_of[busy:] = min(bins[:1] + full)[2]
    return bin_of


class _Line:
    """Bins in the order of rate, lag, number."""

    def __init__(self, n: int, mu: float, most_lag: float) -> None:
        import numpy as np

        self._mu, self._most_lag = mu, most_lag
        self._rates = np.zeros(n)
        self._lags = np.zeros(n)
        self._numbers = np.arange(n)
        self.lag_is_in_the_way = False  # of the item after those that `fill` has placed

    def bins(self) -> list[_Bin]:
        """All of them, the least loaded first."""
        columns = (self._rates.tolist(), self._lags.tolist(), self._numbers.tolist())
        return list(zip(*columns, strict=True))

    def fill(self, rates: _Floats, lags: _Floats) -> _Numbers | None:
        """Gives the first bins one item each while it is their turn; returns these bins.

        None if an item's rate does not fit the least loaded bin, and therefore no bin.
        """
        import numpy as np

        m = min(len(rates), len(self._rates))
        after = self._rates[:m] + rates[:m]
        overtaken = np.flatnonzero(self._rates[1:m] >= np.minimum.accumulate(after)[:-1])
        if len(overtaken):
            m = int(overtaken[0]) + 1
        after, after_lags = after[:m], self._lags[:m] + lags[:m]
        stop = np.flatnonzero((after > self._mu) | (after_lags > self._most_lag))
        self.lag_is_in_the_way = len(stop) > 0
        if len(stop):
            m = int(stop[0])
            if after[m] > self._mu:
                return None
        filled = self._numbers[:m].copy()
        self._rates[:m], self._lags[:m] = after[:m], after_lags[:m]
        self._sort()
        return filled

    def _sort(self) -> None:
        import numpy as np

        order = np.argsort(self._rates, kind="stable")
        in_order = self._rates[order]
        if (in_order[1:] == in_order[:-1]).any():
            order = np.lexsort((self._numbers, self._lags, self._rates))
        self._rates, self._lags = self._rates[order], self._lags[order]
        self._numbers = self._numbers[order]


class _Shelf:
    """Bins in order, in blocks whose least lag is known, so that most blocks are skipped."""

    def __init__(self, bins: list[_Bin], lags: _Floats) -> None:
        import numpy as np

        starts = range(0, len(bins), _BOARD)
        self._boards = [bins[at : at + _BOARD] for at in starts]
        self._starts = [bins[at] for at in starts]
        self._least: list[float] = np.minimum.reduceat(lags, starts).tolist()

    def bins(self) -> list[_Bin]:
        """All of them, the least loaded first."""
        return [bin_ for board in self._boards for bin_ in board]

    def fill(
        self, rates: Sequence[float], lags: Sequence[float], mu: float, most_lag: float
    ) -> list[int] | None:
        """Gives each item to the first bin with room for rate and lag; None if one does not fit."""
        filled = []
        for rate, lag in zip(rates, lags, strict=True):
            bin_ = self._taken(lag, most_lag)
            # If this bin has no room for the rate, no later bin has.
            if bin_ is None or bin_[0] + rate > mu:
                return None
            self._put((bin_[0] + rate, bin_[1] + lag, bin_[2]))
            filled.append(bin_[2])
        return filled

    def _taken(self, lag: float, most_lag: float) -> _Bin | None:
        """Removes and returns the first bin with room for this lag."""
        for at, least in enumerate(self._least):
            if least + lag > most_lag:
                continue
            board = self._boards[at]
            for place, bin_ in enumerate(board):
                if bin_[1] + lag <= most_lag:
                    del board[place]
                    return bin_
            # The bin with the least lag was removed: update the minimum only now.
            self._least[at] = min((lags for _, lags, _ in board), default=math.inf)
        return None

    def _put(self, bin_: _Bin) -> None:
        """Inserts a bin at its new position."""
        at = bisect_right(self._starts, bin_) - 1
        insort(self._boards[at], bin_)
        self._least[at] = min(self._least[at], bin_[1])
