"""The schema of every table, and the check of a source against it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from trimtab.errors import SchemaMismatch

_INT, _LONG, _TEXT, _TIME = IntegerType(), LongType(), StringType(), TimestampType()


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


SAMPLES = _table(
    ts=_TIME,
    cluster=_TEXT,
    topic=_TEXT,
    partition=_INT,
    leader=_INT,
    replicas=ArrayType(_INT),
    isr=ArrayType(_INT),
    log_bytes=_LONG,
    begin_offset=_LONG,
    end_offset=_LONG,
    committed=MapType(_TEXT, _LONG),
    sample_id=_TEXT,
)
EVENTS = _table(
    topic=_TEXT,
    partition=_INT,
    offset=_LONG,
    ts=_TIME,
    key=BinaryType(),
    key_bytes=_INT,
    value_bytes=_INT,
)
PARTITION_RATES = _table(
    window_start=_TIME,
    window_end=_TIME,
    topic=_TEXT,
    partition=_INT,
    bytes_s=DoubleType(),
    records_s=DoubleType(),
    source=_TEXT,
    samples=_LONG,
    complete=BooleanType(),
)
HOT_KEYS = _table(
    window_start=_TIME,
    window_end=_TIME,
    topic=_TEXT,
    key=BinaryType(),
    lower=_LONG,
    upper=_LONG,
    partition_home=_INT,
    share=DoubleType(),
)
LAG = _table(
    ts=_TIME,
    group=_TEXT,
    topic=_TEXT,
    partition=_INT,
    lag_records=_LONG,
    lag_s=DoubleType(),
    state=_TEXT,
    complete=BooleanType(),
)
RECEIPTS = _table(
    run=_TEXT,
    group=_TEXT,
    topic=_TEXT,
    partition=_INT,
    offset=_LONG,
    key=BinaryType(),
    seq=_LONG,
    set_id=_LONG,
    consumer=_INT,
    incarnation=_TEXT,
    event_ts=_TIME,
    started_ts=_TIME,
    finished_ts=_TIME,
    chain=_TEXT,
)
OUTCOMES = _table(
    run=_TEXT,
    window_start=_TIME,
    window_end=_TIME,
    group=_TEXT,
    events=_LONG,
    p50_ms=DoubleType(),
    p90_ms=DoubleType(),
    p99_ms=DoubleType(),
    p999_ms=DoubleType(),
    max_ms=DoubleType(),
    within_sla=DoubleType(),
    sla_s=DoubleType(),
    replicas=DoubleType(),
    replica_minutes=DoubleType(),
    busiest_share=DoubleType(),
)
VIOLATIONS = _table(
    run=_TEXT, kind=_TEXT, topic=_TEXT, partition=_INT, key=BinaryType(), at=_LONG, detail=_TEXT
)
DECISIONS = StructType(
    [
        StructField("ts", _TIME),
        StructField("group", _TEXT),
        StructField("action", _TEXT),
        StructField("from", _INT),
        StructField("to", _INT),
        StructField("plan", _TEXT),
        StructField("reason", _TEXT),
        StructField("forecast", _TEXT),  # JSON; each planner has its own keys
    ]
)
REJECTS = _table(ts=_TIME, source=_TEXT, reason=_TEXT, raw=_TEXT)

TABLES = {
    "samples": SAMPLES,
    "events": EVENTS,
    "partition_rates": PARTITION_RATES,
    "hot_keys": HOT_KEYS,
    "lag": LAG,
    "receipts": RECEIPTS,
    "decisions": DECISIONS,
    "outcomes": OUTCOMES,
    "violations": VIOLATIONS,
    "rejects": REJECTS,
}


def _as_json(table: StructType, **other: DataType) -> StructType:
    """The schema of a JSON record: with `v`, and with times and keys as JSON has them."""

    def written(kind: DataType) -> DataType:
        return _LONG if kind == _TIME else _TEXT if kind == BinaryType() else kind

    fields = [StructField(f.name, other.pop(f.name, written(f.dataType))) for f in table.fields]
    return StructType(
        [StructField("v", _LONG), *fields, *(StructField(n, k) for n, k in other.items())]
    )


_ANY = VariantType()
"""Spark reads anything as a text; of a variant it tells what it was."""

_NAMES = {"cluster": _ANY, "topic": _ANY, "sample_id": _ANY}

TELEMETRY = _as_json(SAMPLES, **_NAMES)
"""A record of version 1: one partition."""

TELEMETRY_COLUMNS = _as_json(
    SAMPLES,
    partition=ArrayType(_INT),
    leader=ArrayType(_INT),
    replicas=ArrayType(ArrayType(_INT)),
    isr=ArrayType(ArrayType(_INT)),
    log_bytes=ArrayType(_LONG),
    begin_offset=ArrayType(_LONG),
    end_offset=ArrayType(_LONG),
    committed=MapType(_TEXT, ArrayType(_LONG)),
    named=ArrayType(_ANY),
    part=_LONG,
    of=_LONG,
    **_NAMES,
)
"""A record of version 2: a column for each value of the partitions."""

RECEIPT = _as_json(RECEIPTS, key_b64=_TEXT)
DECISION = _as_json(DECISIONS)


def fitting(frame: DataFrame, table: str, *, source: str) -> DataFrame:
    """Selects the table's columns in order; raises an error for the first that does not match."""
    found = {f.name: f.dataType for f in frame.schema.fields}
    for wanted in TABLES[table].fields:
        if wanted.name not in found:
            raise SchemaMismatch(
                f"{source}: column {wanted.name} is missing.",
                hint=f"A table of {table} needs {', '.join(TABLES[table].names)}; "
                f"this one has {', '.join(found) or 'no columns'}.",
            )
        have = found[wanted.name]
        if have.simpleString() != wanted.dataType.simpleString():
            raise SchemaMismatch(
                f"{source}: column {wanted.name} is {have.simpleString()}, "
                f"expected {wanted.dataType.simpleString()}."
            )
    return frame.select(*TABLES[table].names)
