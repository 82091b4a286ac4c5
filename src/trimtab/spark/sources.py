"""Reads Kafka topics and files as typed samples and events.

Reads are lazy; only jobs start them. Of users' records only sizes and keys are read, never values.
Telemetry that cannot be parsed goes to `rejects` with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from trimtab.errors import BadFile
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION
from trimtab.model.record import MARKER
from trimtab.model.telemetry import AHEAD_S
from trimtab.spark.schemas import (
    DECISION,
    DECISIONS,
    RECEIPT,
    RECEIPTS,
    SAMPLES,
    TABLES,
    fitting,
)
from trimtab.spark.session import storage_path

WITH_HEADERS = {"includeHeaders": "true"}
"""Spark's option for headers; needed to tell markers from data in topics that are routed by key."""

RAW_JSON = "_not_json"
OTHER_TYPE = "not JSON, or a field of another type"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpan:
    """What to read from Kafka: offsets per partition, `starts` inclusive, `ends` exclusive."""

    cluster: Cluster
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is no offset between starts and ends."""
        return all(self.ends[p] <= start for p, start in self.starts.items())


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as Spark's options take them."""
    tree: dict[str, dict[str, int]] = {}
    for partition, offset in offsets.items():
        tree.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(tree)


def _names(partitions: Iterable[TopicPartition]) -> str:
    tree: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        tree.setdefault(topic, []).append(partition)
    return json.dumps(tree)


def read_span(
    session: SparkSession, span: KafkaSpan, *, min_partitions: int | None = None
) -> DataFrame:
    """A batch read; `min_partitions` spreads a skewed topic over all cores."""
    reader = (
        session.read.format("kafka")
        # By partition number, so that partitions added meanwhile are ignored.
        .option("assign", _names(span.starts))
        .option("startingOffsets", offsets_text(span.starts))
        .option("endingOffsets", offsets_text(span.ends))
        .option("failOnDataLoss", "false")
        .options(**span.cluster.for_spark())
        .options(**dict(span.options))
    )
    if min_partitions is not None:
        reader = reader.option("minPartitions", str(min_partitions))
    return reader.load()


