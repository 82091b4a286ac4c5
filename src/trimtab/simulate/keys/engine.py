"""Simulation of a keyed topic: policies route the same records to FIFO queues of partitions.

Why      What a policy is worth shows in delays, and what it costs in migrations; both without
         brokers, at millions of records per second.
Promise  All policies get the same records. At a window's end each gets that window's counts and
         decides on the next. A migrated key's records wait until the old partition has served what
         was in its queue at the decision, plus the hand-over; then they enter the new queue in
         order, and other keys do not wait for them. Times are whole nanoseconds: equal arguments
         give equal results, whatever the size of blocks. Key-level policies keep order per key.
Cost     Per policy some 10 million records/s; policies that choose per record some 3 million.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab.measure.counters import Count, Threshold
from trimtab.model.key_counts import KeyCount
from trimtab.plan.keys.bounds import imbalance, least_peak, relative
from trimtab.simulate.keys.arrivals import (
    BLOCK_RECORDS,
    NANOS,
    KeyedArrivals,
    KeyHashes,
    KeySource,
    arrivals,
)
from trimtab.simulate.keys.delays import DelayHistogram
from trimtab.simulate.keys.policy import (
    FinishedWindow,
    KeyLevelPolicy,
    KeyPolicyKind,
    KeyPolicySettings,
    RecordLevelPolicy,
)
from trimtab.simulate.keys.queues import PartitionQueues, ServedRecords
from trimtab.simulate.keys.result import (
    ArrivalWindow,
    KeySimulation,
    PolicyRun,
    PolicyWindow,
)
from trimtab.simulate.keys.routing import Partitions, Routing
from trimtab.simulate.keys.window_counts import CountedKeys, WindowCounting, WindowCounts

Ints = NDArray[np.int64]
OnServed = Callable[[str, ServedRecords], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTopic:
    """The topic that is simulated, and how hot keys are found.

    Attributes:
        partitions: The number of partitions.
        service_s: How long a consumer processes a record.
        window_s: The length of the counting window, and the time between decisions.
        threshold: When a key is hot.
        handover_s: How long the hand-over of a key's state takes.
        sla_s: The delay for which the share of records within it is reported.
        shards: The number of gateway shards between which keys are divided by hash.
        sketch: Whether a real lossy counter counts too, to report its entries.
        smooth: The weight of the last window in the counts that planners get; None for 1.
    """

    partitions: int
    service_s: float
    window_s: float = 10.0
    threshold: Threshold = field(default_factory=lambda: Count(100))
    handover_s: float = 0.001
    sla_s: float = 0.005
    shards: int = 1
    sketch: bool = True
    smooth: float | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.partitions <= 2**16:
            raise ValueError(f"partitions must be between 2 and 65536, not {self.partitions}")
        if self.service_ns < 1 or self.window_ns < 1:
            raise ValueError("the service time and the window must be at least 1 ns")
        if self.handover_s < 0 or self.sla_s < 0 or self.shards < 1:
            raise ValueError("the hand-over and the SLA must not be negative, shards at least 1")
        if self.smooth is not None and not 0 < self.smooth <= 1:
            raise ValueError(f"smooth must be above 0 and at most 1, not {self.smooth:g}")

    @property
    def service_ns(self) -> int:
        """The service time."""
        return round(self.service_s * NANOS)

    @property
    def window_ns(self) -> int:
        """The length of a window."""
        return round(self.window_s * NANOS)

    @property
    def handover_ns(self) -> int:
        """The time of a hand-over."""
        return round(self.handover_s * NANOS)

    @property
    def sla_ns(self) -> int:
        """The SLA."""
        return round(self.sla_s * NANOS)


def simulate_keys(
    stream: KeySource,
    topic: KeyedTopic,
    kinds: Sequence[KeyPolicyKind],
    *,
    duration_s: float,
    block_records: int = BLOCK_RECORDS,
    on_window: Callable[[int], None] = lambda _: None,
    on_served: OnServed | None = None,
) -> KeySimulation:
    """Runs all policies over the records of a stream.

    `on_window` is told the number of each finished window. `on_served`, for tests, gets every
    record with the policy's name; records then carry their numbers.
    """
    common = _CommonCounts(stream, topic)
    lanes = [_lane(kind, topic, on_served) for kind in kinds]
    window = 0
    for block in arrivals(
        stream,
        duration_s=duration_s,
        window_ns=topic.window_ns,
        partitions=topic.partitions,
        block_records=block_records,
        hashes=common.hashes,
    ):
        while window < block.window:
            _end_window(window, common, lanes, plan=True)
            on_window(window)
            window += 1
        common.add(block)
        for lane in lanes:
            lane.add(block)
    _end_window(window, common, lanes, plan=False)
    on_window(window)
    return KeySimulation(
        window_s=topic.window_s,
        duration_s=duration_s,
        arrivals=tuple(common.windows),
        runs=tuple(lane.result() for lane in lanes),
    )


def _end_window(number: int, common: _CommonCounts, lanes: Sequence[_Lane], *, plan: bool) -> None:
    """Ends a window for all policies; `plan` is false for the last."""
    common.end(number)
    for lane in lanes:
        lane.end_window(common, plan=plan)


class _CommonCounts:
    """What is counted once for all policies."""

    def __init__(self, stream: KeySource, topic: KeyedTopic) -> None:
        self.topic = topic
        self.hashes = KeyHashes()
        self.windows: list[ArrivalWindow] = []
        expected = max(1, round(stream.rate_s * topic.window_s))
        sketched = topic.threshold if topic.sketch else None
        self._counting = WindowCounting(sketch_threshold=sketched, expected=expected)
        self._homes = np.zeros(topic.partitions, np.int64)
        self._shards = np.zeros(topic.shards, np.int64)

    def add(self, block: KeyedArrivals) -> None:
        self._counting.add(block.keys)
        self._homes += np.bincount(block.homes, minlength=self._homes.size)
        if self._shards.size > 1:
            shards = block.hashes % np.uint32(self._shards.size)
            self._shards += np.bincount(shards, minlength=self._shards.size)

    def end(self, number: int) -> None:
        self.counts: WindowCounts = self._counting.finish(number)
        self.threshold = self.counts.least_hot(self.topic.threshold)
        self.hot: CountedKeys = self.counts.hot(self.topic.threshold)
        self.home_loads: Ints = self._homes
        self.windows.append(self._window(number))
        self._homes = np.zeros_like(self._homes)
        self._shards = np.zeros_like(self._shards)

    def finished(
        self, loads: Ints, routing: Routing, busy: frozenset[int] = frozenset()
    ) -> FinishedWindow:
        """The window that has ended, as a policy sees it."""
        return FinishedWindow(
            counts=self.counts,
            hot=self.hot,
            threshold=self.threshold,
            window_s=self.topic.window_s,
            loads=loads,
            home_loads=self.home_loads,
            routing=routing,
            busy=busy,
            hashes=self.hashes,
        )

    def _window(self, number: int) -> ArrivalWindow:
        counts = self.counts
        at_home = self.finished(self.home_loads, Routing()).homes(self.hot.keys).tolist()
        movable = [
            KeyCount(key=b"", count=count, partition=home)
            for count, home in zip(self.hot.counts.tolist(), at_home, strict=True)
        ]
        loads, shards = self.home_loads.tolist(), self._shards.tolist()
        return ArrivalWindow(
            number=number,
            records=counts.n,
            keys=counts.distinct,
            hot_keys=self.hot.keys.size,
            hot_records=int(self.hot.counts.sum()),
            threshold=self.threshold,
            sketch_entries=counts.sketch_entries,
            bound=float(relative(least_peak(loads, movable), loads)),
            shard_imbalance=float(imbalance(shards)) if len(shards) > 1 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of routing, until the records of all moved keys may enter their new queues."""

    moved: Ints  # ascending
    sources: Partitions  # their old partitions
    release_ns: Ints  # by old partition

    @property
    def until_ns(self) -> int:
        return int(self.release_ns[self.sources].max())

    def busy(self, now_ns: int) -> list[int]:
        """The moved keys that may not enter their new queue before now."""
        late = self.release_ns[self.sources] >= now_ns
        found: list[int] = self.moved[late].tolist()
        return found


