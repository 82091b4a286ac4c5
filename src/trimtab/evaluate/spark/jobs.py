"""The evaluation jobs: run the steps on receipts or records, store tables, summarise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.errors import ThinData
from trimtab.evaluate.order import OrderRules, Violation, ViolationKind
from trimtab.evaluate.spark import outcomes as steps
from trimtab.evaluate.spark.order_audit import distinct_receipts, log_audit, order_audit
from trimtab.evaluate.spark.receipt_tables import ReceiptQuery, ReceiptTables
from trimtab.evaluate.verdict import (
    BlockingTimes,
    ConsumerWork,
    Latency,
    OrderAuditResult,
    Outcome,
    OutcomeWindow,
)
from trimtab.spark.session import spark_errors
from trimtab.spark.warehouse import Warehouse

SHOWN = 20
"""Number of violations of each kind in the result; the table keeps all."""


# ---------------------------------------------------------------- order


def audit_receipts(
    session: SparkSession,
    given: ReceiptTables,
    asked: ReceiptQuery,
    *,
    rules: OrderRules,
    expected: DataFrame | None = None,
    warehouse: Warehouse | None = None,
) -> OrderAuditResult:
    """Audits the receipts of a group, and stores the violations."""
    receipts = given.receipts.persist()
    try:
        with spark_errors("auditing receipts"):
            commits = None if given.control is None else _commits(given.control)
            found = order_audit(
                receipts, run=asked.label, rules=rules, expected=expected, commits=commits
            )
            audited = _audited(session, found, asked.label, receipts, expected, warehouse)
            return replace(
                audited,
                group=asked.group,
                rejects=0 if given.rejects is None else given.rejects.count(),
            )
    finally:
        receipts.unpersist()


def _commits(control: DataFrame) -> DataFrame:
    return control.where("type = 'stopped' and committed is not null")


def audit_log(
    session: SparkSession,
    records: DataFrame,
    *,
    label: str,
    rules: OrderRules,
    expected: DataFrame | None = None,
    warehouse: Warehouse | None = None,
) -> OrderAuditResult:
    """Audits the sequence numbers of users' own records, and stores the violations."""
    kept = records.persist()
    try:
        with spark_errors("auditing records"):
            found = log_audit(kept, run=label, rules=rules, expected=expected)
            return _audited(session, found, label, kept, expected, warehouse)
    finally:
        kept.unpersist()


def _audited(
    session: SparkSession,
    found: DataFrame,
    run: str,
    source: DataFrame,
    expected: DataFrame | None,
    warehouse: Warehouse | None,
) -> OrderAuditResult:
    looked = source.agg(
        F.count("*").alias("receipts"),
        F.count_distinct("topic", "partition", "offset").alias("records"),
        F.count_if(F.col("seq").isNull()).alias("unnumbered"),
    ).collect()[0]
    if not looked.receipts:
        raise ThinData(
            "There are no records to audit.", hint="Check --group, --run, --topic and the span."
        )
    violations = found.persist()
    try:
        if warehouse is not None:
            warehouse.forget(session, "violations", run=run)
            warehouse.write(violations, "violations", run=run)
        rows = _first(violations)
        return OrderAuditResult(
            run=run,
            group=None,
            receipts=looked.receipts,
            records=looked.records,
            expected=None if expected is None else expected.count(),
            rejects=0,
            unnumbered=looked.unnumbered,
            counts={ViolationKind(r.kind): r.of_kind for r in rows},
            first=tuple(map(_violation, rows)),
        )
    finally:
        violations.unpersist()


def _first(violations: DataFrame) -> list[Row]:
    """The first violations of each kind, with the total number of that kind."""
    same = Window.partitionBy("kind")
    nth = F.row_number().over(same.orderBy("topic", "partition", "at", "key"))
    numbered = violations.withColumns({"of_kind": F.count("*").over(same), "nth": nth})
    return numbered.where(F.col("nth") <= SHOWN).orderBy("kind", "nth").collect()


def _violation(row: Row) -> Violation:
    return Violation(
        kind=ViolationKind(row.kind),
        topic=row.topic,
        partition=row.partition,
        key=None if row.key is None else bytes(row.key),
        at=row["at"],
        detail=row.detail,
    )


# ---------------------------------------------------------------- outcome


class ReplicasFrom(StrEnum):
    """The source of the replica timeline; `auto` is the control topic if it has reports."""

    AUTO = "auto"
    CONTROL = "control"
    DECISIONS = "decisions"
    RECEIPTS = "receipts"
    TIMELINE = "timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeParameters:
    """The parameters of an outcome; `timeline` has the columns ts and replicas."""

    sla_s: float
    window_s: float = 60.0
    replicas_from: ReplicasFrom = ReplicasFrom.AUTO
    timeline: DataFrame | None = None


def judge(
    session: SparkSession,
    given: ReceiptTables,
    asked: ReceiptQuery,
    how: OutcomeParameters,
    warehouse: Warehouse | None = None,
) -> Outcome:
    """Computes the outcome of a run, and stores the table of its windows."""
    receipts = given.receipts.transform(distinct_receipts).persist()
    # Cached: several queries use it, and each would read the topic again.
    control = None if given.control is None else given.control.persist()
    try:
        with spark_errors("judging receipts"):
            known = replace(given, control=control)
            return _judged(session, known, asked, how, receipts, warehouse)
    finally:
        receipts.unpersist()
        if control is not None:
            control.unpersist()


