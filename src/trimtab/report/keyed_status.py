"""The status of a keyed group: as a document of --json, and as a table with sentences."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from trimtab.evaluate.keyed_status import KeyedPartition, KeyedStatus, summary
from trimtab.model.codec import Json
from trimtab.model.scalars import key_field
from trimtab.report.columns import new_table

_MOST_WAITS = 100


def status_document(status: KeyedStatus) -> Json:
    """The document of --json; unknown is null. At most 100 waiting keys are listed."""
    return {
        "group": status.group,
        "topic": status.topic,
        "ts": status.ts,
        "summary": list(summary(status)),
        "total": _figures(status, status.partitions),
        "partitions": [
            {
                "partition": p.partition,
                "owner": p.owner,
                "never_read": p.never_read,
                **_figures(status, [p]),
            }
            for p in status.partitions
        ],
        "waiting": [
            {
                **key_field(wait.waiting.key),
                "partition": wait.partition,
                "set": wait.waiting.set_id,
                "since_ts": wait.waiting.since_ts,
                "wait_s": status.age_s(wait.waiting.since_ts),
                "end_at": wait.waiting.end_partition,
                "end_offset": wait.waiting.end_offset,
                "cause": str(wait.reason.cause),
                "depends_on": wait.reason.partition,
            }
            for wait in status.waits[:_MOST_WAITS]
        ],
    }


def _figures(status: KeyedStatus, partitions: Iterable[KeyedPartition]) -> dict[str, float | None]:
    some = tuple(partitions)
    waits = [key.since_ts for p in some for key in p.contents.waiting]
    sent = [handover for p in some for handover in p.under_way]
    return {
        "owned": sum(p.contents.owned for p in some),
        "waiting": len(waits),
        "left": sum(p.contents.left for p in some),
        "parked_records": sum(sum(p.contents.parked.values()) for p in some),
        "parked_bytes": sum(p.contents.parked_bytes for p in some),
        "oldest_wait_s": status.age_s(min(waits, default=None)),
        "early_handovers": sum(p.contents.early for p in some),
        "handovers_under_way": len(sent),
        "handover_bytes": sum(handover.size_bytes for handover in sent),
        "oldest_handover_s": status.age_s(min((h.since_ts for h in sent), default=None)),
        "lag_records": _sum(p.data.lag_records for p in some),
        "handover_lag_records": _sum(p.handovers.lag_records for p in some),
        "state_bytes": sum(p.contents.state_bytes for p in some),
    }


def _sum(lags: Iterable[int | None]) -> int | None:
    """The sum, unknown if a part of it is."""
    known = tuple(lags)
    return None if any(lag is None for lag in known) else sum(lag or 0 for lag in known)


def status_view(status: KeyedStatus) -> RenderableType:
    """The summary, then a row for each partition and one for all."""
    table = new_table(
        "partition",
        "owned",
        "waiting",
        "left",
        "parked",
        "oldest wait",
        "held",
        "under way",
        "oldest",
        "lag",
        "hand-over lag",
        "state",
        left=1,
        box=None,
    )
    for p in status.partitions:
        lag = "never read" if p.never_read else None
        table.add_row(str(p.partition), *_cells(_figures(status, [p]), lag))
    if len(status.partitions) > 1:
        table.add_row("all", *_cells(_figures(status, status.partitions), None))
    sentences = [Text(line) for line in summary(status)]
    return Group(*sentences, Text(), table)


def _cells(figures: dict[str, float | None], lag: str | None) -> list[str]:
    return [
        _number(figures["owned"]),
        _number(figures["waiting"]),
        _number(figures["left"]),
        f"{_number(figures['parked_records'])} ({_number(figures['parked_bytes'])} B)",
        _seconds(figures["oldest_wait_s"]),
        _number(figures["early_handovers"]),
        f"{_number(figures['handovers_under_way'])} ({_number(figures['handover_bytes'])} B)",
        _seconds(figures["oldest_handover_s"]),
        lag or _number(figures["lag_records"]),
        _number(figures["handover_lag_records"]),
        f"{_number(figures['state_bytes'])} B",
    ]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} s"
