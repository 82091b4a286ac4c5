"""What a keyed consumer does, within which limits, and what it needs of its reader and topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.apply.keys.backends.state_stores import StoreOfPartition
from trimtab.apply.keys.keyed_handler import KeyedHandler
from trimtab.apply.keys.task_round import Adoption, AppliedReceipt, TaskCounts, TaskLimits
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record


class DataReader(Protocol):
    """The source of records, directed or a member of a group; used by one thread."""

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; an empty result after `timeout_s`."""
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all returned records; None while it is unknown."""
        ...

    def behind(self) -> int:
        """How many records at the brokers were not returned yet, as far as that is known."""
        ...

    def stay_active(self) -> None:
        """Keeps up group membership and checks while no records are needed; returns none."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Reads none of these until `resume`."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again."""
        ...

    def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again from their committed offsets."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedTopicFacts:
    """What a task must know of its data topic: see `trimtab.apply.keys.kafka.start_up_checks`."""

    topic_id: str
    partitions: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWork:
    """What a keyed consumer does, and within which limits.

    Attributes:
        max_tasks: Partitions that one process may own; each costs a producer with its threads.
        commit_s: Longest time between two transactions of a task that has something to write.
        store: Makes the local store of a task's entries; in memory, with the usual bound, if None.
        lost_after_s: How long a key waits before it is looked whether its state can still come.
        receipt_text: Makes the text of a receipt; no receipts are written if None.
        on_adopted: Called for each state that has arrived.
        on_restored: Called for each restored task with the records read and the seconds taken.
        on_restoring: Called while a task is restored, with the records read and those there are.
        on_written: Called with the counts of a task after each of its transactions.
    """

    handler: KeyedHandler
    limits: TaskLimits = field(default_factory=TaskLimits)
    retry: Retry = field(default_factory=Retry)
    max_tasks: int = 64
    commit_s: float = 0.5
    store: StoreOfPartition | None = None
    lost_after_s: float = 30.0
    receipt_text: Callable[[AppliedReceipt], bytes] | None = None
    in_hand: Callable[[Record | None], None] | None = None
    on_adopted: Callable[[TopicPartition, Adoption], None] = field(default=lambda _p, _a: None)
    on_restored: Callable[[TopicPartition, int, float], None] = field(
        default=lambda _p, _records, _seconds: None
    )
    on_restoring: Callable[[TopicPartition, int, int], None] = field(
        default=lambda _p, _read, _there: None
    )
    on_written: Callable[[TopicPartition, TaskCounts], None] = field(default=lambda _p, _c: None)
