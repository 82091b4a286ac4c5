"""The columns of every table, and the check that a source has them."""

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
REJECTS = _table(ts=_TIME, source=_TEXT, reason=_TEXT, raw=_TEXT)

TABLES = {
    "samples": SAMPLES,
    "events": EVENTS,
    "partition_rates": PARTITION_RATES,
    "hot_keys": HOT_KEYS,
    "lag": LAG,
    "rejects": REJECTS,
}

# The JSON of a telemetry record; `v` and `ts` as they stand there.
TELEMETRY = StructType(
    [
        StructField("v", _LONG),
        *(StructField(f.name, _LONG if f.name == "ts" else f.dataType) for f in SAMPLES.fields),
    ]
)


def fitting(frame: DataFrame, table: str, *, source: str) -> DataFrame:
    """The table's columns in order, or an error that names the first one that does not fit."""
    found = {f.name: f.dataType for f in frame.schema.fields}
    for wanted in TABLES[table].fields:
        if wanted.name not in found:
            raise SchemaMismatch(
                f"{source}: column {wanted.name} is missing.",
                hint=f"A table of {table} has {', '.join(TABLES[table].names)}; "
                f"here are {', '.join(found) or 'none'}.",
            )
        have = found[wanted.name]
        if have.simpleString() != wanted.dataType.simpleString():
            raise SchemaMismatch(
                f"{source}: column {wanted.name} is {have.simpleString()}, "
                f"wanted is {wanted.dataType.simpleString()}."
            )
    return frame.select(*TABLES[table].names)
