"""Sources: Kafka topics or files → typed samples and events.

Reading is lazy and is asked for by the jobs only. Of a payload we take sizes and keys, never the
value. Telemetry that does not parse ends in `rejects` with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from trimtab.errors import BadFile
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION
from trimtab.spark.schemas import (
    DECISION,
    DECISIONS,
    RECEIPT,
    RECEIPTS,
    SAMPLES,
    TABLES,
    TELEMETRY,
    fitting,
)
from trimtab.spark.session import storage_path

RAW_JSON = "_not_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpan:
    """What to read from Kafka: offsets per partition, `starts` included, `ends` not."""

    cluster: Cluster
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing between starts and ends."""
        return all(self.ends[p] <= start for p, start in self.starts.items())


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
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
    """A bounded read; `min_partitions` lets all cores read a skewed topic."""
    reader = (
        session.read.format("kafka")
        # By name, so that a partition added meanwhile is no surprise.
        .option("assign", _names(span.starts))
        .option("startingOffsets", _offsets(span.starts))
        .option("endingOffsets", _offsets(span.ends))
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
) -> DataFrame:
    """An unbounded read that lives through topics deleted, made anew or grown."""
    return (
        session.readStream.format("kafka")
        .option("subscribePattern", pattern)
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "false")
        # The default of 500 ms would add half a second to every figure.
        .option("kafka.fetch.max.wait.ms", "10")
        # A topic made a moment ago should not wait five minutes to be seen.
        .option("kafka.metadata.max.age.ms", "1000")
        .options(**cluster.for_spark())
        .load()
    )


def is_json(path: Path) -> bool:
    """Whether files are JSON, else they are Parquet; refuses what is neither, or not there."""
    if not path.exists():
        raise BadFile(f"{path}: there is no such file or folder")
    names = [path.name] if path.is_file() else [p.name for p in path.rglob("*") if p.is_file()]
    if any(name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")) for name in names):
        return True
    if not any(name.endswith(".parquet") for name in names):
        raise BadFile(
            f"{path}: neither Parquet nor JSON was found there",
            hint="Give a .parquet or .json file, or a folder of them.",
        )
    return False


def read_files(session: SparkSession, path: Path, table: str) -> DataFrame:
    """A Parquet or JSON table of ours; JSON lines that do not parse are kept in `RAW_JSON`."""
    if is_json(path):
        # As text first: Spark's JSON source does not look at columns that nobody asks for, and
        # would let through what is wrong in them.
        lines = session.read.text(storage_path(path), recursiveFileLookup=True)
        return _from_json(lines, table)
    return fitting(session.read.parquet(storage_path(path)), table, source=str(path))


def _json(text: Column | str, schema: StructType) -> Column:
    """Parsed JSON; text that does not fit the schema is kept in `RAW_JSON`."""
    # A new schema, since `StructType.add` would change the one it is called on.
    kept = StructType([*schema.fields, StructField(RAW_JSON, StringType())])
    return F.from_json(text, kept, {"columnNameOfCorruptRecord": RAW_JSON})


# ---------------------------------------------------------------- steps


def events(raw: DataFrame) -> DataFrame:
    """Kafka records → events: sizes and keys, never values."""
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("ts"),
        "key",
        F.coalesce(F.octet_length("key"), F.lit(0)).alias("key_bytes"),
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("value_bytes"),
    )


def telemetry(raw: DataFrame) -> DataFrame:
    """Telemetry records → samples with a `reason`, which is null where nothing is wrong."""
    return _judged(
        raw,
        TELEMETRY,
        needed=("ts", "topic", "partition", "leader", "sample_id"),
        counts=("ts", "partition", "log_bytes", "begin_offset", "end_offset"),
        times=("ts",),
    )


_RECEIPT_TEXTS = ("run", "group", "topic", "incarnation")
_RECEIPT_COUNTS = ("partition", "offset", "consumer")
_RECEIPT_TIMES = ("event_ts", "started_ts", "finished_ts")


def receipt_records(raw: DataFrame) -> DataFrame:
    """Receipt records → receipts with a `reason`, which is null where nothing is wrong."""
    judged = _judged(
        raw,
        RECEIPT,
        needed=(*_RECEIPT_TEXTS, *_RECEIPT_COUNTS, *_RECEIPT_TIMES),
        counts=(*_RECEIPT_COUNTS, *_RECEIPT_TIMES),
        times=_RECEIPT_TIMES,
    )
    return judged.withColumn("key", _key())


def decisions(raw: DataFrame) -> DataFrame:
    """Decision records → decisions; what is none of ours is left out."""
    needed = ("ts", "group", "action", "from", "to")
    judged = _judged(raw, DECISION, needed=needed, counts=("ts",), times=("ts",), why="rejected")
    return judged.where("rejected is null").select(*DECISIONS.names)


