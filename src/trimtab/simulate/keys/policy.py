"""What a policy of the keys simulation is: it routes keys by a table, or each record by itself.

A policy belongs to one run and may remember what it has seen. At the end of each window it gets
the `FinishedWindow`. A key-level policy answers with the routing of the next window; the simulator
carries out its migrations. A record-level policy chooses a partition for each record, so a key may
have its records, and its state, on several partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trimtab.simulate.keys.arrivals import KeyedArrivals, KeyHashes
from trimtab.simulate.keys.routing import Partitions, Routing
from trimtab.simulate.keys.window_counts import CountedKeys, WindowCounts

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedWindow:
    """What a policy learns at the end of a window.

    Attributes:
        counts: The exact counts of all keys.
        hot: The hot keys under the threshold of the simulation.
        threshold: T, the smallest count of a hot key.
        window_s: The length of the window.
        loads: Records that this policy sent to each partition.
        home_loads: Records that Kafka's default partitioner would have sent to each.
        routing: The routing of the window (a policy that chooses per record has an empty one).
        busy: Keys whose last migration is not finished: they must stay where they are.
        hashes: Hashes of keys.
    """

    counts: WindowCounts
    hot: CountedKeys
    threshold: int
    window_s: float
    loads: Ints
    home_loads: Ints
    routing: Routing
    busy: frozenset[int]
    hashes: KeyHashes

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.loads.size

    def homes(self, keys: Ints) -> Partitions:
        """The home partitions of some keys."""
        return (self.hashes.of(keys) % np.uint32(self.partitions)).astype(np.uint16)

    def routes(self, keys: Ints, routing: Routing | None = None) -> Partitions:
        """The partitions of some keys, under the present routing or another."""
        by = self.routing if routing is None else routing
        return by.of(keys, self.hashes.of(keys), self.homes(keys))

    def cold_loads(self) -> Ints:
        """Records of keys that are not hot, by their home partition."""
        at_home = np.bincount(
            self.homes(self.hot.keys), weights=self.hot.counts, minlength=self.partitions
        )
        return self.home_loads - at_home.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """The routing of the next window.

    Attributes:
        routing: The routing.
        moves: Keys that migrate, by reason.
        moved: These keys; none of them may be busy.
        skipped: Keys that should have moved and were busy.
    """

    routing: Routing
    moves: Mapping[str, int] = field(default_factory=dict)
    moved: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    skipped: int = 0


@runtime_checkable
class KeyLevelPolicy(Protocol):
    """Keeps all records of a key together."""

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Decides on the routing of the next window."""
        ...


@runtime_checkable
class RecordLevelPolicy(Protocol):
    """Chooses a partition for each record."""

    @property
    def entries(self) -> int:
        """The number of keys that it remembers."""
        ...

    def choose(self, block: KeyedArrivals) -> Partitions:
        """The partition of each record, in order of arrival."""
        ...

    def learn(self, window: FinishedWindow) -> None:
        """Takes note of a finished window."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPolicySettings:
    """What a policy may know beforehand.

    Attributes:
        partitions: The number of partitions.
        window_s: The length of a window.
        service_s: How long a consumer processes a record.
        handover_s: How long the hand-over of a key's state takes.
        smooth: The weight of the last window in the counts that planners get; None for 1.
    """

    partitions: int
    window_s: float
    service_s: float
    handover_s: float
    smooth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPolicyKind:
    """A policy by name.

    Attributes:
        name: Its name.
        what: What it does, in a line.
        whole_state: Whether all records of a key are together: its state is whole and its records
            are processed in order. Else both are given up.
        memory: What it has to remember.
        chosen: What was chosen where its source leaves something open.
        create: Creates the policy of one run.
    """

    name: str
    what: str
    whole_state: bool
    memory: str
    chosen: str
    create: Callable[[KeyPolicySettings], KeyLevelPolicy | RecordLevelPolicy]

    @property
    def gives_up(self) -> str:
        """What it gives up, in words."""
        return "nothing" if self.whole_state else "order within a key, whole state"
