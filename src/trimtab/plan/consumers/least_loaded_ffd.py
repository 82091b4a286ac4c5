"""Least-loaded first fit decreasing: the fewest consumers that keep a latency, evenly loaded.

Why      A record waits no longer than the SLA when its consumer keeps up with what arrives, λ <= μ,
         and can read its backlog in time, lag <= μ·W. So a consumer is a bin with two dimensions,
         and giving each partition to the least loaded one leaves every consumer room to breathe.
Promise  Both sums stay within bounds on every consumer, each partition counted as at most a full
         consumer: one with more lag than μ·W is late already, one with λ > μ can never be served,
         and the answer names both in its notes. Bins are tried in the order of arrival rate, lag,
         number; n is the first number of bins from 1 up with which nothing is left over, hence at
         most the number of partitions. More bins may fail where fewer did not, so none is skipped
         but those that are proven to fail. Sums are taken in the order of placing; rates and lags
         that are whole numbers make them exact.
Cost     For each n tried: O(partitions · log n) while lag does not bind; from then on, for each
         partition a walk along the bins that have no room for its lag, most of them passed in
         groups. Few n are tried unless lag binds; then there may be hundreds. Where lags find no
         room once every bin has one partition, they find none with fewer bins either: the first n
         comes from a bisection. The others are given up as soon as a count shows the same.
Paper    Ezzeddine et al., algorithm 1 and appendix. Differs: `<=` throughout, λ is capped too, and
         bins are named by matching, so that little moves.

>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> plan = ll_ffd(
...     dict(zip(orders, (60, 50, 40))),
...     Assignment(),
...     GroupLimits(capacity=100),
...     PackingOptions(lags={orders[0]: 450, orders[2]: 100}, sla_s=5),
... )
>>> [plan[p] for p in orders]
[0, 1, 1]
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from trimtab.errors import PlanningError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import check_loads
from trimtab.plan.consumers.matching import named
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    PackingOptions,
    PackingPlanner,
    PlannerKind,
    ScalingDecision,
    ScalingRequest,
)
from trimtab.plan.consumers.relief import relieves

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Floats = NDArray[np.float64]
    _Numbers = NDArray[np.int64]

# A bound computed from sums that round must not exceed what the same rounding lets a packing do.
_ROUNDING = 1e-9
_SIZES = 8  # sizes of lag by which it is counted whether all that are to come find room
_BOARD = 64  # bins whose least lag is known

_Bin = tuple[float, float, int]  # its rate, its lag, its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What partitions ask of consumers that each serve `mu` records a second, within `sla_s`.

    Attributes:
        arrivals: λ, records a second, by partition.
        lags: Records not yet read; a partition that is not named has none.
        mu: What one consumer reads, records a second.
        sla_s: W, how long a record may wait.
    """

    arrivals: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, float]
    mu: float
    sla_s: float

    def __post_init__(self) -> None:
        check_loads(self.arrivals)
        for partition in sorted(self.lags):
            lag = self.lags[partition]
            if not (math.isfinite(lag) and lag >= 0):
                raise ValueError(f"{partition} has lag {lag}: it must be a number, 0 or more")
        for name, value in (("service rate", self.mu), ("SLA", self.sla_s)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"the {name} must be a positive number, not {value}")
        if not math.isfinite(self.most_lag):
            raise ValueError(f"{self.mu} records/s for {self.sla_s} s is more than can be counted")

    @property
    def most_lag(self) -> float:
        """The lag that one consumer can read in time, μ·W."""
        return self.mu * self.sla_s

    def lag(self, partition: TopicPartition) -> float:
        """The lag as it is, never capped."""
        return self.lags.get(partition, 0)

    def rate_share(self, partition: TopicPartition) -> float:
        """The arrival rate as packing counts it: at most a full consumer."""
        return min(self.arrivals[partition], self.mu)

    def lag_share(self, partition: TopicPartition) -> float:
        """The lag as packing counts it: at most what a consumer can read in time."""
        return min(self.lag(partition), self.most_lag)

    def in_order(self) -> list[TopicPartition]:
        """The partitions as they are packed: decreasing rate, then lag."""
        return sorted(self.arrivals, key=lambda p: (-self.rate_share(p), -self.lag_share(p), p))

    def notes(self) -> dict[str, list[str]]:
        """The partitions that no assignment can serve in time, by what is wrong with them."""
        return {
            "unsatisfiable": [str(p) for p in sorted(self.arrivals) if self.arrivals[p] > self.mu],
            "late": [str(p) for p in sorted(self.arrivals) if self.lag(p) > self.most_lag],
        }


