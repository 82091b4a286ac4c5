"""Telemetry records of both versions → samples, or a reason for rejection.

Promise  The same records are rejected for the same reasons as by `measure/topic_samples.py`, which
         reads them without Spark. Numbers are integers and names are texts: nothing is converted.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.model.codec import VERSION
from trimtab.model.telemetry import HALF_CHARACTER, MOST_NUMBERS, TELEMETRY_VERSION
from trimtab.spark.schemas import SAMPLES, TELEMETRY, TELEMETRY_COLUMNS
from trimtab.spark.sources import OTHER_TYPE, envelope, first_reason, json_of, latest

_TEXTS = ("cluster", "topic", "sample_id")
_NEEDED = ("ts", "topic", "partition", "leader", "sample_id")
_COUNTS = ("partition", "log_bytes", "begin_offset", "end_offset")
_VALUES = ("partition", "leader", "replicas", "isr", *_COUNTS[1:])
"""What a record of version 1 has of its partition, and one of version 2 as a column."""

_Rule = tuple[Column, Column]


def telemetry(raw: DataFrame) -> DataFrame:
    """Telemetry records → samples with a `reason` for rejection, null for valid rows.

    A record of version 1 is one row, a record of version 2 a row per partition. A rejected record
    is one row, with its text in `raw`.
    """
    text = F.col("value").cast("string")
    columns = _has_version(text, TELEMETRY_VERSION)
    strict = {"allowSingleQuotes": "false"}
    parsed = raw.select(
        text.alias("raw"),
        _is_text("value").alias("is_text"),
        F.col("timestamp").alias("arrived"),
        columns.alias("columns"),
        json_of(F.when(~columns, text), TELEMETRY, **strict).alias("one"),
        json_of(F.when(columns, text), TELEMETRY_COLUMNS, **strict).alias("many"),
    )
    why = F.when(F.col("columns"), _why_columns_rejected("many")).otherwise(_why_rejected("one"))
    read = parsed.withColumn("reason", why).withColumns(_texts())
    rows = read.select(_telemetry_rows().alias("rows"))
    # `reason` is in the array too: Spark would push a filter on a column beside it below the
    # parsing, and parse once more for every column that the filter needs. Not `explode`, which
    # gets a filter on the size of the array, with the same effect; the array is never empty.
    return rows.select(F.explode_outer("rows").alias("row")).select("row.*")


def _texts() -> dict[str, Column]:
    """The names of a record, read once: inside of rows they would be read for every partition."""
    names = {
        name: F.when(F.col("columns"), _text(f"many.{name}")).otherwise(_text(f"one.{name}"))
        for name in _TEXTS
    }
    return names | {"named": F.transform("many.named", lambda name: name.cast("string"))}


def _is_text(value: str) -> Column:
    """Whether a value is UTF-8 with whole characters, and ends as a JSON object does."""
    text = F.col(value).cast("string")
    has_half = F.contains(text, F.lit("\\u")) & text.rlike(HALF_CHARACTER)
    return F.is_valid_utf8(F.col(value)) & ~has_half & text.rlike(r"\}\s*$")


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
        return {name: F.col(name) for name in _TEXTS} | {
            "ts": F.timestamp_micros(F.col(f"{of}.ts"))
        }

    def of_partition(_: Column, at: Column) -> Column:
        values = {name: F.get(F.col(f"many.{name}"), at) for name in _VALUES}
        return row(**sampled("many"), **values, committed=_committed("many", at))

    one = {name: F.col(f"one.{name}") for name in (*_VALUES, "committed")}
    rejected = row(raw=F.col("raw"), reason=F.col("reason"))
    return (
        F.when(F.col("reason").isNotNull(), F.array(rejected))
        .when(F.col("columns"), F.transform("many.partition", of_partition))
        .otherwise(F.array(row(**sampled("one"), **one)))
    )


def _committed(of: str, at: Column) -> Column:
    """The offsets of groups at a position; null stays only for groups that were named."""
    here = F.transform_values(f"{of}.committed", lambda _, offsets: F.get(offsets, at))
    named = F.col("named")  # twice, or Spark would read the names for every partition
    return F.map_filter(
        here,
        lambda group, offset: (
            offset.isNotNull() | (named.isNotNull() & F.array_contains(named, group))
        ),
    )


def _text(name: str) -> Column:
    return F.col(name).cast("string")


def _why_rejected(of: str) -> Column:
    """Why a record of one partition is rejected; null for valid ones."""
    field = {name: F.col(f"{of}.{name}") for name in _VALUES}
    committed = F.map_values(f"{of}.committed")
    return first_reason(
        [
            *_read(of, VERSION),
            *_present(of),
            *_time(of),
            *((field[name] < 0, F.lit(f"{name} is negative")) for name in _COUNTS),
            (F.exists(committed, lambda offset: offset < 0), F.lit("committed is negative")),
            *_numbers(field["partition"], field["leader"]),
            (F.col(f"{of}.ts") > latest(), F.lit("ts lies in the future")),
        ]
    )


def _why_columns_rejected(of: str) -> Column:
    """Why a record in columns is rejected as a whole; null for valid ones."""
    column = {name: F.col(f"{of}.{name}") for name in _VALUES}
    length = F.array_size(column["partition"])
    committed = F.map_values(f"{of}.committed")

    def is_other_length(values: Column) -> Column:
        return F.coalesce(F.array_size(values) != length, F.lit(True))

    def is_negative(values: Column) -> Column:
        return F.array_min(values) < 0

    part = F.coalesce(f"{of}.part", F.lit(0))
    return first_reason(
        [
            *_read(of, TELEMETRY_VERSION),
            *_present(of),
            (length == 0, F.lit("no partition")),
            *(
                (F.array_size(column[name]) != length, F.lit(f"{name} is not as long as partition"))
                for name in _VALUES
                if name != "partition"
            ),
            (F.exists(committed, is_other_length), F.lit("committed is not as long as partition")),
            *(
                (F.exists(column[name], F.isnull), F.lit(f"{name} has an unknown value"))
                for name in ("partition", "leader")
            ),
            *_time(of),
            *((is_negative(column[name]), F.lit(f"{name} is negative")) for name in _COUNTS),
            (F.exists(committed, is_negative), F.lit("committed is negative")),
            *_numbers(F.array_max(column["partition"]), F.array_min(column["leader"])),
            (
                F.array_size(F.array_distinct(column["partition"])) != length,
                F.lit("partition has duplicates"),
            ),
            (F.col(f"{of}.ts") > latest(), F.lit("ts lies in the future")),
            (
                (part < 0) | (part >= F.coalesce(f"{of}.of", F.lit(1))),
                F.lit("part is not below of"),
            ),
        ]
    )


def _read(of: str, version: int) -> list[_Rule]:
    """The record is JSON of this version, and its names are texts."""

    def is_other(name: Column) -> Column:
        return ~F.schema_of_variant(name).isin("STRING", "VOID")

    names = [is_other(F.col(f"{of}.{name}")) for name in _TEXTS]
    if version == TELEMETRY_VERSION:
        names.append(F.exists(f"{of}.named", is_other))
    return [
        *envelope(of, version),
        *((is_not_text, F.lit(OTHER_TYPE)) for is_not_text in (~F.col("is_text"), *names)),
    ]


def _present(of: str) -> list[_Rule]:
    def value(name: str) -> Column:
        return _text(f"{of}.{name}") if name in _TEXTS else F.col(f"{of}.{name}")

    return [(value(name).isNull(), F.lit(f"no {name}")) for name in _NEEDED]


def _time(of: str) -> list[_Rule]:
    ts = F.col(f"{of}.ts")
    return [(ts < 0, F.lit("ts is negative")), (ts == 0, F.lit("no ts"))]


def _numbers(highest: Column, leader: Column) -> list[_Rule]:
    return [
        (leader < -1, F.lit("leader is negative")),
        (highest >= MOST_NUMBERS, F.lit(f"partition is {MOST_NUMBERS} or more")),
    ]
