"""The evaluation jobs: read receipts or records, run the steps, store tables, summarise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.errors import BadFile, ConfigError, ThinData
from trimtab.evaluate.order import OrderRules, Violation, ViolationKind
from trimtab.evaluate.spark import outcomes as steps
from trimtab.evaluate.spark.order_audit import distinct_receipts, log_audit, order_audit
from trimtab.evaluate.verdict import (
    Audited,
    Blocking,
    ConsumerWork,
    Latency,
    Outcome,
    OutcomeWindow,
)
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.spans import offsets_between
from trimtab.model.cluster import TopicPartition
from trimtab.spark import sources
from trimtab.spark.session import spark_errors, storage_path
from trimtab.spark.warehouse import Warehouse

SHOWN = 20
"""Number of violations of each kind in the result; the table keeps all."""

_PLACES = "topic string, partition int, offset long"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptQuery:
    """Which receipts to read: group, run and time; None means all."""

    group: str
    run: str | None = None
    topics: frozenset[str] = frozenset()
    from_ts: int
    to_ts: int

    @property
    def label(self) -> str:
        """The name under which results are stored."""
        return self.run or f"all-{self.group}"

    def wanted(self) -> Column:
        """A column that is true for the selected receipts."""
        rules = [F.col("group") == self.group]
        rules.append(sources.between("finished_ts", self.from_ts, self.to_ts))
        if self.run is not None:
            rules.append(F.col("run") == self.run)
        if self.topics:
            rules.append(F.col("topic").isin(*self.topics))
        whole, *rest = rules
        for rule in rest:
            whole = whole & rule
        return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptTables:
    """The input: receipts, and control messages and decisions of the controller."""

    receipts: DataFrame
    rejects: DataFrame | None = None
    control: DataFrame | None = None
    decisions: DataFrame | None = None


# ---------------------------------------------------------------- sources


def from_kafka(
    session: SparkSession, admin: Admin, cluster: Cluster, asked: ReceiptQuery
) -> ReceiptTables:
    """Reads the topics of receipts, decisions and control messages that exist."""
    raw = _read(session, admin, cluster, [cluster.topics.receipts], asked)
    if raw is None:
        raise ThinData(
            f"There is no topic {cluster.topics.receipts}.",
            hint="Receipts are written by `trimtab consume`.",
        )
    parsed = raw.transform(sources.receipt_records)
    decided = _read(session, admin, cluster, [cluster.topics.decisions], asked)
    control = _read(session, admin, cluster, [cluster.topics.control(asked.group)], asked)
    return ReceiptTables(
        receipts=parsed.transform(sources.receipts).where(asked.wanted()),
        rejects=parsed.transform(sources.rejects, source=cluster.topics.receipts),
        decisions=None
        if decided is None
        else decided.transform(sources.decisions).where(F.col("group") == asked.group),
        control=None if control is None else control.transform(sources.control),
    )


def from_files(session: SparkSession, path: Path, asked: ReceiptQuery) -> ReceiptTables:
    """Reads receipts in Parquet or JSON."""
    frame = sources.read_files(session, path, "receipts")
    good, bad = sources.split_files(frame, source=str(path), table="receipts")
    return ReceiptTables(receipts=good.where(asked.wanted()), rejects=bad)


def records_of(
    session: SparkSession,
    admin: Admin,
    cluster: Cluster,
    topics: Iterable[str],
    *,
    seq: Column,
    span: tuple[int, int],
) -> DataFrame:
    """Records of users' own topics, with their sequence numbers."""
    named = sorted(topics)
    asked = ReceiptQuery(group="", from_ts=span[0], to_ts=span[1])
    raw = _read(session, admin, cluster, named, asked, headers=True)
    if raw is None:
        raise ConfigError(f"There is no topic {', '.join(named)}.")
    inside = raw.where(sources.between("timestamp", *span))
    return inside.select("topic", "partition", "offset", "key", seq.alias("seq"))


def seq_in_header(name: str) -> Column:
    """The number in a header: eight bytes, big-endian, or digits."""
    found = F.filter("headers", lambda h: h.getField("key") == name)
    value = F.element_at(found, -1).getField("value")  # the last header of that name, as in Kafka
    text = value.cast("string")
    number = F.conv(F.hex(value), 16, -10).cast("long")
    return (
        F.when(F.size(found) == 0, F.lit(None))
        .when(text.rlike("^-?[0-9]{1,18}$"), text.try_cast("long"))
        .when(F.octet_length(value) == 8, number)
    )


