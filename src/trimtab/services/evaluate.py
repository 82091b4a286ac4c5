"""Evaluates what was processed: whether order was kept, and latency, replicas and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.evaluate.order import OrderRules
from trimtab.evaluate.verdict import OrderAuditResult, Outcome
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.evaluate.spark.receipt_tables import ReceiptQuery, ReceiptTables
    from trimtab.spark.session import Session
    from trimtab.spark.warehouse import Warehouse


class ReplicaSource(StrEnum):
    """What replica-minutes are counted from."""

    AUTO = "auto"
    CONTROL = "control"
    DECISIONS = "decisions"
    RECEIPTS = "receipts"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReceipts:
    """Receipts of a consumer group in a span of time, from a cluster or from files.

    Without `run` and `topics` they are those of all runs and topics.
    """

    source: Cluster | Path
    group: str
    run: str | None = None
    topics: frozenset[str] = frozenset()
    from_ts: int
    to_ts: int

    def query(self) -> ReceiptQuery:
        """The same for the Spark jobs."""
        from trimtab.evaluate.spark.receipt_tables import ReceiptQuery

        return ReceiptQuery(
            group=self.group,
            run=self.run,
            topics=self.topics,
            from_ts=self.from_ts,
            to_ts=self.to_ts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRecords:
    """Records of topics that carry a sequence number per key, in a span of time.

    The number is in the header `header`, else in the field `json_field` of a JSON value.
    """

    source: Cluster
    topics: frozenset[str]
    header: str | None = None
    json_field: str | None = None
    from_ts: int
    to_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """What is audited, and what counts as a violation.

    `acknowledged` is a recording of `trimtab load` for the one topic, `offsets` are ranges: the
    records of both must have been processed. Violations are kept in `warehouse`.
    """

    audited: GroupReceipts | NumberedRecords
    rules: OrderRules = field(default_factory=OrderRules)
    acknowledged: Path | None = None
    offsets: Mapping[TopicPartition, tuple[int, int]] | None = None
    warehouse: str

    def __post_init__(self) -> None:
        if self.acknowledged is not None and len(self.audited.topics) != 1:
            raise ConfigError("A recording of acknowledged records is for exactly one topic.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAudit:
    """What the audit found, and the table that keeps all violations."""

    audited: OrderAuditResult
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRequest:
    """Which receipts are judged, and by what; a row per window is kept in `warehouse`."""

    receipts: GroupReceipts
    sla_s: float = 5.0
    window_s: float = 60.0
    replicas_from: ReplicaSource = ReplicaSource.AUTO
    warehouse: str


def evaluate_order(
    request: OrderRequest,
    *,
    start_spark: Callable[[], Session],
    listener: ProgressListener = NO_LISTENER,
) -> OrderAudit:
    """Audits that nothing was lost, no key was out of order, and no partition had two owners.

    A source that cannot be read is refused before Spark is started.
    """
    _check_source(request.audited)
    session = start_spark()
    from trimtab.spark.warehouse import Warehouse

    warehouse = Warehouse(request.warehouse)
    with _tasks_told(session, "auditing (tasks)", listener):
        found = _audit(session, request, warehouse)
    return OrderAudit(audited=found, table=warehouse.path("violations"))


def evaluate_outcome(
    request: OutcomeRequest,
    *,
    start_spark: Callable[[], Session],
    listener: ProgressListener = NO_LISTENER,
) -> Outcome:
    """Computes latency, the share within the SLA, replica-minutes and moves of a run.

    A source that cannot be read is refused before Spark is started.
    """
    receipts = request.receipts
    _check_source(receipts)
    session = start_spark()
    from trimtab.evaluate.spark import jobs
    from trimtab.spark.warehouse import Warehouse

    judging = jobs.OutcomeParameters(
        sla_s=request.sla_s,
        window_s=request.window_s,
        replicas_from=jobs.ReplicasFrom(request.replicas_from.value),
    )
    with _tasks_told(session, "judging (tasks)", listener):
        return jobs.judge(
            session,
            _tables(session, receipts),
            receipts.query(),
            judging,
            Warehouse(request.warehouse),
        )


def _check_source(wanted: GroupReceipts | NumberedRecords) -> None:
    """Refuses a missing file, cluster or topic."""
    if isinstance(wanted.source, Path):
        from trimtab.spark.sources import is_json

        is_json(wanted.source)
        return
    named = wanted.topics if isinstance(wanted, NumberedRecords) else frozenset[str]()
    with wanted.source.admin() as admin:
        missing = sorted(named - {p.topic for p in admin.topics(named)}) if named else []
    if missing:
        raise ConfigError(f"There is no topic {', '.join(missing)}.", hint="Correct --topic.")


def _audit(session: Session, request: OrderRequest, warehouse: Warehouse) -> OrderAuditResult:
    from trimtab.evaluate.spark import jobs, receipt_tables

    audited, rules = request.audited, request.rules
    expected = receipt_tables.expected_places(
        session,
        acknowledged=request.acknowledged,
        topic=min(audited.topics, default=None),
        offsets=request.offsets,
    )
    if isinstance(audited, GroupReceipts):
        return jobs.audit_receipts(
            session,
            _tables(session, audited),
            audited.query(),
            rules=rules,
            expected=expected,
            warehouse=warehouse,
        )
    number = (
        receipt_tables.seq_in_json(audited.json_field or "")
        if audited.header is None
        else receipt_tables.seq_in_header(audited.header)
    )
    span = (audited.from_ts, audited.to_ts)
    with audited.source.admin() as admin:
        return jobs.audit_log(
            session,
            receipt_tables.records_of(
                session, admin, audited.source, audited.topics, seq=number, span=span
            ),
            label=f"topic-{'-'.join(sorted(audited.topics))}",
            rules=rules,
            expected=expected,
            warehouse=warehouse,
        )


def _tables(session: Session, receipts: GroupReceipts) -> ReceiptTables:
    """The receipts, and of a cluster also what its controller wrote."""
    from trimtab.evaluate.spark import receipt_tables
    from trimtab.spark.session import spark_errors

    source, query = receipts.source, receipts.query()
    with spark_errors("reading receipts"):
        if isinstance(source, Path):
            return receipt_tables.from_files(session, source, query)
        with source.admin() as admin:
            return receipt_tables.from_kafka(session, admin, source, query)


@contextmanager
def _tasks_told(session: Session, what: str, listener: ProgressListener) -> Iterator[None]:
    """Tells how many tasks Spark has done while it works."""
    from trimtab.spark.session import watched

    listener.progress(what, 0, None)
    with watched(session, lambda done, known: listener.progress(what, done, known)):
        yield
