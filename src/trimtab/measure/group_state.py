"""The current state of a group: the partitions of its topics, and its members' assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.errors import MeasurementError
from trimtab.model.assignment import Assignment, numbered_members, present_assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.plan import MemberName

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin

_STABLE = frozenset({"STABLE", "EMPTY"})


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """All partitions of a group's topics, and their assignment.

    `members` are the group's members by consumer index; `cluster` is the cluster id, if known.
    """

    partitions: frozenset[TopicPartition]
    assignment: Assignment
    members: Mapping[int, MemberName] = field(default_factory=dict)
    cluster: str | None = None


def group_state(admin: Admin, name: str, topics: frozenset[str] | None = None) -> GroupSnapshot:
    """Reads a group's state; without `topics`, of the topics it reads or has committed offsets for.

    A group that does not exist has an empty assignment, and a topic that does not exist has no
    partitions. A group that is being rebalanced has no stable state: this raises an error.
    """
    found = admin.groups([name])
    group = found[0] if found else None
    if group is not None and group.state.upper() not in _STABLE:
        raise MeasurementError(
            f'Group "{name}" is being rebalanced (state {group.state}).',
            hint="Try again when the rebalance has ended.",
        )
    owned = [p for m in group.members for p in m.partitions] if group is not None else []
    if topics is None:
        committed = admin.committed([name]).get(name, {})
        topics = frozenset(p.topic for p in (*owned, *committed))
    partitions = frozenset(p.name for p in admin.topics(sorted(topics))) if topics else frozenset()
    if group is None:
        return GroupSnapshot(partitions, Assignment())
    assignment = present_assignment(group, topics).only(dict.fromkeys(partitions))
    names = {
        consumer: MemberName(client_id=m.client_id, host=m.host, member_id=m.member_id)
        for consumer, m in numbered_members(group, topics).items()
        if consumer in assignment.consumers
    }
    return GroupSnapshot(partitions, assignment, names)
