"""How a load went: acknowledged records, progress, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Ack(NamedTuple):
    """An acknowledged record; `offset` is −1 if the broker did not report it."""

    key: bytes | None
    seq: int | None
    partition: int
    offset: int


class LoadProgress(NamedTuple):
    """Progress of a load; `behind_s` is how late the newest record was sent."""

    time_s: float
    sent: int
    acknowledged: int
    failed: int
    behind_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """The result of a load.

    `asked` are the records due until the end, or until the load was stopped; each of those sent
    was acknowledged or failed. Rates are per second. A record is late if it was sent more than
    `late_after_ms` after it was due. `failures` counts failed records by the client's reason.
    `acknowledged` and the latencies are None with `acks=0`.
    """

    asked: int
    sent: int
    acknowledged: int | None
    failed: int
    asked_rate: float
    achieved_rate: float
    duration_s: float
    late: int
    late_after_ms: float
    max_late_ms: float
    queue_full_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    failures: Mapping[str, int] = field(default_factory=dict)
    fatal: str | None = None
    interrupted: bool = False

    @property
    def shortfall(self) -> str | None:
        """How far and why the load fell behind its schedule; None if it kept it."""
        if not self.late:
            return None
        why = (
            f"the client's queue was full for {self.queue_full_s:.1f} s"
            if self.queue_full_s > 0
            else "this process could not send faster"
        )
        return (
            f"fell {self.max_late_ms / 1000:.2g} s behind its schedule: {why}; {self.late} of "
            f"{self.sent} records were sent more than {self.late_after_ms:g} ms late"
        )
