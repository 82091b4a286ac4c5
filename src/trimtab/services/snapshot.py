"""Takes a snapshot of the current state of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.observe.clock import wall_clock_us

if TYPE_CHECKING:
    from trimtab.kafka.cluster import Cluster
    from trimtab.model.cluster import ClusterSnapshot


def current_snapshot(
    cluster: Cluster,
    *,
    topics: Collection[str] = (),
    clock: Callable[[], int] = wall_clock_us,
) -> ClusterSnapshot:
    """Brokers, partitions with sizes and offsets, and groups.

    Of these topics, or of all except Kafka's internal topics and Trimtab's own.
    """
    from trimtab.kafka.snapshot import take_snapshot

    with cluster.admin() as admin:
        taken = take_snapshot(
            admin, topics=topics or None, clock=clock, own_prefix=cluster.topics.prefix
        )
    for name in sorted(set(topics) - set(taken.topics)):
        raise ConfigError(f'The cluster has no topic "{name}".')
    return taken
