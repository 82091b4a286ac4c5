"""A measurement as text tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.model.cluster import TopicPartition
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Unit
from trimtab.report.columns import new_table
from trimtab.report.tables import quantity

_MOST_ROWS = 40
_BAR = 12


def measurement_view(
    found: Measurement,
    states: Mapping[tuple[str, TopicPartition], str],
    stored_ratio: float | None = None,
) -> RenderableType:
    """Rates of every partition, heavy keys, lag of every group."""
    parts: list[RenderableType] = [_headline(found, stored_ratio), Text(), _rates(found)]
    if found.keys:
        parts += [Text(), _keys(found.keys)]
    if states:
        parts += [Text(), _lag(found, states)]
    return Group(*parts)


def _headline(found: Measurement, stored_ratio: float | None) -> Text:
    start = datetime.fromtimestamp(found.from_ts / 1e6, UTC)
    line = (
        f"{start:%Y-%m-%d %H:%M:%S} UTC, {(found.to_ts - found.from_ts) / 1e6:.0f} s, "
        f"{len(found.partitions)} partitions, {found.rejects} rejects"
    )
    if stored_ratio is not None:
        line += f"\nstored bytes are {stored_ratio:.2f} of the bytes sent (compression, overhead)"
    return Text(line)


def _rates(found: Measurement) -> Table:
    table = new_table("partition", "bytes", "records", "", "source", "", title="Rates", box=None)
    for figures in table.columns[1:3]:
        figures.justify = "right"
    most = max((p.bytes_s or 0.0 for p in found.partitions), default=0.0)
    heaviest = sorted(found.partitions, key=lambda p: (-(p.bytes_s or 0.0), p.name))
    for p in heaviest[:_MOST_ROWS]:
        table.add_row(
            str(p.name),
            _or_unknown(p.bytes_s, Unit.BYTES_S),
            _or_unknown(p.records_s, Unit.RECORDS_S),
            _bar(p, most),
            str(p.source),
            "" if p.complete else "incomplete",
        )
    if len(heaviest) > _MOST_ROWS:
        table.add_row(f"… and {len(heaviest) - _MOST_ROWS} lighter ones")
    return table


def _or_unknown(rate: float | None, unit: Unit) -> str:
    return "unknown" if rate is None else quantity(rate, unit)


def _bar(p: PartitionLoad, most: float) -> str:
    return "█" * round(_BAR * (p.bytes_s or 0.0) / most) if most else ""


def _keys(keys: tuple[KeyLoad, ...]) -> Table:
    columns = ("topic", "key", "records", "share", "home")
    table = new_table(*columns, left=2, title="Heavy keys", box=None)
    heaviest = sorted(keys, key=lambda k: (-k.lower, k.topic, k.key))
    for k in heaviest[:10]:
        count = f"{k.lower}" if k.lower == k.upper else f"{k.lower} … {k.upper}"
        home = "unknown" if k.partition_home is None else str(k.partition_home)
        table.add_row(Text(k.topic), Text(readable(k.key)), count, f"{k.share:.2%}", home)
    if len(heaviest) > 10:
        table.add_row(f"… and {len(heaviest) - 10} lighter ones")
    return table


def readable(key: bytes) -> str:
    """A key as text on one line; characters that cannot be printed are escaped."""
    text = key.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _lag(found: Measurement, states: Mapping[tuple[str, TopicPartition], str]) -> Table:
    columns = ("group", "partition", "records", "seconds", "state")
    table = new_table(*columns, title="Lag", box=None)
    for figures in table.columns[2:4]:
        figures.justify = "right"
    rows = [
        (group, p, p.lag[group], p.lag_s.get(group)) for p in found.partitions for group in p.lag
    ]
    rows.sort(key=lambda row: (row[0], -(row[2] or 0), row[1].name))
    for group, p, records, behind in rows[:_MOST_ROWS]:
        table.add_row(
            Text(group),
            str(p.name),
            "unknown" if records is None else str(records),
            "unknown" if behind is None else f"{behind:.1f}",
            states.get((group, p.name), ""),
        )
    if len(rows) > _MOST_ROWS:
        table.add_row(f"… and {len(rows) - _MOST_ROWS} more")
    return table
