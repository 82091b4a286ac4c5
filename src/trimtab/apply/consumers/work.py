"""What a consumer does with records: handler, sink and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.apply.consumers.interfaces import DeadLetters, Receipts, Sink
from trimtab.apply.handling import Handler
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record

DAY_S = 24 * 60 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a batch is full, how long a phase may last, and when old commits are renewed."""

    batch_bytes: int = 5_000_000
    wait_s: float = 1.0
    renew_s: float = DAY_S

    def __post_init__(self) -> None:
        if self.batch_bytes < 1 or self.wait_s <= 0 or self.renew_s <= 0:
            raise ValueError(f"invalid limits for a cycle: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is done with records, and within which limits.

    Handler and sink may both be missing: then records are only committed. Without dead letters a
    record that cannot be handled ends the consumer. `in_hand` is called with the record that is
    being handled.
    """

    handler: Handler | None = None
    sink: Sink | None = None
    dead_letters: DeadLetters | None = None
    receipts: Receipts | None = None
    limits: Limits = field(default_factory=Limits)
    retry: Retry = field(default_factory=Retry)
    in_hand: Callable[[Record | None], None] | None = None
