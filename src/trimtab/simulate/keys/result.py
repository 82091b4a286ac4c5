"""Results of a keys simulation: figures of each window, and of each policy over the run.

Promise  The first window is warm-up, since nothing is known yet: `measured` leaves it out. Equal
         simulations give equal results and equal JSON.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.plan.keys.bounds import balancing_error, imbalance
from trimtab.simulate.keys.delays import DelayHistogram

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
WARM_UP_WINDOWS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalWindow:
    """The records of a window, which are the same for all policies.

    Attributes:
        number: The number of the window, from 0.
        records: Number of records.
        keys: Number of distinct keys.
        hot_keys: Number of hot keys.
        hot_records: Number of records with a hot key.
        threshold: T, the smallest count of a hot key.
        sketch_entries: Entries of a lossy counter at the end; None if none counted.
        bound: No policy that splits no key and leaves cold keys at home has less imbalance.
        shard_imbalance: Imbalance between gateway shards; None if there is one.
    """

    number: int
    records: int
    keys: int
    hot_keys: int
    hot_records: int
    threshold: int
    sketch_entries: int | None
    bound: float
    shard_imbalance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWindow:
    """The figures of a policy in one window.

    Attributes:
        number: The number of the window, from 0.
        loads: Records sent to each partition.
        hot_loads: Records of hot keys sent to each.
        moves: Keys that migrated at its beginning, by reason.
        skipped: Keys that should have migrated then, but whose last migration was not finished.
        tracked: Keys that the policy remembers: entries of the routing table, with its buckets.
        keys: Distinct keys.
        held: Partitions that have records of a key, summed over the keys.
        split_keys: Keys with records on more than one partition.
    """

    number: int
    loads: tuple[int, ...]
    hot_loads: tuple[int, ...]
    moves: Mapping[str, int]
    skipped: int
    tracked: int
    keys: int
    held: int
    split_keys: int

    @property
    def imbalance(self) -> float:
        """The largest load divided by the mean, over all records."""
        return float(imbalance(self.loads))

    @property
    def e_lb(self) -> float:
        """The balancing error of the paper, eq. (2): over hot keys, in records."""
        return float(balancing_error(self.hot_loads))

    @property
    def moved(self) -> int:
        """Keys that migrated at its beginning."""
        return sum(self.moves.values())

    @property
    def spread(self) -> float:
        """Partitions that have records of a key, in the mean."""
        return self.held / self.keys if self.keys else 1.0

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        return {
            "window": self.number,
            "imbalance": self.imbalance,
            "e_lb": self.e_lb,
            "moves": dict(sorted(self.moves.items())),
            "skipped": self.skipped,
            "tracked": self.tracked,
            "split_keys": self.split_keys,
            "spread": self.spread,
            "loads": list(self.loads),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """The run of one policy.

    Attributes:
        name: The policy's name.
        whole_state: Whether all records of a key are on one partition, and so in order.
        windows: Its figures in each window.
        delays: The delays of the records that arrived in each window.
    """

    name: str
    whole_state: bool
    windows: tuple[PolicyWindow, ...]
    delays: tuple[DelayHistogram, ...]

    @property
    def measured_windows(self) -> tuple[PolicyWindow, ...]:
        """The windows after the warm-up; all if there is only one."""
        return self.windows[WARM_UP_WINDOWS:] or self.windows

    def delays_of(self, numbers: Collection[int]) -> DelayHistogram:
        """The delays of the records that arrived in these windows."""
        return DelayHistogram.total(self.delays[number] for number in sorted(numbers))

    @property
    def measured(self) -> DelayHistogram:
        """The delays after the warm-up."""
        return self.delays_of([window.number for window in self.measured_windows])

    @property
    def warm_up(self) -> DelayHistogram:
        """The delays of the first window."""
        return self.delays_of([0])

    @property
    def moves(self) -> Mapping[str, int]:
        """Migrations of the whole run, by reason."""
        total: Counter[str] = Counter()
        for window in self.windows:
            total.update(window.moves)
        return dict(sorted(total.items()))

    @property
    def moved(self) -> int:
        """Migrations of the whole run."""
        return sum(window.moved for window in self.windows)

    @property
    def mean_imbalance(self) -> float:
        """The mean imbalance of the windows after the warm-up."""
        return _mean([window.imbalance for window in self.measured_windows])

    @property
    def max_imbalance(self) -> float:
        """The largest imbalance of a window after the warm-up."""
        return max(window.imbalance for window in self.measured_windows)

    @property
    def mean_e_lb(self) -> float:
        """The mean balancing error of the windows after the warm-up, in records."""
        return _mean([window.e_lb for window in self.measured_windows])

    @property
    def tracked(self) -> int:
        """The most entries of the routing table."""
        return max(window.tracked for window in self.windows)

    @property
    def split_keys(self) -> float:
        """Keys on more than one partition: the mean of the windows after the warm-up."""
        return _mean([window.split_keys for window in self.measured_windows])

    @property
    def spread(self) -> float:
        """Partitions that have records of a key: the mean of the windows after the warm-up."""
        return _mean([window.spread for window in self.measured_windows])

    def to_json(self, window_s: float) -> dict[str, Any]:
        """The run as a JSON object."""
        return {
            "policy": self.name,
            "whole_state": self.whole_state,
            "delays": delays_to(self.measured),
            "warm_up": delays_to(self.warm_up),
            "minutes": [delays_to(part) for part in self.by_minute(window_s)],
            "imbalance": self.mean_imbalance,
            "max_imbalance": self.max_imbalance,
            "e_lb": self.mean_e_lb,
            "moves": dict(self.moves),
            "moved": self.moved,
            "tracked": self.tracked,
            "split_keys": self.split_keys,
            "spread": self.spread,
            "windows": [
                {**window.to_json(), "delays": delays_to(self.delays[window.number])}
                for window in self.windows
            ],
        }

    def by_minute(self, window_s: float) -> list[DelayHistogram]:
        """The delays of each minute; a window belongs to the minute in which it begins."""
        minutes: dict[int, list[int]] = {}
        for window in self.windows:
            minutes.setdefault(int(window.number * window_s // 60), []).append(window.number)
        return [self.delays_of(numbers) for numbers in minutes.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySimulation:
    """The result: the records of each window, and the run of each policy."""

    window_s: float
    duration_s: float
    arrivals: tuple[ArrivalWindow, ...]
    runs: tuple[PolicyRun, ...]

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(window.records for window in self.arrivals)

    @property
    def bound(self) -> float:
        """The mean bound of the imbalance, of the windows after the warm-up."""
        measured = self.arrivals[WARM_UP_WINDOWS:] or self.arrivals
        return _mean([window.bound for window in measured])

    def run(self, name: str) -> PolicyRun:
        """The run of a policy."""
        return next(run for run in self.runs if run.name == name)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "records": self.records,
            "window_s": self.window_s,
            "duration_s": self.duration_s,
            "bound": self.bound,
            "arrivals": [
                {
                    "window": window.number,
                    "records": window.records,
                    "keys": window.keys,
                    "hot_keys": window.hot_keys,
                    "hot_records": window.hot_records,
                    "threshold": window.threshold,
                    "sketch_entries": window.sketch_entries,
                    "bound": window.bound,
                    "shard_imbalance": window.shard_imbalance,
                }
                for window in self.arrivals
            ],
            "policies": [run.to_json(self.window_s) for run in self.runs],
        }


def delays_to(delays: DelayHistogram) -> dict[str, Any]:
    """Delays as a JSON object: quantiles in seconds; null where there are no records."""
    found = delays.quantiles_s(list(QUANTILES.values()))
    named = dict(zip(QUANTILES, found, strict=True))
    named |= {"mean": delays.mean_s, "max": delays.max_ns * 1e-9}
    named |= {"within_sla": delays.within_share}
    return {
        "records": delays.records,
        **{name: None if math.isnan(value) else value for name, value in named.items()},
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
