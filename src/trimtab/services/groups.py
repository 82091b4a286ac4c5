"""The current assignment of a consumer group, subscribed or directed by a controller."""

from __future__ import annotations

from dataclasses import replace

from trimtab.kafka.cluster import Cluster
from trimtab.measure.group_state import GroupSnapshot, group_state


def present_group(cluster: Cluster, group: str, topics: frozenset[str] | None) -> GroupSnapshot:
    """A group as the group coordinator reports it, else as its controller has recorded it.

    The group coordinator knows no members of a directed group. Without `topics`, all topics that
    the group reads or has committed offsets for are included.
    """
    from trimtab.apply.consumers.kafka.leadership import GroupConfig, persisted_state

    with cluster.admin() as admin:
        found = replace(group_state(admin, group, topics), cluster=admin.cluster().cluster)
        directed = not found.assignment and bool(admin.topics([cluster.topics.group(group)]))
    if not directed:
        return found
    config = GroupConfig(cluster=cluster, group=group, topics=tuple(sorted(topics or ())))
    left = persisted_state(config, missing_ok=True)
    if left is None:
        return found
    return replace(found, assignment=left.assignment.only(dict.fromkeys(found.partitions)))