def read_stream(
    session: SparkSession,
    cluster: Cluster,
    pattern: str,
    *,
    starting: str,
    max_records: int | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A streaming read that survives deleted, recreated and extended topics.

    A batch has at most `max_records`, with every partition's share of what is waiting.
    """
    reader = (
        session.readStream.format("kafka")
        .option("subscribePattern", pattern)
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "false")
        # The default of 500 ms would delay every result by half a second.
        .option("kafka.fetch.max.wait.ms", "10")
        # The default of five minutes would delay the discovery of a new topic.
        .option("kafka.metadata.max.age.ms", "1000")
        .options(**cluster.for_spark())
        .options(**dict(options or {}))
    )
    if max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_records))
    return reader.load()


def is_json(path: Path) -> bool:
    """Whether files are JSON (true) or Parquet (false); raises an error otherwise."""
    if not path.exists():
        raise BadFile(f"{path}: no such file or folder")
    names = [path.name] if path.is_file() else [p.name for p in path.rglob("*") if p.is_file()]
    if any(name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")) for name in names):
        return True
    if not any(name.endswith(".parquet") for name in names):
        raise BadFile(
            f"{path}: neither Parquet nor JSON files found",
            hint="Give a .parquet or .json file, or a folder of them.",
        )
    return False


def read_files(session: SparkSession, path: Path, table: str) -> DataFrame:
    """Reads a Parquet or JSON table; JSON lines that cannot be parsed are kept in `RAW_JSON`."""
    if is_json(path):
        # As text first: Spark's JSON source does not parse columns that are not selected, so
        # it would not notice errors in them.
        lines = session.read.text(storage_path(path), recursiveFileLookup=True)
        return _from_json(lines, table)
    return fitting(session.read.parquet(storage_path(path)), table, source=str(path))


def json_of(text: Column | str, schema: StructType, **options: str) -> Column:
    """Parses JSON; text that does not match the schema is kept in `RAW_JSON`."""
    # A new schema, because `StructType.add` modifies the schema it is called on.
    kept = StructType([*schema.fields, StructField(RAW_JSON, StringType())])
    return F.from_json(text, kept, {"columnNameOfCorruptRecord": RAW_JSON} | options)


# ---------------------------------------------------------------- steps


def events(raw: DataFrame) -> DataFrame:
    """Kafka records → events: sizes and keys, never values.

    Read with headers (`WITH_HEADERS`), the markers of keyed topics are left out.
    """
    if "headers" in raw.columns:
        marked = F.exists("headers", lambda header: header["key"] == MARKER)
        raw = raw.where(~F.coalesce(marked, F.lit(False)))
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("ts"),
        "key",
        F.coalesce(F.octet_length("key"), F.lit(0)).alias("key_bytes"),
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("value_bytes"),
    )


def log_records(raw: DataFrame) -> DataFrame:
    """Kafka records as they are: place, time of arrival in microseconds, and value."""
    return raw.select("partition", "offset", F.unix_micros("timestamp").alias("arrived"), "value")


_RECEIPT_TEXTS = ("run", "group", "topic", "incarnation")
_RECEIPT_COUNTS = ("partition", "offset", "consumer")
_RECEIPT_TIMES = ("event_ts", "started_ts", "finished_ts")


def receipt_records(raw: DataFrame) -> DataFrame:
    """Receipt records → receipts with a `reason` for rejection, null for valid rows."""
    checked = _checked(
        raw,
        RECEIPT,
        needed=(*_RECEIPT_TEXTS, *_RECEIPT_COUNTS, *_RECEIPT_TIMES),
        counts=(*_RECEIPT_COUNTS, *_RECEIPT_TIMES),
        times=_RECEIPT_TIMES,
    )
    return checked.withColumn("key", _key())


def decisions(raw: DataFrame) -> DataFrame:
    """Decision records → decisions; invalid records are left out."""
    needed = ("ts", "group", "action", "from", "to")
    checked = _checked(raw, DECISION, needed=needed, counts=("ts",), times=("ts",), why="rejected")
    return checked.where("rejected is null").select(*DECISIONS.names)


def control(raw: DataFrame) -> DataFrame:
    """Control records → one row per named partition, or one row without: sender, type, time."""
    text = F.col("value").cast("string")
    parsed = raw.select(F.from_json(text, _CONTROL).alias("t")).select("t.*")
    ours = parsed.where((F.col("v") == VERSION) & F.col("ts").between(0, _LAST_TS))
    return ours.select(
        *(F.timestamp_micros("ts").alias("ts"), "type", "consumer", "incarnation"),
        F.explode_outer("partitions").alias("p"),
    ).select("ts", "type", "consumer", "incarnation", "p.*")


_CONTROL = (
    "v long, type string, ts long, consumer int, incarnation string, "
    "partitions array<struct<topic string, partition int, committed long>>"
)
_LAST_TS = 253_402_300_799_999_999
"""The last microsecond that a timestamp can hold, in the year 9999."""


def _checked(
    raw: DataFrame,
    schema: StructType,
    *,
    needed: tuple[str, ...],
    counts: tuple[str, ...],
    times: tuple[str, ...],
    why: str = "reason",
) -> DataFrame:
    """Parsed records of one of Trimtab's topics; `why` is null for valid records."""
    text = F.col("value").cast("string")
    parsed = json_of(text, schema)
    frame = raw.select(text.alias("raw"), F.col("timestamp").alias("arrived"), parsed.alias("t"))
    rejected = _why_rejected("t", needed, counts, times).alias(why)
    whole = frame.select("raw", "arrived", "t.*", rejected)
    # Only the text of a rejected row is kept: its time may be out of range.
    good = F.col(why).isNull()
    return whole.withColumns({t: F.timestamp_micros(F.when(good, F.col(t))) for t in times})


def between(ts: str, from_ts: int, to_ts: int) -> Column:
    """Whether a time is from `from_ts` (inclusive) to `to_ts` (exclusive), in microseconds."""
    micros = F.unix_micros(ts)
    return (micros >= from_ts) & (micros < to_ts)


def latest() -> Column:
    """The latest time that a record of ours may have, in microseconds."""
    return F.unix_micros("arrived") + AHEAD_S * 1_000_000


def _why_rejected(
    of: str, needed: tuple[str, ...], counts: tuple[str, ...], times: tuple[str, ...]
) -> Column:
    """Why a record, parsed into the column `of`, is rejected; null for valid ones."""
    field = {name: F.col(f"{of}.{name}") for name in (*needed, *counts, *times)}
    return first_reason(
        [
            *envelope(of, VERSION),
            *((field[name].isNull(), F.lit(f"no {name}")) for name in needed),
            *((field[name] < 0, F.lit(f"{name} is negative")) for name in counts),
            *((field[name] > latest(), F.lit(f"{name} lies in the future")) for name in times),
        ]
    )


def envelope(of: str, version: int) -> list[tuple[Column, Column]]:
    """The rules for every record: it has a value, which is JSON of this version."""
    found = F.col(f"{of}.v")
    return [
        (F.col("raw").isNull() | F.col("raw").rlike(r"^\s*$"), F.lit("no value")),
        (found != version, F.concat(F.lit("unknown version "), found)),
        (F.col(f"{of}.{RAW_JSON}").isNotNull(), F.lit(OTHER_TYPE)),
        (found.isNull(), F.lit("no version")),
    ]


def first_reason(rules: Iterable[tuple[Column, Column]]) -> Column:
    """The reason of the first rule that holds; null if none does."""
    first, *rest = rules
    return reduce(lambda chain, rule: chain.when(*rule), rest, F.when(*first))


def samples(parsed: DataFrame) -> DataFrame:
    """The valid rows of `telemetry_records.telemetry`."""
    return parsed.where("reason is null").select(*SAMPLES.names)


def receipts(parsed: DataFrame) -> DataFrame:
    """The valid rows of `receipt_records`."""
    return parsed.where("reason is null").select(*RECEIPTS.names)


def rejects(parsed: DataFrame, *, source: str) -> DataFrame:
    """The rejected rows of telemetry or of `receipt_records`, with their original text."""
    return parsed.where("reason is not null").select(
        F.col("arrived").alias("ts"), F.lit(source).alias("source"), "reason", "raw"
    )


def split_files(frame: DataFrame, *, source: str, table: str) -> tuple[DataFrame, DataFrame]:
    """Rows read from files → (valid rows, rejects)."""
    needed = {
        "events": ("topic", "partition", "offset", "ts", "key_bytes", "value_bytes"),
        "samples": ("topic", "partition", "leader", "ts"),
        "receipts": (*_RECEIPT_TEXTS, *_RECEIPT_COUNTS, *_RECEIPT_TIMES),
    }[table]
    lacking = reduce(lambda any_, name: any_ | F.col(name).isNull(), needed, F.lit(False))
    unread = F.col(RAW_JSON).isNotNull() if RAW_JSON in frame.columns else F.lit(False)
    raw = F.to_json(F.struct(*TABLES[table].names))
    bad = frame.where(lacking | unread).select(
        F.lit(None).cast("timestamp").alias("ts"),
        F.lit(source).alias("source"),
        F.when(unread, OTHER_TYPE)
        .otherwise(f"one of {', '.join(needed)} is missing")
        .alias("reason"),
        (F.coalesce(F.col(RAW_JSON), raw) if RAW_JSON in frame.columns else raw).alias("raw"),
    )
    return frame.where(~(lacking | unread)).select(*TABLES[table].names), bad


def _key() -> Column:
    """A key as in Trimtab's JSON: text if it is valid UTF-8, else base64."""
    return F.coalesce(F.encode("key", "UTF-8"), F.unbase64("key_b64"))


def _from_json(lines: DataFrame, table: str) -> DataFrame:
    """JSON lines as in Trimtab's topics → table columns: times in microseconds, keys as text."""
    schema = TABLES[table]
    times = [f.name for f in schema.fields if f.dataType == TimestampType()]
    shape = {**dict.fromkeys(times, LongType()), "key": StringType()}
    fields = [StructField(f.name, shape.get(f.name, f.dataType)) for f in schema.fields]
    if "key" in schema.names:
        fields.append(StructField("key_b64", StringType()))
    parsed = lines.select(json_of("value", StructType(fields)).alias("row")).select("row.*")
    dated = parsed.withColumns({t: F.when(F.col(t) >= 0, F.timestamp_micros(t)) for t in times})
    if "key" not in schema.names:
        return dated
    if table == "events":
        dated = dated.withColumn(
            "key_bytes", F.coalesce("key_bytes", F.octet_length(_key()), F.lit(0))
        )
    return dated.withColumn("key", _key()).drop("key_b64")
