"""Takes a snapshot of a cluster through the admin port.

Promise  Nothing is guessed: a partition that is offline, or whose broker did not answer, has no
         size and no offsets. Committed offsets are read before end offsets, so a group that
         keeps up never appears ahead of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trimtab.kafka.keyed_paths import keyed_own_topics
from trimtab.model.cluster import (
    Broker,
    BrokerId,
    ClusterSnapshot,
    Group,
    Replicas,
    TopicPartition,
)

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin, ClusterInfo

INTERNAL_PREFIX = "__"


def take_snapshot(
    admin: Admin,
    *,
    topics: Collection[str] | None = None,
    groups: Collection[str] | None = None,
    clock: Callable[[], int],
    own_prefix: str = "trimtab.",
) -> ClusterSnapshot:
    """A snapshot of these topics and groups, or of all but Kafka's and Trimtab's own topics."""
    ts = clock()
    info = admin.cluster()
    placed = admin.topics(topics)
    if topics is None:
        placed = without_internal(placed, own_prefix=own_prefix)
    names = admin.group_names() if groups is None else groups
    described = _with_committed(admin, admin.groups(names))
    partitions = with_sizes(admin, placed)
    return ClusterSnapshot(
        ts=ts,
        cluster=info.cluster,
        brokers=_brokers(info, partitions),
        partitions=partitions,
        groups=described,
    )


def take_placement(
    admin: Admin,
    *,
    topics: Collection[str] | None = None,
    internal: bool = False,
    clock: Callable[[], int],
    own_prefix: str = "trimtab.",
) -> tuple[ClusterSnapshot, frozenset[BrokerId]]:
    """The replicas of partitions without sizes, offsets or groups, and the brokers down."""
    ts = clock()
    info = admin.cluster()
    placed = admin.topics(topics)
    if topics is None and not internal:
        placed = without_internal(placed, own_prefix=own_prefix)
    behind = {p.topic for p in placed if len(p.isr) < len(p.replicas)}
    eligible = admin.eligible(behind) if behind else {}
    partitions = tuple(replace(p, elr=eligible.get(p.name, ())) for p in placed)
    brokers = _brokers(info, partitions)
    taken = ClusterSnapshot(ts=ts, cluster=info.cluster, brokers=brokers, partitions=partitions)
    return taken, frozenset(broker.id for broker in brokers) - info.live


def is_internal(topic: str, *, own_prefix: str) -> bool:
    """Whether the name says that a topic is Kafka's or Trimtab's own."""
    return topic.startswith((INTERNAL_PREFIX, own_prefix))


def internal_topics(names: Collection[str], *, own_prefix: str) -> frozenset[str]:
    """Those of these topics that are Kafka's or Trimtab's own, and so not part of the load."""
    by_name = frozenset(name for name in names if is_internal(name, own_prefix=own_prefix))
    return by_name | keyed_own_topics(names)


def without_internal(partitions: Collection[Replicas], *, own_prefix: str) -> tuple[Replicas, ...]:
    """The partitions of the topics that are neither Kafka's nor Trimtab's own."""
    own = internal_topics({p.topic for p in partitions}, own_prefix=own_prefix)
    return tuple(p for p in partitions if p.topic not in own)


def with_sizes(
    admin: Admin,
    partitions: Collection[Replicas],
    *,
    begins: Mapping[TopicPartition, int] | None = None,
) -> tuple[Replicas, ...]:
    """The partitions with their size on the leader and their offsets, where those are known.

    First offsets are taken from `begins` if it has those of all partitions.
    """
    leaders = {p.name: p.leader for p in partitions if not p.offline}
    sizes = admin.log_dirs(leaders)
    offsets = _offsets(admin, leaders, begins or {})
    measured = []
    for p in partitions:
        name = p.name
        begin, end = offsets.get(name, (None, None))
        measured.append(replace(p, log_bytes=sizes.get(name), begin_offset=begin, end_offset=end))
    return tuple(measured)


def _offsets(
    admin: Admin,
    leaders: Mapping[TopicPartition, BrokerId],
    begins: Mapping[TopicPartition, int],
) -> dict[TopicPartition, tuple[int, int]]:
    if leaders and begins.keys() >= leaders.keys():
        ends = admin.ends(leaders)
        if all(begins[name] <= end for name, end in ends.items()):  # else it was created again
            return {name: (begins[name], end) for name, end in ends.items()}
    return admin.offsets(leaders)


def _with_committed(admin: Admin, groups: Collection[Group]) -> tuple[Group, ...]:
    committed = admin.committed([g.name for g in groups])
    return tuple(replace(g, committed=committed.get(g.name, {})) for g in groups)


def _brokers(info: ClusterInfo, partitions: Collection[Replicas]) -> tuple[Broker, ...]:
    """All brokers, each marked as alive or not.

    This includes brokers that are unregistered but still listed as replicas.
    """
    named = {b for p in partitions for b in p.replicas} - {b.id for b in info.brokers}
    found = (*info.brokers, *(Broker(id=BrokerId(broker)) for broker in named))
    known = (replace(broker, alive=broker.id in info.live) for broker in found)
    return tuple(sorted(known, key=lambda b: b.id))
