"""An order audit and an outcome as text tables."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.evaluate.order import ViolationKind
from trimtab.evaluate.verdict import BlockingTimes, OrderAuditResult, Outcome
from trimtab.report.columns import new_table
from trimtab.report.measurement import readable

_MOST_ROWS = 40
_MEANS = {
    ViolationKind.LOST: "not processed",
    ViolationKind.REPEAT: "processed more than once",
    ViolationKind.INVERSION: "processed after a later one",
    ViolationKind.TWO_OWNERS: "two consumers at once",
    ViolationKind.REWIND: "committed offset went back",
}


def audit_view(audited: OrderAuditResult, *, no_repeats: bool) -> RenderableType:
    """What was audited, the number of violations of each kind, and the first violations."""
    counts = new_table("kind", "count", "", "", title="Order", box=None)
    counts.columns[1].justify = "right"
    for kind in ViolationKind:
        allowed = kind is ViolationKind.REPEAT and not no_repeats
        note = "allowed: at least once" if allowed and audited.counts.get(kind) else ""
        counts.add_row(str(kind), f"{audited.counts.get(kind, 0):,}", _MEANS[kind], note)
    parts: list[RenderableType] = [_looked_at(audited), Text(), counts]
    if audited.first:
        parts += [Text(), _violations(audited)]
    return Group(*parts)


def _looked_at(audited: OrderAuditResult) -> Text:
    line = f"run {audited.run}: {audited.receipts:,} receipts of {audited.records:,} records"
    if audited.group is None:
        line = f"{audited.records:,} records"
    if audited.expected is not None:
        line += f", {audited.expected:,} expected"
    if audited.unnumbered:
        judged = "not judged" if audited.group is None else "judged by offset"
        line += f", {audited.unnumbered:,} without a sequence number ({judged})"
    return Text(f"{line}, {audited.rejects:,} rejects")


def _violations(audited: OrderAuditResult) -> Table:
    table = new_table("kind", "partition", "key", "detail", title="Violations", box=None)
    for v in audited.first[:_MOST_ROWS]:
        key = "" if v.key is None else readable(v.key)
        table.add_row(str(v.kind), Text(f"{v.topic}-{v.partition}"), Text(key), Text(v.detail))
    left = sum(audited.counts.values()) - min(len(audited.first), _MOST_ROWS)
    if left > 0:
        table.add_row(f"… and {left:,} more")
    return table


def outcome_view(outcome: Outcome) -> RenderableType:
    """The whole run, its consumers and its windows."""
    return Group(
        _headline(outcome),
        Text(),
        _whole(outcome),
        Text(),
        _consumers(outcome),
        Text(),
        _windows(outcome),
    )


def _headline(outcome: Outcome) -> Text:
    start = datetime.fromtimestamp(outcome.from_ts / 1e6, UTC)
    return Text(
        f"run {outcome.run}, group {outcome.group}: {start:%Y-%m-%d %H:%M:%S} UTC, "
        f"{(outcome.to_ts - outcome.from_ts) / 1e6:.0f} s, {outcome.rejects:,} rejects"
    )


def _whole(outcome: Outcome) -> Table:
    latency = outcome.latency
    table = Table.grid(padding=(0, 2))
    rows = [
        ("records", f"{latency.events:,}", f"{outcome.repeats:,} processed again"),
        ("within SLA", f"{latency.within_sla:.3%}", f"of {outcome.sla_s:g} s"),
        (
            "latency",
            f"p50 {latency.p50_ms:,.0f} ms",
            f"p90 {latency.p90_ms:,.0f}, p99 {latency.p99_ms:,.0f}, "
            f"p99.9 {latency.p999_ms:,.0f}, max {latency.max_ms:,.0f} ms",
        ),
        (
            "replica-minutes",
            f"{outcome.replica_minutes:.2f}",
            f"{_number(outcome.mean_replicas)} on average, counted from {outcome.replicas_from}",
        ),
        (
            "busiest",
            _share(outcome.busiest_share),
            f"of all work; {_number(outcome.busiest_to_mean)} times the mean consumer",
        ),
        ("moves", f"{outcome.moves.moves:,}", _blocked(outcome.moves)),
    ]
    if outcome.handovers is not None:
        handed = outcome.handovers
        rows.append(("hand-overs", f"{handed.moves:,}", _blocked(handed)))
    for row in rows:
        table.add_row(*row)
    return table


def _blocked(blocking: BlockingTimes) -> str:
    if blocking.p50_s is None or blocking.p90_s is None or blocking.max_s is None:
        return ""
    return (
        f"blocked p50 {blocking.p50_s:.2f}, p90 {blocking.p90_s:.2f}, max {blocking.max_s:.2f}, "
        f"in all {blocking.total_s:.2f} s"
    )


def _consumers(outcome: Outcome) -> Table:
    table = _table("Consumers", "consumer", "processed", "busy s", "life s", "utilisation")
    for one in outcome.consumers[:_MOST_ROWS]:
        table.add_row(
            f"{one.consumer} ({one.incarnation[:8]})",
            f"{one.processed:,}",
            f"{one.busy_s:.1f}",
            f"{one.life_s:.1f}",
            _share(one.utilisation),
        )
    if len(outcome.consumers) > _MOST_ROWS:
        table.add_row(f"… and {len(outcome.consumers) - _MOST_ROWS} more")
    return table


def _windows(outcome: Outcome) -> Table:
    table = _table(
        "Windows", "from", "records", "p50 ms", "p99 ms", "in SLA", "replicas", "busiest"
    )
    for window in outcome.windows[:_MOST_ROWS]:
        start = datetime.fromtimestamp(window.window_start / 1e6, UTC)
        table.add_row(
            f"{start:%H:%M:%S}",
            f"{window.latency.events:,}",
            f"{window.latency.p50_ms:,.0f}",
            f"{window.latency.p99_ms:,.0f}",
            f"{window.latency.within_sla:.1%}",
            _number(window.replicas),
            _share(window.busiest_share),
        )
    if len(outcome.windows) > _MOST_ROWS:
        table.add_row(f"… and {len(outcome.windows) - _MOST_ROWS} more")
    return table


def _table(title: str, first: str, *figures: str) -> Table:
    return new_table(first, *figures, left=1, title=title, box=None)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