class _Lane(ABC):
    """One policy on its way through the records."""

    def __init__(
        self,
        kind: KeyPolicyKind,
        topic: KeyedTopic,
        on_served: OnServed | None,
    ) -> None:
        self.kind = kind
        self.topic = topic
        self.routing = Routing()
        self._on_served = on_served
        self._queues = PartitionQueues(
            topic.partitions, service_ns=topic.service_ns, numbered=on_served is not None
        )
        self._loads = np.zeros(topic.partitions, np.int64)
        self._delays: list[list[DelayHistogram]] = []
        self._windows: list[PolicyWindow] = []

    def add(self, block: KeyedArrivals) -> None:
        """Routes the records of a block."""
        routes = self._routes(block)
        self._loads += np.bincount(routes, minlength=self._loads.size)
        self._take(self._queues.enter(block.times_ns, routes, self._enters_ns(block)))

    @abstractmethod
    def _routes(self, block: KeyedArrivals) -> Partitions:
        """The partition of each record."""

    def _enters_ns(self, block: KeyedArrivals) -> Ints | None:
        """When records may enter their queues; None if they need not wait."""
        del block
        return None

    @abstractmethod
    def end_window(self, common: _CommonCounts, *, plan: bool) -> None:
        """Notes the window's figures, and lets the policy decide on the next."""

    def _take(self, served: ServedRecords) -> None:
        """Notes the delays of records, each in the window of its arrival."""
        if not served.delays_ns.size:
            return
        if self._on_served is not None:
            self._on_served(self.kind.name, served)
        windows = served.arrived_ns // self.topic.window_ns
        first, last = int(windows.min()), int(windows.max())
        while len(self._delays) <= last:
            self._delays.append([])
        for window in range(first, last + 1):
            part = served.delays_ns if first == last else served.delays_ns[windows == window]
            more = DelayHistogram.of(part, within_ns=self.topic.sla_ns)
            self._delays[window] = [DelayHistogram.total([*self._delays[window], more])]

    def _close(self, window: PolicyWindow) -> None:
        self._windows.append(window)
        self._loads = np.zeros_like(self._loads)

    def result(self) -> PolicyRun:
        """The figures of all windows, after the last record is served."""
        self._take(self._queues.advance(None))
        delays = [DelayHistogram.total(parts) for parts in self._delays]
        delays += [DelayHistogram.empty()] * (len(self._windows) - len(delays))
        return PolicyRun(
            name=self.kind.name,
            whole_state=self.kind.whole_state,
            windows=tuple(self._windows),
            delays=tuple(delays),
        )