def demand_of(
    loads: Mapping[TopicPartition, float], limits: GroupLimits, options: PackingOptions
) -> Demand:
    """What a planner for latency works from; it refuses what it cannot work without."""
    if options.sla_s is None:
        raise PlanningError(
            "Packing for latency needs to know how long a record may wait.",
            hint='Give "sla_s" in the loads file, or --sla.',
        )
    if any(capacity != limits.capacity for capacity in limits.capacities.values()):
        raise PlanningError(
            "Packing for latency takes all consumers as equal; some have a capacity of their own.",
            hint='Leave "capacities" out, or choose a planner that packs by load, such as "mwf".',
        )
    return Demand(arrivals=loads, lags=options.lags, mu=limits.capacity, sla_s=options.sla_s)


def ll_ffd(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Packs by rate and lag, and names the bins so that the least rate changes its consumer."""
    demand = demand_of(loads, limits, options)
    return assigned(packed(demand), demand, current)


def assigned(
    bins: Sequence[Sequence[TopicPartition]],
    demand: Demand,
    current: Assignment,
    *,
    idle: Collection[int] = (),
    notes: Mapping[str, object] | None = None,
) -> Assignment:
    """The bins with the names that keep most of the arrival rate where it is."""
    weights = {p: demand.rate_share(p) for p in demand.arrivals}
    names = named(bins, current.only(demand.arrivals), weights, idle=idle)
    owners = {p: name for name, bin_ in zip(names, bins, strict=True) for p in bin_}
    return Assignment({p: owners[p] for p in sorted(owners)}, {**(notes or {}), **demand.notes()})


def lower_bound(demand: Demand) -> int:
    """No packing needs fewer consumers: all arrivals and all lag, shared without a gap."""
    if not demand.arrivals:
        return 0
    rates = [demand.rate_share(p) for p in demand.arrivals]
    lags = [demand.lag_share(p) for p in demand.arrivals]
    return max(1, _shared(rates, demand.mu), _shared(lags, demand.most_lag))


def fewest(demand: Demand) -> int:
    """A sharper bound, at least 1: also counts how many partitions of a size fit on a consumer."""
    return _Shares(demand).fewest()


def packed(demand: Demand, *, start: int | None = None) -> list[list[TopicPartition]]:
    """The bins of the first number, from `start` up, that leaves no partition over.

    Without `start` the search begins where it is not yet known to fail, which finds what it finds
    from 1. Without partitions there is one empty bin.
    """
    shares = _Shares(demand)
    n = shares.start() if start is None else start
    while (bins := shares.over(n)) is None:
        n += 1
    return bins


def spread(demand: Demand, n: int) -> list[list[TopicPartition]] | None:
    """The partitions over exactly so many bins, or None if one is left over."""
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
        """No packing does with fewer: not in either dimension, nor in the mean of both."""
        rates, lags = self._rates / self._mu, self._lags / self._most_lag
        return max(1, *(_fewest(shares) for shares in (rates, lags, (rates + lags) / 2)))

    def start(self) -> int:
        """Fewer bins leave an item over, once each of them has one of the first items.

        If some size of lag finds no room then, it finds none with fewer bins either: there is one
        bin less for it, and one item more to place. So this much is monotone, and bisected.
        """
        fewest, busy = self.fewest(), _busy(self._rates, self._lags)

        def may_do(n: int) -> bool:
            return not _shut_out(self._lags[n:busy], self._lags[:n], self._most_lag)

        return fewest + bisect_left(range(fewest, busy), True, key=may_do)

    def over(self, n: int) -> list[list[TopicPartition]] | None:
        """The partitions over n bins, or None if one is left over."""
        bin_of = _spread(self._rates, self._lags, self._mu, self._most_lag, n)
        if bin_of is None:
            return None
        bins: list[list[TopicPartition]] = [[] for _ in range(n)]
        for item, number in zip(self._items, bin_of.tolist(), strict=True):
            bins[number].append(item)
        return bins


def _shared(shares: Iterable[float], room: float) -> int:
    total = math.fsum(shares)
    if all(float(x).is_integer() for x in (total, room)):
        return -(-int(total) // int(room))
    return math.ceil(total / room * (1 - _ROUNDING))


def _fewest(shares: _Floats) -> int:
    """Of parts of a full bin: all of them together, and of each size no more than fit beside."""
    import numpy as np

    largest_first = np.sort(shares[shares > 0])[::-1]
    if not len(largest_first):
        return 0
    together = math.ceil(float(largest_first.sum()) * (1 - _ROUNDING))
    counts = np.arange(1, len(largest_first) + 1)
    # So many of this size or more fit side by side; beyond all of them, their number is enough.
    abreast = np.floor((1 + _ROUNDING) / np.maximum(largest_first, 1 / len(largest_first)))
    return max(together, int(np.ceil(counts / abreast).max()))


def _busy(rates: _Floats, lags: _Floats) -> int:
    """How many items ask for anything; the others stand last."""
    import numpy as np

    return int(np.count_nonzero((rates > 0) | (lags > 0)))


def _shut_out(lags: _Floats, bins: _Floats, most_lag: float) -> bool:
    """Whether some of these lags can find no room in bins that have so much already."""
    import numpy as np

    # Two above half cannot share: the largest needs the emptiest bin, and so on.
    large = np.sort(lags[lags > most_lag / 2 * (1 + _ROUNDING)])[::-1]
    if len(large) > len(bins) or (np.sort(bins)[: len(large)] + large > most_lag).any():
        return True
    # Those of a size or more need as much room as they are, and each bin takes a whole number.
    rooms, parts = 1 + _ROUNDING - bins / most_lag, np.sort(lags) / most_lag
    for at in range(0, len(parts), max(1, len(parts) // _SIZES)):
        size, wide = parts[at], rooms[rooms >= parts[at]]
        if parts[at:].sum() * (1 - _ROUNDING) > wide.sum():
            return True
        if size * len(parts) > 1 and len(parts) - at > np.floor(wide / size).sum():
            return True
    return False


def _spread(rates: _Floats, lags: _Floats, mu: float, most_lag: float, n: int) -> _Numbers | None:
    """The bin of each item, or None if one has room nowhere.

    The bins stand in the order in which they are tried. As long as each next item finds room in
    the next bin, and no bin that was just filled would be tried before it, they are placed as one
    step; from the first item that the first bin's lag keeps out, one by one.
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
    full: list[_Bin] = []  # for all that is still to come
    while at < busy:
        least = float(lags[at:busy].min())
        held = np.array([lag for _, lag, _ in bins])
        open_ = held + least <= most_lag
        if not open_.all():
            full += compress(bins, ~open_)
            bins, held = list(compress(bins, open_)), held[open_]
        if _shut_out(lags[at:busy], held, most_lag):
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
        """Gives the first bins one item each, as far as that is their turn; says which they were.

        None if an item has no room because of its rate: the least loaded has none, so none has.
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
    """Bins in their order, on boards whose least lag is known: most are passed by as a whole."""

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
        """Gives each item to the first bin that has room for both; None if one finds none."""
        filled = []
        for rate, lag in zip(rates, lags, strict=True):
            bin_ = self._taken(lag, most_lag)
            # If its rate leaves no room, then none after it has any.
            if bin_ is None or bin_[0] + rate > mu:
                return None
            self._put((bin_[0] + rate, bin_[1] + lag, bin_[2]))
            filled.append(bin_[2])
        return filled

    def _taken(self, lag: float, most_lag: float) -> _Bin | None:
        """Takes out the first bin with room for so much lag."""
        for at, least in enumerate(self._least):
            if least + lag > most_lag:
                continue
            board = self._boards[at]
            for place, bin_ in enumerate(board):
                if bin_[1] + lag <= most_lag:
                    del board[place]
                    return bin_
            # The bin that had the least was taken since: only now does that matter.
            self._least[at] = min((lags for _, lags, _ in board), default=math.inf)
        return None

    def _put(self, bin_: _Bin) -> None:
        """Puts a bin that has grown where it now belongs."""
        at = bisect_right(self._starts, bin_) - 1
        insort(self._boards[at], bin_)
        self._least[at] = min(self._least[at], bin_[1])


def decide(
    demand: Demand,
    current: Assignment,
    alive: Collection[int],
    *,
    since_scaling_s: float = math.inf,
    cooldown_s: float = 0.0,
) -> ScalingDecision:
    """AutoScaleCG: as many consumers as LL-FFD needs, and its assignment where one is overtaxed.

    `alive` are the consumers that run or were asked for already; what others of `current` had is
    read by nobody. For `cooldown_s` after the last change of their number it stays as it is: then a
    group that is overtaxed is assigned anew if LL-FFD can do with the consumers there are, over all
    of them where that works, and else left alone until the time is over.
    """
    live = frozenset(alive)
    held = Assignment({p: c for p, c in current.only(demand.arrivals).items() if c in live})
    bins = packed(demand)
    before, after = len(live), len(bins)
    resting = since_scaling_s < cooldown_s
    numbers: dict[str, float] = {"needed": after, "alive": before}
    if after != before and not resting:
        assignment = assigned(bins, demand, held, idle=live)
        # Without partitions one consumer waits for them.
        group = frozenset(assignment.values()) or frozenset({min(live, default=0)})
        return ScalingDecision(
            action=Action.SCALE_UP if after > before else Action.SCALE_DOWN,
            before=before,
            after=after,
            assignment=assignment,
            start=tuple(sorted(group - live)),
            stop=tuple(sorted(live - group)),
            reason=f"{after} consumers are needed instead of {before}",
            numbers=numbers,
        )
    wrong, sums = _overtaxed(demand, held, live)
    numbers |= sums
    if wrong is None:
        why = "every consumer keeps up and can read its lag in time"
    elif after > before:
        why = f"{wrong}; {after} consumers are needed, but the number rests for the cooldown"
    else:
        even = spread(demand, before) if after < before else None
        assignment = assigned(bins if even is None else even, demand, held, idle=live)
        return ScalingDecision(
            action=Action.REASSIGN,
            before=before,
            after=before,
            assignment=assignment,
            reason=wrong,
            numbers=numbers,
        )
    if wrong is None and after != before:
        why += f"; {after} would do, but the number rests for the cooldown"
    return ScalingDecision(
        action=Action.NONE,
        before=before,
        after=before,
        assignment=held,
        reason=why,
        numbers=numbers,
    )


def _overtaxed(
    demand: Demand, held: Assignment, live: frozenset[int]
) -> tuple[str | None, dict[str, float]]:
    """What is wrong with the group as it is, the lag not capped, and the worst sums of it."""
    rates, lags = held.loads(demand.arrivals), held.loads({p: demand.lag(p) for p in held})
    unread = len(demand.arrivals) - len(held)
    sums = {
        "worst_rate": max(rates.values(), default=0),
        "worst_lag": max(lags.values(), default=0),
        "mu": demand.mu,
        "most_lag": demand.most_lag,
        "unread": unread,
    }
    for consumer in sorted(live):
        rate, lag = rates.get(consumer, 0), lags.get(consumer, 0)
        if lag > demand.most_lag:
            return f"consumer {consumer} has lag {lag:g}, above {demand.most_lag:g}", sums
        if rate > demand.mu:
            return f"consumer {consumer} receives {rate:g}/s, above {demand.mu:g}/s", sums
    return (f"nobody reads {unread} of the partitions" if unread else None), sums


class LatencyAutoscaler:
    """AutoScaleCG as an `Autoscaler`."""

    def decide(self, request: ScalingRequest, /) -> ScalingDecision:
        """As many consumers as LL-FFD needs."""
        return decide(
            _demand(request),
            request.current,
            request.alive,
            since_scaling_s=request.since_scaling_s,
            cooldown_s=request.cooldown_s,
        )

    def relieves(self, request: ScalingRequest, after: Assignment, /) -> bool:
        """Whether one has less to do that received too much or has too much lag."""
        demand = _demand(request)
        lags = {p: demand.lag(p) for p in after}
        return relieves(request.current, after, demand.arrivals, request.limits) or relieves(
            request.current, after, lags, GroupLimits(capacity=demand.most_lag)
        )


def _demand(request: ScalingRequest) -> Demand:
    return Demand(
        arrivals=request.loads,
        lags=request.lags,
        mu=request.limits.capacity,
        sla_s=request.sla_s,
    )


LATENCY: tuple[PackingPlanner, ...] = (
    PackingPlanner(
        name="ll-ffd",
        rule=ll_ffd,
        kind=PlannerKind.LATENCY,
        reads=frozenset({"lags", "sla_s"}),
        autoscaler=LatencyAutoscaler(),
    ),
)
