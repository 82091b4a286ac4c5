"""Receipts and records to judge: which ones, and where they are read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.errors import BadFile, ConfigError, ThinData
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.spans import offsets_between
from trimtab.model.cluster import TopicPartition
from trimtab.spark import sources
from trimtab.spark.session import spark_errors, storage_path


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
