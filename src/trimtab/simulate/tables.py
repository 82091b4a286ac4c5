"""Reads and writes Parquet: the history stored by `measure`, and streams of loads.

A stream has the columns `step`, `topic`, `partition`, `load` and, if there are lags, `lag`; the
other fields of a loads file are in the metadata of the schema, as JSON under `trimtab`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.errors import BadFile, ConfigError, SchemaMismatch
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import loads_from, loads_to, read_loads
from trimtab.model.files import replacing
from trimtab.model.json_reader import parse
from trimtab.model.load import Loads
from trimtab.simulate.replay import LagRow, RateRow

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
_HEADER = b"trimtab"
_STREAM = ("step", "topic", "partition", "load")
_RATES = (*RateRow._fields[:2], "topic", "partition", *RateRow._fields[3:])
_LAGS = ("ts", "group", "topic", "partition", "lag_records")
_WHOLE = frozenset({"step", "partition", "lag", "samples", "lag_records"})
_TEXT = frozenset({"topic", "group", "source"})
_NUMBER = frozenset({"load", "bytes_s", "records_s"})
_TIME = frozenset({"window_start", "window_end", "ts"})
_UNKNOWN = frozenset({"load", "lag", "bytes_s", "records_s", "lag_records"})  # may be null


def read_stream(path: Path) -> tuple[Loads, list[str]]:
    """A stream of loads from a loads file or from Parquet, with the warnings."""
    if path.suffix == PARQUET:
        return _stream_from(path)
    found, warnings = read_loads(path)
    if not isinstance(found, Loads):
        raise ConfigError(
            f"{path} is a single measurement; a simulation needs a stream of loads.",
            hint="Give a loads file with steps, or use `trimtab simulate replay` on a warehouse.",
        )
    return found, warnings


def write_stream(path: Path, stream: Loads) -> None:
    """Writes a stream as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = loads_to(stream)
    header["steps"] = len(stream.steps)
    rows = [(k, p, step) for k, step in enumerate(stream.steps) for p in sorted(step.loads)]
    columns: dict[str, Any] = {
        "step": pa.array([k for k, _, _ in rows], pa.int32()),
        "topic": pa.array([p.topic for _, p, _ in rows], pa.string()),
        "partition": pa.array([p.partition for _, p, _ in rows], pa.int32()),
        "load": pa.array(_alike([step.loads[p] for _, p, step in rows])),
    }
    if any(step.lags for step in stream.steps):
        columns["lag"] = pa.array([step.lags.get(p) for _, p, step in rows], pa.int64())
    table = pa.table(columns).replace_schema_metadata({_HEADER: json.dumps(header)})
    with replacing(path) as out:
        pq.write_table(table, out)


def _alike(numbers: Sequence[float]) -> Sequence[float]:
    """A column has one type: integers stay exact if all values are integers."""
    whole = all(isinstance(number, int) for number in numbers)
    return numbers if whole else [float(number) for number in numbers]


def _stream_from(path: Path) -> tuple[Loads, list[str]]:
    table = _table(path)
    header = (table.schema.metadata or {}).get(_HEADER)
    if header is None:
        raise BadFile(
            f"{path}: the schema has no metadata with capacity and unit.",
            hint="Write streams with `trimtab simulate stream -o FILE.parquet`.",
        )
    body = parse(header, origin=str(path))
    steps: list[dict[str, Any]] = [{"loads": {}} for _ in range(body.need("steps").integer())]
    lagging = "lag" in table.column_names
    rows = _columns(table, (*_STREAM, "lag") if lagging else _STREAM, str(path))
    for row, (k, topic, number, load, *lags) in enumerate(rows):
        if not 0 <= k < len(steps):
            raise BadFile(f"{path}: row {row}: step {k} does not exist")
        loads = steps[k]["loads"].setdefault(topic, {})
        if str(number) in loads:
            raise BadFile(f"{path}: row {row}: {topic}-{number} occurs twice in step {k}")
        loads[str(number)] = load
        if lags and lags[0] is not None:
            steps[k].setdefault("lags", {}).setdefault(topic, {})[str(number)] = lags[0]
    # Via JSON text, so that one reader checks all streams and reports places the same way.
    whole = parse(json.dumps({**body.object(), "steps": steps}), origin=str(path))
    return loads_from(whole), whole.warnings


def read_history(path: Path) -> tuple[list[RateRow], list[LagRow]]:
    """The tables `partition_rates` and `lag` (if present) of a warehouse; or one file of rates."""
    rates = path / "partition_rates"
    rates = rates if rates.is_dir() else path
    lag = path / "lag"
    rows = [
        RateRow(start, end, TopicPartition(topic, number), *rest)
        for start, end, topic, number, *rest in _columns(_table(rates), _RATES, str(rates))
    ]
    found = _columns(_table(lag), _LAGS, str(lag)) if lag.is_dir() else iter(())
    return rows, [
        LagRow(ts, group, TopicPartition(topic, number), records)
        for ts, group, topic, number, records in found
    ]


def _table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not path.exists():
        raise BadFile(f"{path}: there is no such file or folder.")
    try:
        return ds.dataset(path, format="parquet").to_table()
    except (pa.ArrowException, OSError) as error:
        raise BadFile(f"{path}: cannot be read as Parquet: {error}") from error


def _columns(table: pa.Table, names: Sequence[str], origin: str) -> Iterator[tuple[Any, ...]]:
    """The rows of these columns; times as microseconds since 1970."""
    import pyarrow as pa

    for name in names:
        if name not in table.column_names:
            here = ", ".join(table.column_names) or "none"
            raise SchemaMismatch(
                f"{origin}: column {name} is missing.",
                hint=f"It needs {', '.join(names)}; found: {here}.",
            )
        column = table.column(name)
        if column.null_count == len(column) and name in _UNKNOWN:
            continue  # of any type
        if wanted := _should_be(name, column.type):
            raise SchemaMismatch(f"{origin}: column {name} is {column.type}, should be {wanted}.")
        if column.null_count and name not in _UNKNOWN:
            raise BadFile(f"{origin}: column {name} has {column.null_count} null value(s).")

    def values(name: str) -> list[Any]:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        found: list[Any] = column.to_pylist()
        return found

    return zip(*(values(name) for name in names), strict=True)


def _should_be(name: str, kind: pa.DataType) -> str | None:
    """The expected type of a column; None if the type is right."""
    import pyarrow.types as of

    whole = of.is_integer(kind)
    if name in _WHOLE:
        return None if whole else "whole numbers"
    if name in _TEXT:
        text = kind.value_type if of.is_dictionary(kind) else kind
        return None if of.is_string(text) or of.is_large_string(text) else "text"
    if name in _NUMBER:
        return None if whole or of.is_floating(kind) else "numbers"
    if name in _TIME:
        return None if whole or of.is_timestamp(kind) else "times"
    return None if of.is_boolean(kind) else "true or false"