class _KeyLane(_Lane):
    """A policy that keeps the records of a key together."""

    def __init__(
        self,
        policy: KeyLevelPolicy,
        kind: KeyPolicyKind,
        topic: KeyedTopic,
        on_served: OnServed | None,
    ) -> None:
        super().__init__(kind, topic, on_served)
        self._policy = policy
        self._changes: list[_Change] = []
        self._moves: dict[str, int] = {}
        self._skipped = 0

    def _routes(self, block: KeyedArrivals) -> Partitions:
        return self.routing.of(block.keys, block.hashes, block.homes)

    def _enters_ns(self, block: KeyedArrivals) -> Ints | None:
        enters = None
        for change in self._changes:
            early = slice(0, int(np.searchsorted(block.times_ns, change.until_ns)))
            if not early.stop:
                continue
            places = np.searchsorted(change.moved, block.keys[early])
            places = places.clip(0, change.moved.size - 1)
            moved = np.flatnonzero(change.moved[places] == block.keys[early])
            if moved.size:
                enters = block.times_ns.copy() if enters is None else enters
                release = change.release_ns[change.sources[places[moved]]]
                enters[moved] = np.maximum(enters[moved], release)
        return enters

    def end_window(self, common: _CommonCounts, *, plan: bool) -> None:
        now = (common.counts.number + 1) * self.topic.window_ns
        self._take(self._queues.advance(now - 1))
        self._changes = [change for change in self._changes if change.until_ns >= now]
        busy = frozenset(key for change in self._changes for key in change.busy(now))
        finished = common.finished(self._loads, self.routing, busy)
        hot = np.bincount(
            finished.routes(common.hot.keys), common.hot.counts, self.topic.partitions
        )
        self._close(
            PolicyWindow(
                number=common.counts.number,
                loads=tuple(self._loads.tolist()),
                hot_loads=tuple(hot.astype(np.int64).tolist()),
                moves=self._moves,
                skipped=self._skipped,
                tracked=self.routing.entries,
                keys=common.counts.distinct,
                held=common.counts.distinct,
                split_keys=0,
            )
        )
        if plan:
            self._plan(finished, now)

    def _plan(self, finished: FinishedWindow, now: int) -> None:
        decision = self._policy.plan(finished)
        if decision.moved.size:
            moved = np.sort(decision.moved)
            change = _Change(
                moved=moved,
                sources=finished.routes(moved),
                release_ns=self._queues.drained_ns(now) + self.topic.handover_ns,
            )
            self._changes.append(change)
        self.routing = decision.routing
        self._moves, self._skipped = dict(decision.moves), decision.skipped


