"""The topics of the keyed data path of one data topic and one consumer group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyedTopics:
    """The names.

    >>> KeyedTopics("orders", "pay").state
    'orders.state.pay'
    """

    data: str
    group: str

    @property
    def input(self) -> str:
        """What sources write if there is a gateway."""
        return f"{self.data}.in"

    @property
    def state(self) -> str:
        """Changelogs of the tasks, one partition each."""
        return f"{self.data}.state.{self.group}"

    @property
    def handover(self) -> str:
        """States on their way to the partition that adopts them."""
        return f"{self.data}.handover.{self.group}"

    @property
    def dead(self) -> str:
        """Records that could not be handled."""
        return f"{self.data}.dead"

    @property
    def assign(self) -> str:
        """Routes, written by gateways only."""
        return f"{self.data}.assign"

    def transactional_id(self, partition: int) -> str:
        """Fences all but the newest owner of a partition."""
        return f"trimtab-task-{self.group}-{self.data}-{partition}"
