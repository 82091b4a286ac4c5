"""The keys simulation as a plain loop, one record after another: what the engine must equal.

Promise  The same model and the same policies as `trimtab.simulate.keys.engine`, with dictionaries
         and a heap. Tests compare the delays record by record; a benchmark compares the speed.
Cost     Some microseconds per record.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.model.murmur2 import murmur2
from trimtab.simulate.keys.arrivals import KeyHashes
from trimtab.simulate.keys.engine import KeyedTopic
from trimtab.simulate.keys.policy import FinishedWindow, KeyLevelPolicy
from trimtab.simulate.keys.routing import Routing
from trimtab.simulate.keys.window_counts import CountedKeys, WindowCounts


@dataclass(slots=True)
class PlainQueues:
    """The state of the loop, and its result: partition and delay of each record."""

    free: list[int]
    partition: list[int]
    delay_ns: list[int]
    routing: Routing = field(default_factory=Routing)
    moves: list[dict[str, int]] = field(default_factory=list)
    release: dict[int, int] = field(default_factory=dict)
    """When records of a migrated key may enter its new queue."""
    parked: list[tuple[int, int, int, int]] = field(default_factory=list)

    def serve(self, enters: int, number: int, arrived: int, partition: int, service: int) -> None:
        """Serves a record that enters a queue."""
        begins = max(enters, self.free[partition])
        self.free[partition] = begins + service
        self.partition[number] = partition
        self.delay_ns[number] = begins - arrived

    def enter_parked(self, until: int, service: int) -> None:
        """Lets parked records enter that are due until then."""
        while self.parked and self.parked[0][0] <= until:
            self.serve(*heapq.heappop(self.parked), service)


def plain_queues(
    times_ns: Sequence[int],
    keys: Sequence[int],
    topic: KeyedTopic,
    policy: KeyLevelPolicy,
) -> PlainQueues:
    """Runs a key-level policy over records, one after another."""
    m, service = topic.partitions, topic.service_ns
    count = len(keys)
    world = PlainQueues(free=[0] * m, partition=[0] * count, delay_ns=[0] * count)
    homes: dict[int, int] = {}
    counts: Counter[int] = Counter()
    loads, home_loads = [0] * m, [0] * m
    window, window_end = 0, topic.window_ns
    routes: dict[int, int] = {}
    for number, (now, key) in enumerate(zip(times_ns, keys, strict=True)):
        while now >= window_end:
            _end_window(world, topic, policy, window, counts, (loads, home_loads))
            counts, loads, home_loads, routes = Counter(), [0] * m, [0] * m, {}
            window, window_end = window + 1, window_end + topic.window_ns
        if key not in homes:
            homes[key] = (murmur2(b"%d" % key) & 0x7FFFFFFF) % m
        if key not in routes:
            routes[key] = _route(world.routing, key, homes[key])
        partition = routes[key]
        counts[key] += 1
        loads[partition] += 1
        home_loads[homes[key]] += 1
        world.enter_parked(now, service)
        if world.release.get(key, 0) > now:
            heapq.heappush(world.parked, (world.release[key], number, now, partition))
        else:
            world.serve(now, number, now, partition, service)
    while world.parked:
        world.serve(*heapq.heappop(world.parked), service)
    return world


def _route(routing: Routing, key: int, home: int) -> int:
    if routing.buckets is None:
        return routing.table.get(key, home)
    hashed = np.array([murmur2(b"%d" % key) & 0x7FFFFFFF], np.uint32)
    return int(routing.of(np.array([key]), hashed, np.array([home], np.uint16))[0])


def _end_window(
    world: PlainQueues,
    topic: KeyedTopic,
    policy: KeyLevelPolicy,
    number: int,
    counts: Counter[int],
    loads: tuple[list[int], list[int]],
) -> None:
    """Lets the policy decide, and parks the keys that it moves."""
    now = (number + 1) * topic.window_ns
    world.enter_parked(now - 1, topic.service_ns)
    ordered = sorted(counts)
    all_keys = CountedKeys(np.array(ordered, np.int64), np.array([counts[k] for k in ordered]))
    window = WindowCounts(number=number, n=counts.total(), all_keys=all_keys)
    finished = FinishedWindow(
        counts=window,
        hot=window.hot(topic.threshold),
        threshold=window.least_hot(topic.threshold),
        window_s=topic.window_s,
        loads=np.array(loads[0]),
        home_loads=np.array(loads[1]),
        routing=world.routing,
        busy=frozenset(key for key, release in world.release.items() if release >= now),
        hashes=_HASHES,
    )
    decision = policy.plan(finished)
    world.moves.append(dict(decision.moves))
    sources = finished.routes(decision.moved).tolist()
    for key, source in zip(decision.moved.tolist(), sources, strict=True):
        world.release[key] = max(now, world.free[source]) + topic.handover_ns
    world.routing = decision.routing


_HASHES = KeyHashes(1 << 12)