class _RecordLane(_Lane):
    """A policy that chooses for each record."""

    def __init__(
        self,
        policy: RecordLevelPolicy,
        kind: KeyPolicyKind,
        topic: KeyedTopic,
        on_served: OnServed | None,
    ) -> None:
        super().__init__(kind, topic, on_served)
        self._policy = policy
        self._pairs: list[Ints] = []

    def _routes(self, block: KeyedArrivals) -> Partitions:
        routes = self._policy.choose(block)
        self._pairs.append(block.keys * self.topic.partitions + routes)
        return routes

    def end_window(self, common: _CommonCounts, *, plan: bool) -> None:
        m = self.topic.partitions
        joined = np.concatenate([np.zeros(0, np.int64), *self._pairs])
        self._pairs.clear()
        pairs, counts = np.unique(joined, return_counts=True)
        keys = pairs // m
        is_hot = common.hot.of(keys) > 0
        hot = np.bincount(pairs[is_hot] % m, counts[is_hot], m)
        _, places = np.unique(keys, return_counts=True)
        finished = common.finished(self._loads, self.routing)
        self._close(
            PolicyWindow(
                number=common.counts.number,
                loads=tuple(self._loads.tolist()),
                hot_loads=tuple(hot.astype(np.int64).tolist()),
                moves={},
                skipped=0,
                tracked=self._policy.entries,
                keys=common.counts.distinct,
                held=pairs.size,
                split_keys=int(np.count_nonzero(places > 1)),
            )
        )
        if plan:
            self._policy.learn(finished)


def _lane(kind: KeyPolicyKind, topic: KeyedTopic, on_served: OnServed | None) -> _Lane:
    settings = KeyPolicySettings(
        partitions=topic.partitions,
        window_s=topic.window_s,
        service_s=topic.service_s,
        handover_s=topic.handover_s,
        smooth=topic.smooth,
    )
    policy = kind.create(settings)
    if isinstance(policy, RecordLevelPolicy):
        return _RecordLane(policy, kind, topic, on_served)
    return _KeyLane(policy, kind, topic, on_served)
