"""Small literal or random cluster snapshots for tests of the topology code."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from trimtab.model.cluster import NO_LEADER, Broker, BrokerId, ClusterSnapshot, Replicas


def placement(
    replicas: Mapping[str, Sequence[Sequence[int]]],
    *,
    brokers: Collection[int] = (),
    racks: Mapping[int, str] | None = None,
    out_of_sync: Collection[int] = (),
    leaders: Mapping[str, Sequence[int]] | None = None,
) -> ClusterSnapshot:
    """A cluster from the replica list of each partition, its leader first.

    An empty list is a partition without a leader. `brokers` adds brokers without replicas;
    `leaders` overrides the first replica; brokers in `out_of_sync` are in no in-sync set.

    >>> seen = placement({"A": [[1, 2], [2, 1]]}, out_of_sync=[2], leaders={"A": [1, 1]})
    >>> [(p.leader, p.replicas, p.isr) for p in seen.partitions]
    [(1, (1, 2), (1,)), (1, (2, 1), (1,))]
    """
    stands = racks or {}
    named = {broker for lists in replicas.values() for one in lists for broker in one}
    ids = sorted({*named, *brokers, *stands})
    partitions = []
    for topic in sorted(replicas):
        for number, listed in enumerate(replicas[topic]):
            ordered = tuple(map(BrokerId, listed))
            isr = tuple(broker for broker in ordered if broker not in out_of_sync)
            chosen = leaders[topic][number] if leaders and topic in leaders else None
            leader = isr[0] if isr else NO_LEADER
            partitions.append(
                Replicas(
                    topic=topic,
                    partition=number,
                    leader=leader if chosen is None else BrokerId(chosen),
                    replicas=ordered,
                    isr=isr,
                )
            )
    return ClusterSnapshot(
        ts=0,
        cluster=None,
        brokers=tuple(Broker(id=BrokerId(broker), rack=stands.get(broker)) for broker in ids),
        partitions=tuple(partitions),
    )


def led(counts: Mapping[str, Mapping[int, int]]) -> ClusterSnapshot:
    """A cluster without replication, from the partitions that each broker leads of each topic.

    >>> [p.leader for p in led({"A": {1: 1, 2: 2}}).partitions]
    [1, 2, 2]
    """
    return placement(
        {
            topic: [[broker] for broker, count in of.items() for _ in range(count)]
            for topic, of in counts.items()
        }
    )


def random_placement(
    *, topics: int, brokers: int, partitions: int = 12, replication: int = 3, seed: int = 0
) -> ClusterSnapshot:
    """A random placement of every partition; all replicas in sync, the first one leads."""
    rng = random.Random(seed)
    ids = [BrokerId(broker) for broker in range(1, brokers + 1)]
    made = []
    for topic in range(topics):
        for number in range(partitions):
            listed = tuple(rng.sample(ids, min(replication, brokers)))
            made.append(
                Replicas(
                    topic=f"topic-{topic:06d}",
                    partition=number,
                    leader=listed[0],
                    replicas=listed,
                    isr=listed,
                )
            )
    return ClusterSnapshot(
        ts=0,
        cluster=None,
        brokers=tuple(Broker(id=broker, rack=f"rack-{broker % 3}") for broker in ids),
        partitions=tuple(made),
    )
