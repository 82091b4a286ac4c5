"""Results of an order audit and of a run, and their JSON documents.

Unknown values are None, never 0. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from trimtab.evaluate.order import Violation, ViolationKind
from trimtab.model.codec import VERSION, Json
from trimtab.model.scalars import key_field


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAuditResult:
    """The result of an order audit: what was audited, violations by kind, and the first ones."""

    run: str
    group: str | None
    receipts: int
    records: int
    expected: int | None
    rejects: int
    unnumbered: int
    counts: Mapping[ViolationKind, int]
    first: tuple[Violation, ...]

    def findings(self, *, no_repeats: bool) -> int:
        """How many violations fail the audit."""
        return sum(
            n for kind, n in self.counts.items() if no_repeats or kind is not ViolationKind.REPEAT
        )


def audited_to(audited: OrderAuditResult, *, no_repeats: bool) -> Json:
    """The document of `evaluate order --json`."""
    return {
        "v": VERSION,
        "kind": "order",
        "run": audited.run,
        "group": audited.group,
        "receipts": audited.receipts,
        "records": audited.records,
        "expected": audited.expected,
        "rejects": audited.rejects,
        "unnumbered": audited.unnumbered,
        "counts": {str(kind): audited.counts.get(kind, 0) for kind in ViolationKind},
        "findings": audited.findings(no_repeats=no_repeats),
        "violations": [
            {
                "kind": str(v.kind),
                "topic": v.topic,
                "partition": v.partition,
                **({"key": None} if v.key is None else key_field(v.key)),
                "at": v.at,
                "detail": v.detail,
            }
            for v in audited.first
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Quantiles of latency in milliseconds, and the share of records within the SLA."""

    events: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    within_sla: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerWork:
    """One incarnation: what it processed, and the share of its lifetime it was busy."""

    consumer: int
    incarnation: str
    processed: int
    busy_s: float
    life_s: float
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingTimes:
    """Moves, and how long they blocked partitions, in seconds."""

    moves: int
    p50_s: float | None = None
    p90_s: float | None = None
    max_s: float | None = None
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWindow:
    """One row of the table `outcomes`."""

    window_start: int
    window_end: int
    latency: Latency
    replicas: float | None
    replica_minutes: float | None
    busiest_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run.

    `replicas_from` is the source of the replica timeline. `moves` are changes of owner seen in
    the receipts, `handovers` pairs of stop and started on the control topic, None without it.
    """

    run: str
    group: str
    from_ts: int
    to_ts: int
    sla_s: float
    latency: Latency
    repeats: int
    rejects: int
    replicas_from: str
    replica_minutes: float
    busiest_share: float | None
    busiest_to_mean: float | None
    moves: BlockingTimes
    handovers: BlockingTimes | None
    consumers: tuple[ConsumerWork, ...] = ()
    windows: tuple[OutcomeWindow, ...] = field(default=())

    @property
    def mean_replicas(self) -> float | None:
        """The mean number of replicas over the whole run."""
        minutes = (self.to_ts - self.from_ts) / 60e6
        return self.replica_minutes / minutes if minutes > 0 else None


def outcome_to(outcome: Outcome) -> Json:
    """The document of `evaluate outcome --json`."""
    whole = asdict(outcome)
    whole.update(whole.pop("latency"), mean_replicas=outcome.mean_replicas)
    whole["windows"] = [window | window.pop("latency") for window in whole["windows"]]
    return {"v": VERSION, "kind": "outcome", **whole}
