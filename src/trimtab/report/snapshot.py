"""A snapshot of a cluster as text tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.model.cluster import ClusterSnapshot
from trimtab.report.columns import new_table

_MOST_ROWS = 60


def snapshot_view(taken: ClusterSnapshot) -> RenderableType:
    """Brokers with their leaders, partitions with their replicas, groups with their members."""
    parts: list[RenderableType] = [
        Text(
            f"cluster {taken.cluster or 'unknown'}: {len(taken.brokers)} brokers, "
            f"{len(taken.topics)} topics, {len(taken.partitions)} partitions"
        ),
        Text(),
        _brokers(taken),
    ]
    if taken.partitions:
        parts += [Text(), _partitions(taken)]
    if taken.groups:
        parts += [Text(), _groups(taken)]
    return Group(*parts)


def _brokers(taken: ClusterSnapshot) -> Table:
    table = _table("Brokers", "broker", "rack", "leads", "replicas", "stored")
    for broker in taken.brokers:
        led = [p for p in taken.partitions if p.leader == broker.id]
        held = sum(broker.id in p.replicas for p in taken.partitions)
        sizes = [p.log_bytes for p in led if p.log_bytes is not None]
        table.add_row(
            f"{broker.id} (down)" if broker.alive is False else str(broker.id),
            *(broker.rack or "–", str(len(led)), str(held), f"{sum(sizes):,} B"),
        )
    return table


def _partitions(taken: ClusterSnapshot) -> Table:
    table = _table("Partitions", "partition", "leader", "replicas", "in sync", "stored", "offsets")
    for p in taken.partitions[:_MOST_ROWS]:
        known = p.begin_offset is not None
        table.add_row(
            str(p.name),
            "offline" if p.offline else str(p.leader),
            ", ".join(map(str, p.replicas)),
            ", ".join(map(str, p.isr)),
            "unknown" if p.log_bytes is None else f"{p.log_bytes:,} B",
            f"{p.begin_offset} … {p.end_offset}" if known else "unknown",
        )
    if len(taken.partitions) > _MOST_ROWS:
        table.add_row(f"… and {len(taken.partitions) - _MOST_ROWS} more")
    return table


def _groups(taken: ClusterSnapshot) -> Table:
    table = _table("Groups", "group", "state", "members", "committed partitions")
    for group in taken.groups:
        table.add_row(group.name, group.state, str(len(group.members)), str(len(group.committed)))
    return table


def _table(title: str, *columns: str) -> Table:
    return new_table(*columns, title=title, box=None)
