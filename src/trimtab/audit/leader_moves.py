"""Leader moves that balance broker loads without moving data.

Promise  A leader moves only to an in-sync replica on a broker that is up, and only if that broker
         then has less load than the old leader had. Partitions with a replica on a broker that is
         down stay: kafka-reassign-partitions rejects a file that names such a broker. Stops when
         the fullest broker is at or below `goal`, when no move is left, or after `most` moves.
         Deterministic: fullest broker first, then lowest resulting peak of the two brokers, then
         partition and broker. The peak decreases, or there are no moves.
Cost     O(moves · (partitions + partitions of a broker · replicas)), in arrays.

>>> from trimtab.audit.known_loads import weights_of
>>> from trimtab.audit.layout import layout_of
>>> from trimtab.testing.placements import placement
>>> seen = layout_of(placement({"A": [[1, 2], [1, 2], [1, 3]]}))
>>> found = leader_moves(seen, weights_of(seen).weight, goal=1.0)
>>> [(str(move.name), move.to, move.replicas) for move in found]
[('A-0', 2, (2, 1)), ('A-2', 3, (3, 1))]
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.audit.known_loads import ROUNDING
from trimtab.audit.layout import NO_PLACE, Floats, Ints, Layout, padded, summed
from trimtab.model.cluster import BrokerId, Replicas, TopicPartition

MOST_MOVES = 500


class LeaderMove(NamedTuple):
    """A partition that another replica should lead, with the replica list for that."""

    name: TopicPartition
    source: BrokerId
    to: BrokerId
    load: float
    replicas: tuple[BrokerId, ...]
    reorders: bool


def leader_moves(
    layout: Layout,
    weight: Floats,
    *,
    goal: float,
    down: Collection[int] = (),
    most: int = MOST_MOVES,
) -> tuple[LeaderMove, ...]:
    """The moves, by partition; no more than `most`."""
    up = np.fromiter((broker not in down for broker in layout.brokers), bool, len(layout.brokers))
    leader, ways = layout.leader_of.copy(), np.sort(padded(layout, "isr"), axis=1)
    ways[ways >= 0] = np.where(up[ways[ways >= 0]], ways[ways >= 0], NO_PLACE)
    held = padded(layout, "replicas")
    ways[((held >= 0) & ~up[held]).any(axis=1)] = NO_PLACE
    online = leader >= 0
    load = summed(leader[online], weight[online], len(layout.brokers))
    before = float(load.max(initial=0.0))
    for _ in range(most):
        found = _best(leader, ways, weight, load, goal * (1 + ROUNDING))
        if found is None:
            break
        at, to = found
        load[leader[at]] -= weight[at]
        load[to] += weight[at]
        leader[at] = to
    if float(load.max(initial=0.0)) >= before * (1 - ROUNDING):
        return ()
    return tuple(
        _move(
            layout.partitions[at],
            layout.brokers[int(layout.leader_of[at])],
            layout.brokers[int(leader[at])],
            float(weight[at]),
        )
        for at in np.flatnonzero(leader != layout.leader_of).tolist()
    )


def _best(
    leader: Ints, ways: Ints, weight: Floats, load: Floats, goal: float
) -> tuple[int, int] | None:
    """The best move away from the fullest broker above the goal that has a possible move."""
    for source in np.argsort(-load, kind="stable").tolist():
        have = float(load[source])
        if have <= goal:
            return None
        led = np.flatnonzero((leader == source) & (weight > 0))
        if not led.size:
            continue
        to, amount = ways[led], weight[led][:, None]
        peak = np.maximum(have - amount, load[to] + amount)
        peak[(to < 0) | (to == source) | (load[to] + amount >= have * (1 - ROUNDING))] = np.inf
        row, way = divmod(int(np.argmin(peak)), peak.shape[1])
        if np.isfinite(peak[row, way]):
            return int(led[row]), int(to[row, way])
    return None


def _move(partition: Replicas, source: BrokerId, to: BrokerId, load: float) -> LeaderMove:
    replicas = (to, *(b for b in partition.replicas if b != to))
    return LeaderMove(
        name=partition.name,
        source=source,
        to=to,
        load=load,
        replicas=replicas,
        reorders=replicas != partition.replicas,
    )


def preferred_moves(
    layout: Layout, weight: Floats, *, down: Collection[int] = ()
) -> tuple[LeaderMove, ...]:
    """The moves that a preferred leader election would make."""
    away = np.flatnonzero(
        (layout.leader_of >= 0) & (layout.preferred >= 0) & (layout.leader_of != layout.preferred)
    )
    found = []
    for at in away.tolist():
        partition, to = layout.partitions[at], layout.brokers[int(layout.preferred[at])]
        if to in partition.isr and to not in down:
            source = layout.brokers[int(layout.leader_of[at])]
            found.append(_move(partition, source, to, float(weight[at])))
    return tuple(found)


def peak_after(by_broker: Mapping[BrokerId, float], moves: Sequence[LeaderMove]) -> float:
    """The highest load of a broker after these moves."""
    load = dict(by_broker)
    for move in moves:
        load[move.source] -= move.load
        load[move.to] += move.load
    return max(load.values(), default=0.0)


def kafka_json(moves: Sequence[LeaderMove]) -> dict[str, Any]:
    """The file that kafka-reassign-partitions and kafka-leader-election both take."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": move.name.topic,
                "partition": move.name.partition,
                "replicas": list(move.replicas),
            }
            for move in moves
        ],
    }


def commands(moves: Sequence[LeaderMove], *, server: str, file: str) -> tuple[str, ...]:
    """Kafka's commands for these moves; `file` holds the output of `kafka_json`."""
    to, name = shlex.quote(server), shlex.quote(file)
    reorder = (
        f"kafka-reassign-partitions.sh --bootstrap-server {to} "
        f"--reassignment-json-file {name} --execute"
    )
    elect = (
        f"kafka-leader-election.sh --bootstrap-server {to} "
        f"--election-type preferred --path-to-json-file {name}"
    )
    return (reorder, elect) if any(move.reorders for move in moves) else (elect,)