def seq_in_json(path: str) -> Column:
    """The number in a field of a JSON value, such as `order.seq`."""
    return F.get_json_object(F.col("value").cast("string"), f"$.{path}").try_cast("long")


def expected_places(
    session: SparkSession,
    *,
    acknowledged: Path | None = None,
    topic: str | None = None,
    offsets: Mapping[TopicPartition, tuple[int, int]] | None = None,
) -> DataFrame | None:
    """The expected records: a recording of `trimtab load`, ranges of offsets, or both."""
    frames = []
    if acknowledged is not None:
        frames.append(_acknowledged(session, acknowledged, topic))
    if offsets:
        rows = [(p.topic, p.partition, first, last) for p, (first, last) in offsets.items()]
        ranges = session.createDataFrame(
            [row for row in rows if row[2] < row[3]],
            "topic string, partition int, first long, last long",
        )
        frames.append(
            ranges.select(
                "topic", "partition", F.explode(F.expr("sequence(first, last - 1)")).alias("offset")
            )
        )
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1]).distinct()


def _acknowledged(session: SparkSession, path: Path, topic: str | None) -> DataFrame:
    if not path.exists():
        raise BadFile(f"{path} does not exist")
    with spark_errors(f"reading {path}"):
        frame = session.read.parquet(storage_path(path))
    if missing := {"partition", "offset"} - set(frame.columns):
        raise BadFile(
            f"{path}: column {min(missing)} is missing",
            hint="Give a file written by `trimtab load … --record FILE`.",
        )
    if "topic" not in frame.columns:
        if topic is None:
            raise ConfigError(f"{path} does not name its topic: give one --topic.")
        frame = frame.withColumn("topic", F.lit(topic))
    # −1: the broker did not return the offset.
    return frame.where("offset >= 0").select(
        "topic", F.col("partition").cast("int"), F.col("offset").cast("long")
    )


def _read(
    session: SparkSession,
    admin: Admin,
    cluster: Cluster,
    topics: list[str],
    asked: ReceiptQuery,
    *,
    headers: bool = False,
) -> DataFrame | None:
    placed = [p.name for p in admin.topics(topics) if not p.offline]
    if {p.topic for p in placed} != set(topics):
        return None
    found = offsets_between(
        cluster,
        placed,
        from_ts=asked.from_ts,
        to_ts=asked.to_ts,
    )
    # A control topic has a partition for every possible consumer; few have records.
    filled = {p for p in placed if found.starts[p] < found.ends[p]} or {min(placed)}
    span = sources.KafkaSpan(
        cluster=cluster,
        starts={p: found.starts[p] for p in filled},
        ends={p: found.ends[p] for p in filled},
        options={
            # The controller writes in transactions; aborted messages must not be read.
            "kafka.isolation.level": "read_committed",
            **({"includeHeaders": "true"} if headers else {}),
        },
    )
    pieces = max(len(filled), 2 * session.sparkContext.defaultParallelism)
    return sources.read_span(session, span, min_partitions=pieces)


# ---------------------------------------------------------------- order


def audit_receipts(
    session: SparkSession,
    given: ReceiptTables,
    asked: ReceiptQuery,
    *,
    rules: OrderRules,
    expected: DataFrame | None = None,
    warehouse: Warehouse | None = None,
) -> Audited:
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
) -> Audited:
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
) -> Audited:
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
        return Audited(
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
class Judging:
    """The parameters of an outcome; `timeline` has the columns ts and replicas."""

    sla_s: float
    window_s: float = 60.0
    replicas_from: ReplicasFrom = ReplicasFrom.AUTO
    timeline: DataFrame | None = None


def judge(
    session: SparkSession,
    given: ReceiptTables,
    asked: ReceiptQuery,
    how: Judging,
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
    how: Judging,
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
    given: ReceiptTables, how: Judging, receipts: DataFrame, span: tuple[int, int]
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


def _blocking(moved: DataFrame) -> Blocking:
    row = moved.agg(
        F.count("*").alias("moves"),
        F.percentile("blocked_s", [0.5, 0.9]).alias("levels"),
        F.max("blocked_s").alias("longest"),
        F.sum("blocked_s").alias("total"),
    ).collect()[0]
    if not row.moves:
        return Blocking(moves=0)
    half, most = row.levels
    return Blocking(moves=row.moves, p50_s=half, p90_s=most, max_s=row.longest, total_s=row.total)


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
