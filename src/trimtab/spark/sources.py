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
from trimtab.model.telemetry import TELEMETRY_VERSION
from trimtab.spark.schemas import (
    DECISION,
    DECISIONS,
    RECEIPT,
    RECEIPTS,
    SAMPLES,
    TABLES,
    TELEMETRY,
    TELEMETRY_COLUMNS,
    fitting,
)
from trimtab.spark.session import storage_path

RAW_JSON = "_not_json"


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
    """A batch read; `min_partitions` spreads a skewed topic over all cores."""
    reader = (
        session.read.format("kafka")
        # By partition number, so that partitions added meanwhile are ignored.
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
    max_records: int | None = None,
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


def _json(text: Column | str, schema: StructType) -> Column:
    """Parses JSON; text that does not match the schema is kept in `RAW_JSON`."""
    # A new schema, because `StructType.add` modifies the schema it is called on.
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


_TELEMETRY_NEEDED = ("ts", "topic", "partition", "leader", "sample_id")
_TELEMETRY_COUNTS = ("partition", "log_bytes", "begin_offset", "end_offset")
_TELEMETRY_VALUES = ("partition", "leader", "replicas", "isr", *_TELEMETRY_COUNTS[1:])
"""What a record of version 1 has of its partition, and one of version 2 as a column."""


def telemetry(raw: DataFrame) -> DataFrame:
    """Telemetry records → samples with a `reason` for rejection, null for valid rows.

    A record of version 1 is one row, a record of version 2 a row per partition. A rejected record
    is one row, with its text in `raw`.
    """
    text = F.col("value").cast("string")
    columns = _has_version(text, TELEMETRY_VERSION)
    parsed = raw.select(
        text.alias("raw"),
        F.col("timestamp").alias("arrived"),
        columns.alias("columns"),
        _json(F.when(~columns, text), TELEMETRY).alias("one"),
        _json(F.when(columns, text), TELEMETRY_COLUMNS).alias("many"),
    )
    why = F.when(F.col("columns"), _why_columns_rejected("many")).otherwise(
        _why_rejected("one", _TELEMETRY_NEEDED, ("ts", *_TELEMETRY_COUNTS), ("ts",))
    )
    rows = parsed.withColumn("reason", why).select(_telemetry_rows().alias("rows"))
    # `reason` is in the array too: Spark would push a filter on a column beside it below the
    # parsing, and parse once more for every column that the filter needs. Not `explode`, which
    # gets a filter on the size of the array, with the same effect; the array is never empty.
    return rows.select(F.explode_outer("rows").alias("row")).select("row.*")


def _has_version(text: Column, version: int) -> Column:
    """Whether `v` of a JSON object is this version; the whole text is read only if `v` is late."""
    head = F.substring(text, 1, 40)
    early = head.rlike(r'^\s*\{\s*"v"\s*:\s*\d+\s*[,}]')
    found = F.when(early, head.rlike(rf'^\s*\{{\s*"v"\s*:\s*{version}\s*[,}}]'))
    late = F.get_json_object(text, "$.v") == F.lit(str(version))
    return F.coalesce(found, late, F.lit(False))


def _telemetry_rows() -> Column:
    """The rows of a parsed record, as an array."""
    kinds = {f.name: f.dataType for f in SAMPLES.fields}

    def row(**known: Column) -> Column:
        unknown = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
        texts = dict.fromkeys(("raw", "reason"), F.lit(None).cast("string"))
        values = texts | unknown | known | {"arrived": F.col("arrived")}
        return F.struct(*(value.alias(name) for name, value in values.items()))

    def sampled(of: str) -> dict[str, Column]:
        shared = {name: F.col(f"{of}.{name}") for name in ("cluster", "topic", "sample_id")}
        return shared | {"ts": F.timestamp_micros(F.col(f"{of}.ts"))}

    def of_partition(_: Column, at: Column) -> Column:
        values = {name: F.get(F.col(f"many.{name}"), at) for name in _TELEMETRY_VALUES}
        return row(**sampled("many"), **values, committed=_committed("many", at))

    one = {name: F.col(f"one.{name}") for name in (*_TELEMETRY_VALUES, "committed")}
    rejected = row(raw=F.col("raw"), reason=F.col("reason"))
    return (
        F.when(F.col("reason").isNotNull(), F.array(rejected))
        .when(F.col("columns"), F.transform("many.partition", of_partition))
        .otherwise(F.array(row(**sampled("one"), **one)))
    )


def _committed(of: str, at: Column) -> Column:
    """The offsets of groups at a position; null stays only for groups that were named."""
    here = F.transform_values(f"{of}.committed", lambda _, offsets: F.get(offsets, at))
    named = F.col(f"{of}.named")
    return F.map_filter(
        here,
        lambda group, offset: (
            offset.isNotNull() | F.coalesce(F.array_contains(named, group), F.lit(False))
        ),
    )


def _why_columns_rejected(of: str) -> Column:
    """Why a record in columns is rejected as a whole; null for valid ones."""
    column = {name: F.col(f"{of}.{name}") for name in _TELEMETRY_VALUES}
    length = F.array_size(column["partition"])
    committed = F.map_values(f"{of}.committed")

    def is_other_length(values: Column) -> Column:
        return F.coalesce(F.array_size(values) != length, F.lit(True))

    def is_negative(values: Column) -> Column:
        return F.array_min(values) < 0

    return _first(
        [
            *_envelope(of, TELEMETRY_VERSION),
            *((F.col(f"{of}.{name}").isNull(), F.lit(f"no {name}")) for name in _TELEMETRY_NEEDED),
            (length == 0, F.lit("no partition")),
            *(
                (F.array_size(column[name]) != length, F.lit(f"{name} is not as long as partition"))
                for name in _TELEMETRY_VALUES
                if name != "partition"
            ),
            (F.exists(committed, is_other_length), F.lit("committed is not as long as partition")),
            *(
                (F.exists(column[name], F.isnull), F.lit(f"{name} has an unknown value"))
                for name in ("partition", "leader")
            ),
            (F.col(f"{of}.ts") < 0, F.lit("ts is negative")),
            *(
                (is_negative(column[name]), F.lit(f"{name} is negative"))
                for name in _TELEMETRY_COUNTS
            ),
            (F.exists(committed, is_negative), F.lit("committed is negative")),
            (F.col(f"{of}.ts") > _latest(), F.lit("ts lies in the future")),
        ]
    )


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
    parsed = _json(text, schema)
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


_AHEAD_S = 60
"""A sample whose timestamp is further ahead of its arrival is rejected."""


def _latest() -> Column:
    return F.unix_micros("arrived") + _AHEAD_S * 1_000_000


def _why_rejected(
    of: str, needed: tuple[str, ...], counts: tuple[str, ...], times: tuple[str, ...]
) -> Column:
    """Why a record, parsed into the column `of`, is rejected; null for valid ones."""
    field = {name: F.col(f"{of}.{name}") for name in (*needed, *counts, *times)}
    return _first(
        [
            *_envelope(of, VERSION),
            *((field[name].isNull(), F.lit(f"no {name}")) for name in needed),
            *((field[name] < 0, F.lit(f"{name} is negative")) for name in counts),
            *((field[name] > _latest(), F.lit(f"{name} lies in the future")) for name in times),
        ]
    )


def _envelope(of: str, version: int) -> list[tuple[Column, Column]]:
    """The rules for every record: it has a value, which is JSON of this version."""
    found = F.col(f"{of}.v")
    return [
        (F.col("raw").isNull() | (F.trim("raw") == ""), F.lit("no value")),
        (found != version, F.concat(F.lit("unknown version "), found)),
        (F.col(f"{of}.{RAW_JSON}").isNotNull(), F.lit("not JSON, or a field of another type")),
        (found.isNull(), F.lit("no version")),
    ]


def _first(rules: Iterable[tuple[Column, Column]]) -> Column:
    """The reason of the first rule that holds; null if none does."""
    first, *rest = rules
    return reduce(lambda chain, rule: chain.when(*rule), rest, F.when(*first))


def samples(parsed: DataFrame) -> DataFrame:
    """The valid rows of `telemetry`."""
    return parsed.where("reason is null").select(*SAMPLES.names)


def receipts(parsed: DataFrame) -> DataFrame:
    """The valid rows of `receipt_records`."""
    return parsed.where("reason is null").select(*RECEIPTS.names)


def rejects(parsed: DataFrame, *, source: str) -> DataFrame:
    """The rejected rows of `telemetry` or `receipt_records`, with their original text."""
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
        F.when(unread, "not JSON, or a field of another type")
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
    parsed = lines.select(_json("value", StructType(fields)).alias("row")).select("row.*")
    dated = parsed.withColumns({t: F.when(F.col(t) >= 0, F.timestamp_micros(t)) for t in times})
    if "key" not in schema.names:
        return dated
    if table == "events":
        dated = dated.withColumn(
            "key_bytes", F.coalesce("key_bytes", F.octet_length(_key()), F.lit(0))
        )
    return dated.withColumn("key", _key()).drop("key_b64")