def _judged(
    session: SparkSession,
    given: ReceiptTables,
    asked: ReceiptQuery,
    how: OutcomeParameters,
    receipts: DataFrame,
    warehouse: Warehouse | None,
) -> Outcome:
    span = receipts.agg(
        F.count("*").alias("receipts"),
        F.min(F.unix_micros(F.least("event_ts", "started_ts"))).alias("from_ts"),
        F.max(F.unix_micros("finished_ts")).alias("to_ts"),
    ).collect()[0]
    if not span.receipts:
        raise ThinData(
            f"There are no receipts of group {asked.group} in this span.",
            hint="Check --group, --run and the span.",
        )
    replicas, source = _replicas(given, how, receipts, (span.from_ts, span.to_ts))
    table = steps.outcomes(
        receipts,
        replicas,
        run=asked.label,
        group=asked.group,
        sla_s=how.sla_s,
        window_s=how.window_s,
    ).persist()
    try:
        if warehouse is not None:
            warehouse.forget(session, "outcomes", run=asked.label)
            warehouse.write(table, "outcomes", run=asked.label)
        whole = receipts.transform(steps.first_receipts).transform(steps.latencies, sla_s=how.sla_s)
        latency = _latency(whole.collect()[0].asDict())
        work = _consumers(receipts)
        # By incarnation: in group mode members have no index.
        busy = [one.busy_s for one in work]
        busiest, total = max(busy), sum(busy)
        minutes = replicas.transform(steps.replica_minutes).collect()[0].replica_minutes
        handed = None if given.control is None else given.control.transform(steps.handovers)
        return Outcome(
            run=asked.label,
            group=asked.group,
            from_ts=span.from_ts,
            to_ts=span.to_ts,
            sla_s=how.sla_s,
            latency=latency,
            repeats=span.receipts - latency.events,
            rejects=0 if given.rejects is None else given.rejects.count(),
            replicas_from=source,
            replica_minutes=minutes or 0.0,
            busiest_share=busiest / total if total else None,
            busiest_to_mean=busiest * len(busy) / total if total else None,
            moves=_blocking(receipts.transform(steps.moves)),
            handovers=None if handed is None else _blocking(handed),
            consumers=work,
            windows=_windows(table),
        )
    finally:
        table.unpersist()


def _replicas(
    given: ReceiptTables, how: OutcomeParameters, receipts: DataFrame, span: tuple[int, int]
) -> tuple[DataFrame, str]:
    """The replica timeline, and its source."""
    source, (from_ts, to_ts) = how.replicas_from, span
    if source is ReplicasFrom.AUTO:
        reported = given.control is not None and not given.control.where(_REPORTED).isEmpty()
        source = ReplicasFrom.CONTROL if reported else ReplicasFrom.RECEIPTS
    match source:
        case ReplicasFrom.CONTROL if given.control is not None:
            spans = steps.replicas_from_control(given.control, from_ts=from_ts, to_ts=to_ts)
        case ReplicasFrom.DECISIONS if given.decisions is not None:
            timeline = given.decisions.transform(steps.timeline_of_decisions)
            spans = steps.replicas_from_timeline(timeline, from_ts=from_ts, to_ts=to_ts)
        case ReplicasFrom.TIMELINE if how.timeline is not None:
            spans = steps.replicas_from_timeline(how.timeline, from_ts=from_ts, to_ts=to_ts)
        case ReplicasFrom.RECEIPTS:
            spans = receipts.transform(steps.replicas_from_receipts)
        case _:
            raise ThinData(f"There are no {source} records to count replicas from.")
    return spans, str(source)


_REPORTED = "incarnation is not null"


def _latency(row: Mapping[str, float]) -> Latency:
    return Latency(
        events=int(row["events"]),
        p50_ms=row["p50_ms"],
        p90_ms=row["p90_ms"],
        p99_ms=row["p99_ms"],
        p999_ms=row["p999_ms"],
        max_ms=row["max_ms"],
        within_sla=row["within_sla"],
    )


def _consumers(receipts: DataFrame) -> tuple[ConsumerWork, ...]:
    rows = receipts.transform(steps.consumers).orderBy("consumer", "from_ts").collect()
    return tuple(
        ConsumerWork(
            consumer=r.consumer,
            incarnation=r.incarnation,
            processed=r.processed,
            busy_s=r.busy_s,
            life_s=r.life_s,
            utilisation=r.utilisation,
        )
        for r in rows
    )


def _blocking(moved: DataFrame) -> BlockingTimes:
    row = moved.agg(
        F.count("*").alias("moves"),
        F.percentile("blocked_s", [0.5, 0.9]).alias("levels"),
        F.max("blocked_s").alias("longest"),
        F.sum("blocked_s").alias("total"),
    ).collect()[0]
    if not row.moves:
        return BlockingTimes(moves=0)
    half, most = row.levels
    return BlockingTimes(
        moves=row.moves, p50_s=half, p90_s=most, max_s=row.longest, total_s=row.total
    )


def _windows(table: DataFrame) -> tuple[OutcomeWindow, ...]:
    micros = {name: F.unix_micros(name) for name in ("window_start", "window_end")}
    rows = table.withColumns(micros).orderBy("window_start").collect()
    return tuple(
        OutcomeWindow(
            window_start=r.window_start,
            window_end=r.window_end,
            latency=_latency(r.asDict()),
            replicas=r.replicas,
            replica_minutes=r.replica_minutes,
            busiest_share=r.busiest_share,
        )
        for r in rows
    )
