"""What a planner is: one Protocol per layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits


class PackingPlanner(Protocol):
    """Partition → consumer: a pure function of its arguments, whatever their order.

    `current` may name partitions that have departed, which are dropped; partitions without an
    entry in it are arrivals. A load that is negative or not finite is a `ValueError`.
    """

    def __call__(
        self,
        loads: Mapping[TopicPartition, float],
        current: Assignment,
        limits: GroupLimits,
        /,
    ) -> Assignment:
        """Places every partition of `loads`."""
        ...