def control(raw: DataFrame) -> DataFrame:
    """Control records → one row per partition named, or one without: who said what, and when."""
    text = F.col("value").cast("string")
    told = raw.select(F.from_json(text, _CONTROL).alias("t")).select("t.*")
    ours = told.where((F.col("v") == VERSION) & F.col("ts").between(0, _LAST_TS))
    return ours.select(
        *(F.timestamp_micros("ts").alias("ts"), "type", "consumer", "incarnation"),
        F.explode_outer("partitions").alias("p"),
    ).select("ts", "type", "consumer", "incarnation", "p.*")


_CONTROL = (
    "v long, type string, ts long, consumer int, incarnation string, "
    "partitions array<struct<topic string, partition int, committed long>>"
)
_LAST_TS = 253_402_300_799_999_999
"""The last microsecond of the calendar, in the year 9999."""


def _judged(
    raw: DataFrame,
    schema: StructType,
    *,
    needed: tuple[str, ...],
    counts: tuple[str, ...],
    times: tuple[str, ...],
    why: str = "reason",
) -> DataFrame:
    """Records of one of our topics, parsed; `why` is null where nothing is wrong with one."""
    text = F.col("value").cast("string")
    parsed = _json(text, schema)
    frame = raw.select(text.alias("raw"), F.col("timestamp").alias("arrived"), parsed.alias("t"))
    flat = frame.select("raw", "arrived", "t.*")
    whole = flat.withColumn(why, _why_rejected(needed, counts, times))
    # Of a rejected row only the text is kept: its time may be one that no calendar has.
    good = F.col(why).isNull()
    return whole.withColumns({t: F.timestamp_micros(F.when(good, F.col(t))) for t in times})


def between(ts: str, from_ts: int, to_ts: int) -> Column:
    """Whether a time lies from `from_ts` (included) to `to_ts` (not), in microseconds."""
    micros = F.unix_micros(ts)
    return (micros >= from_ts) & (micros < to_ts)


_AHEAD_S = 60
"""A sample stamped further ahead of its arrival is no sample of ours."""


def _why_rejected(
    needed: tuple[str, ...], counts: tuple[str, ...], times: tuple[str, ...]
) -> Column:
    latest = F.unix_micros("arrived") + _AHEAD_S * 1_000_000
    rules: list[tuple[Column, Column]] = [
        (F.col("raw").isNull() | (F.trim("raw") == ""), F.lit("no value")),
        (F.col(RAW_JSON).isNotNull(), F.lit("not JSON, or a field of another type")),
        (F.col("v").isNull(), F.lit("no version")),
        (F.col("v") != VERSION, F.concat(F.lit("unknown version "), F.col("v"))),
        *((F.col(name).isNull(), F.lit(f"no {name}")) for name in needed),
        *((F.col(name) < 0, F.lit(f"{name} is negative")) for name in counts),
        *((F.col(name) > latest, F.lit(f"{name} lies in the future")) for name in times),
    ]
    first, *rest = rules
    return reduce(lambda chain, rule: chain.when(*rule), rest, F.when(*first))


def samples(parsed: DataFrame) -> DataFrame:
    """The good rows of `telemetry`."""
    return parsed.where("reason is null").select(*SAMPLES.names)


def receipts(parsed: DataFrame) -> DataFrame:
    """The good rows of `receipt_records`."""
    return parsed.where("reason is null").select(*RECEIPTS.names)


def rejects(parsed: DataFrame, *, source: str) -> DataFrame:
    """The bad rows of `telemetry` or `receipt_records`, as they were."""
    return parsed.where("reason is not null").select(
        F.col("arrived").alias("ts"), F.lit(source).alias("source"), "reason", "raw"
    )


def split_files(frame: DataFrame, *, source: str, table: str) -> tuple[DataFrame, DataFrame]:
    """Rows read from files → (good rows, rejects)."""
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
        F.when(unread, "not JSON, or a field of another type")
        .otherwise(f"one of {', '.join(needed)} is missing")
        .alias("reason"),
        (F.coalesce(F.col(RAW_JSON), raw) if RAW_JSON in frame.columns else raw).alias("raw"),
    )
    return frame.where(~(lacking | unread)).select(*TABLES[table].names), bad


def _key() -> Column:
    """A key as our JSON has it: text where it is valid UTF-8, else base64."""
    return F.coalesce(F.encode("key", "UTF-8"), F.unbase64("key_b64"))


def _from_json(lines: DataFrame, table: str) -> DataFrame:
    """JSON lines as people and our topics write them: times in microseconds, keys as text."""
    schema = TABLES[table]
    times = [f.name for f in schema.fields if f.dataType == TimestampType()]
    shape = {**dict.fromkeys(times, LongType()), "key": StringType()}
    fields = [StructField(f.name, shape.get(f.name, f.dataType)) for f in schema.fields]
    if "key" in schema.names:
        fields.append(StructField("key_b64", StringType()))
    parsed = lines.select(_json("value", StructType(fields)).alias("row")).select("row.*")
    dated = parsed.withColumns({t: F.when(F.col(t) >= 0, F.timestamp_micros(t)) for t in times})
    if "key" not in schema.names:
        return dated
    if table == "events":
        dated = dated.withColumn(
            "key_bytes", F.coalesce("key_bytes", F.octet_length(_key()), F.lit(0))
        )
    return dated.withColumn("key", _key()).drop("key_b64")
