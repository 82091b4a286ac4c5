"""A topology audit as text tables: findings first, then brokers and failures."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.audit.faults import Fault
from trimtab.audit.finding import counted, some
from trimtab.audit.findings import findings
from trimtab.audit.known_loads import Basis, CarriedLoads
from trimtab.audit.leader_moves import commands
from trimtab.audit.load_findings import judged_by_count
from trimtab.audit.loads import PolicyLoad
from trimtab.audit.topology import Audit
from trimtab.audit.unevenness import Level
from trimtab.model.load import Unit
from trimtab.report.columns import PROSE, new_table
from trimtab.report.tables import quantity

_MOST_BROKERS = 40
_MOST_ROWS = 10
_BAR = 12
_COLUMNS = (
    "offline, blocked (refuse acks=all), moved: partitions; uneven: topics that become uneven; "
    "overlaps: pairs of topics; × mean: highest load of the remaining brokers over their mean; "
    "on: the broker with that load; best: the least possible"
)
STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: ""}


def audit_view(audit: Audit, *, worst: int = 10) -> RenderableType:
    """The whole audit, with the `worst` worst failures."""
    parts: list[RenderableType] = [Text(headline(audit)), Text(), _findings(audit)]
    if audit.brokers:
        parts += [Text(), _brokers(audit), Text(), _policies(audit)]
    if audit.pairs_total:
        parts += [Text(), _pairs(audit)]
    if audit.uneven:
        parts += [Text(), _uneven(audit)]
    if audit.faults and worst:
        parts += [Text(), _faults(audit, worst)]
    return Group(*parts)


def headline(audit: Audit) -> str:
    """What was audited, in one line."""
    return (
        f"cluster {audit.cluster or 'unknown'}: {counted(len(audit.brokers), 'broker')}, "
        f"{counted(len(audit.topics), 'topic')} in {counted(len(audit.groups), 'group')}, "
        f"{counted(audit.partitions, 'partition')}"
    )


def load(value: float, unit: Unit | None) -> str:
    """A load under a partitioner, with its unit; without rates every topic counts 1."""
    return f"{value:.3g}" if unit is None else quantity(value, unit)


def amount(value: float, of: CarriedLoads) -> str:
    """The load of a broker, with its unit."""
    match of.basis:
        case Basis.RATES:
            return load(value, of.unit)
        case Basis.BYTES:
            return quantity(value).removesuffix("/s")
        case Basis.LEADERS:
            return counted(round(value), "leader")


def counted_in(of: CarriedLoads) -> str:
    """A text that says which data the broker loads are taken from."""
    match of.basis:
        case Basis.RATES:
            return "as measured" if of.unit is None else f"as measured, {of.unit}"
        case Basis.BYTES:
            return "no rates: bytes stored"
        case Basis.LEADERS:
            return "no rates: partitions led"


def dealt_in(audit: Audit) -> str:
    """A text that says in which unit loads under partitioners are counted."""
    return "every topic counts 1" if audit.loads.unit is None else str(audit.loads.unit)


def _findings(audit: Audit) -> RenderableType:
    found = findings(audit)
    if not audit.brokers:
        return Text("The cluster has no brokers: nothing to audit.")
    if not found:
        even = "loads are" if audit.carried.basis is Basis.RATES else "leaders are"
        return Text(f"No findings: {even} even, no partition is offline.", style="green")
    table = _table("Findings", "level", "", left=2)
    for one in found:
        said = Text(one.text)
        if one.advice:
            said.append(f"\n→ {one.advice_for(audit.options.server)}", style="dim")
        table.add_row(Text(str(one.level), style=STYLES[one.level]), said)
    return table


def to_move_leaders(audit: Audit, *, file: str | None = None) -> str:
    """The commands for the leader moves, as lines to copy; `file` holds the moves."""
    where = f"{file} contains" if file else "--kafka-json FILE writes"
    moves = counted(len(audit.leader_moves), "leader move")
    lines = commands(audit.leader_moves, server=audit.options.server, file=file or "FILE")
    return "\n".join((f"To move leaders: {where} {moves}; then run", *lines))


def _brokers(audit: Audit) -> Table:
    found, down = audit.carried, audit.options.down
    table = _table(
        f"Brokers ({counted_in(found)})", *("broker", "leads", "groups", "drift", "load"), left=1
    )
    table.columns[-1].justify = "left"
    busiest = sorted(audit.brokers, key=lambda b: (-found.by_broker[b], b))
    for broker in sorted(busiest[:_MOST_BROKERS]):
        leads = audit.leaders_per_broker[broker]
        table.add_row(
            f"{broker} (down)" if broker in down else str(broker),
            str(leads),
            str(len(audit.overlaps_by_broker.get(broker, ())) or (1 if leads else "–")),
            f"{audit.drift.share_of(broker):.0%}",
            _bar(found.by_broker[broker], found, wanted=audit.options.wanted_peak),
        )
    _add_rest(table, len(audit.brokers), _MOST_BROKERS, "less busy ones")
    return table


def _bar(value: float, of: CarriedLoads, *, wanted: float) -> Text:
    times = value / of.mean if of.mean else 0.0
    filled = min(_BAR, round(times * _BAR / 2))  # the middle of the bar is the mean
    bar = "█" * filled + "░" * (_BAR - filled)
    style = "red" if times > max(wanted, of.bound_to_mean) else ""
    return Text(f"{bar} {times:.2f} × mean, {amount(value, of)}", style=style)


def _policies(audit: Audit) -> RenderableType:
    loads, now = audit.loads, audit.carried
    table = _table(
        f"Peaks by partitioner ({dealt_in(audit)})",
        *("records without a key are sent", "peak", "broker", "× mean"),
        left=1,
    )

    def row(name: str, policy: PolicyLoad) -> None:
        if policy.broker is not None:
            table.add_row(
                name,
                load(policy.peak, loads.unit),
                str(policy.broker),
                f"{policy.peak_to_mean:.2f}",
            )

    if now.broker is not None:
        table.add_row(
            "as they are now",
            amount(now.peak, now),
            str(now.broker),
            f"{now.peak_to_mean:.2f}",
        )
    row("to partitions in turn (default)", loads.default)
    row("to leaders in turn (node, or an SQF each)", loads.node)
    least = loads.least
    everybody = len(least.brokers) == len(audit.brokers)
    table.add_row(
        "freely (an SQF shared by all): least possible",
        load(least.peak, loads.unit),
        "all" if everybody else some(least.brokers, 4),
        f"{least.peak_to_mean:.2f}",
    )
    for one in loads.doubled[:3]:
        table.add_row(
            Text(f"if {one.topic} doubled"), "", str(one.broker), f"{one.peak_to_mean:.2f}"
        )
    if least.peak_to_mean <= audit.options.wanted_peak:
        return table
    return Group(table, Text(bottleneck(audit), style="red"))


def bottleneck(audit: Audit) -> str:
    """A text that says what limits every partitioner, and what to move."""
    least = audit.loads.least
    what = "leaders" if audit.leader_moves else "leaders or replicas (kafka-reassign-partitions)"
    return (
        f"No partitioner can reach less than {least.peak_to_mean:.2f} × the mean: "
        f"{counted(len(least.topics), 'topic')} ({some(least.topics, 3)}) can go only to "
        f"{counted(len(least.brokers), 'broker')} ({some(least.brokers, 8)}). Move {what}."
    )


def _pairs(audit: Audit) -> Table:
    table = _table("Overlaps, by common rate", "groups", "brokers in common", "rate", left=2)
    ranked = sorted(audit.pairs, key=lambda p: (-(p.rate or 0.0), p.first, p.second))
    for pair in ranked[:_MOST_ROWS]:
        names = (some(audit.groups[g].topics, 2) for g in (pair.first, pair.second))
        table.add_row(
            Text(" – ".join(names)), some(pair.brokers), load(pair.rate or 0.0, audit.loads.unit)
        )
    _add_rest(table, audit.pairs_total, min(_MOST_ROWS, len(audit.pairs)), "more pairs")
    return table


def _uneven(audit: Audit) -> Table:
    judged = judged_by_count(audit)
    table = _table(
        "Uneven topics, by number of partitions",
        *("topic", "partitions by broker", "× mean", "level"),
        left=2,
    )
    worst = sorted(audit.uneven, key=lambda u: (-u.level.rank, -u.peak_to_mean, u.topic))
    for one in worst[:_MOST_ROWS]:
        counts = [f"{b}: {c}" for b, c in zip(one.brokers, one.counts, strict=True)]
        table.add_row(
            Text(one.topic),
            some(counts, 8),
            f"{float(one.peak_to_mean):.2f}",
            Text(str(one.level), style=STYLES[one.level]) if one.topic in judged else "by load",
        )
    _add_rest(table, len(audit.uneven), _MOST_ROWS, "more topics")
    return table


def _faults(audit: Audit, worst: int) -> RenderableType:
    table = _table(
        f"Failures, the worst first ({counted_in(audit.carried)})",
        *("fails", "offline", "blocked", "moved", "uneven", "overlaps"),
        *("× mean", "on", "best"),
        left=1,
    )
    listed = _listed(audit, worst)
    for place, fault in enumerate(listed):
        style = "bold red" if fault.unwritable else "bold" if place == 0 else ""
        table.add_row(
            Text(("▶ " if place == 0 else "  ") + _dead(fault)),
            *(dashed(fault.offline_partitions), dashed(fault.below_min_insync)),
            *(f"{fault.moved:,}", dashed(fault.newly_skewed), overlaps(fault)),
            f"{fault.peak_to_mean:.2f}",
            "–" if fault.peak_broker is None else str(fault.peak_broker),
            f"{fault.bound_to_mean:.2f}",
            style=style,
        )
    _add_rest(table, len(audit.faults), len(listed), "less severe ones")
    return Group(table, Text(_COLUMNS, style="dim"))


def dashed(count: int) -> str:
    """A number, or a dash for 0."""
    return f"{count:,}" if count else "–"


def _listed(audit: Audit, worst: int) -> list[Fault]:
    """The worst failures, plus the worst failure of a single broker if it is not among them."""
    shown = list(audit.faults[:worst])
    alone = next((f for f in audit.faults if len(f.dead) == 1), None)
    return shown if alone is None or any(len(f.dead) == 1 for f in shown) else [*shown, alone]


def _dead(fault: Fault) -> str:
    ids = some(fault.dead, 6)
    return f"{fault.what}: {ids}" if fault.what else ids


def offline(fault: Fault) -> str:
    """A text that says what a failure takes offline; a dash for nothing."""
    if not fault.offline_partitions:
        return "–"
    whole = f", {counted(fault.offline_topics, 'topic')}" if fault.offline_topics else ""
    return f"{counted(fault.offline_partitions, 'partition')}{whole}"


def overlaps(fault: Fault) -> str:
    """Pairs of topics that begin (+) or cease (−) to overlap in part after a failure.

    >>> from trimtab.audit.topology import audit
    >>> from trimtab.testing.placements import placement
    >>> crossing = audit(placement({"A": [[1, 3], [2, 4]], "B": [[3, 1], [4, 2]]}))
    >>> overlaps(crossing.faults[0])
    '+1'
    """
    signs = (("+", fault.new_pairs), ("−", fault.vanished_pairs))
    return " ".join(f"{sign}{count:,}" for sign, count in signs if count) or "–"


def _table(title: str, *columns: str, left: int) -> Table:
    return new_table(*columns, left=left, prose=("", *PROSE), title=title, box=None)


def _add_rest(table: Table, of: int, shown: int, what: str) -> None:
    if of > shown:
        table.caption = f"and {of - shown:,} {what}, in the JSON"
