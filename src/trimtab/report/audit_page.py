"""One self-contained HTML page of a topology audit.

Promise  Values in, text out; the page loads nothing from the network. Names of topics are escaped.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab.audit.faults import Fault
from trimtab.audit.finding import named, some
from trimtab.audit.findings import findings
from trimtab.audit.known_loads import Basis
from trimtab.audit.leader_moves import commands, kafka_json
from trimtab.audit.load_findings import judged_by_count
from trimtab.audit.topology import Audit
from trimtab.model.codec import dumps
from trimtab.report import audit_plots
from trimtab.report.audit import (
    amount,
    bottleneck,
    counted_in,
    dashed,
    dealt_in,
    headline,
    load,
    offline,
    overlaps,
)
from trimtab.report.html import Figure, template

_MOST_FAULTS = 50
_MOST_ROWS = 100
_MOVES_FILE = "leader-moves.json"


class FaultRow(NamedTuple):
    """One failure as texts for the table."""

    dies: str
    offline: str
    unwritable: str
    moved: str
    uneven: str
    overlaps: str
    peak: str
    on: str
    best: str
    bad: bool


class AuditRow(NamedTuple):
    """A row about a topic or a pair of groups."""

    name: str
    where: str
    figure: str
    level: str = ""


def audit_page(audit: Audit) -> str:
    """The whole page."""
    worst = audit.faults[0] if audit.faults else None
    least = audit.loads.least.peak_to_mean
    judged = judged_by_count(audit)
    ranked = sorted(audit.pairs, key=lambda p: (-(p.rate or 0.0), p.first, p.second))
    uneven = sorted(audit.uneven, key=lambda u: (-u.level.rank, -u.peak_to_mean, u.topic))
    return template("audit.html").render(
        title=f"Topology of {audit.cluster or 'the cluster'}",
        headline=headline(audit),
        counted_in=counted_in(audit.carried),
        dealt_in=dealt_in(audit),
        measured=audit.carried.basis is Basis.RATES,
        figures=_figures(audit),
        findings=[
            (str(f.level), f.text, f.advice_for(audit.options.server)) for f in findings(audit)
        ],
        moves=dumps(kafka_json(audit.leader_moves)) if audit.leader_moves else None,
        moves_file=_MOVES_FILE,
        commands=commands(audit.leader_moves, server=audit.options.server, file=_MOVES_FILE),
        policies=_policies(audit),
        matrix=audit_plots.matrix(audit) if audit.groups else None,
        topics_left=max(0, len(audit.topics) - len(audit.offline_topics) - audit_plots.MOST_TOPICS),
        loads=audit_plots.loads(audit) if audit.groups else None,
        bottleneck=bottleneck(audit) if least > audit.options.wanted_peak else None,
        failures=audit_plots.failures(audit) if worst else None,
        worst=worst and named(worst),
        worst_loads=worst and audit_plots.worst_failure(audit, audit.carried_after(worst)),
        faults=[_row(fault) for fault in audit.faults[:_MOST_FAULTS]],
        faults_total=len(audit.faults),
        uneven=[
            AuditRow(
                u.topic,
                some([f"{b}: {c}" for b, c in zip(u.brokers, u.counts, strict=True)], 12),
                f"{float(u.peak_to_mean):.2f}",
                str(u.level) if u.topic in judged else "by load",
            )
            for u in uneven[:_MOST_ROWS]
        ],
        uneven_total=len(audit.uneven),
        pairs=[
            AuditRow(
                " – ".join(some(audit.groups[g].topics, 3) for g in (p.first, p.second)),
                some(p.brokers, 12),
                load(p.rate or 0.0, audit.loads.unit),
            )
            for p in ranked
        ],
        pairs_total=audit.pairs_total,
    )


def _figures(audit: Audit) -> list[Figure]:
    now = audit.carried
    offline_now = len(audit.offline_partitions)
    figures = [
        Figure(f"{offline_now:,}", "partitions offline now", f"of {audit.partitions:,}"),
        Figure(
            f"{now.peak_to_mean:.2f} ×",
            "the mean: busiest broker",
            f"broker {now.broker}; best spread {now.bound_to_mean:.2f}",
        ),
    ]
    if now.basis is Basis.RATES:
        figures.append(
            Figure(
                f"{now.hottest_to_mean:.2f} ×",
                "the mean of a broker: hottest partition",
                f"{now.hottest}, {amount(now.hottest_load, now)}",
            )
        )
    else:
        figures.append(
            Figure(
                f"{len(audit.uneven):,}",
                "uneven topics",
                f"of {len(audit.topics):,}, {len(audit.stacked):,} stacked",
            )
        )
    figures.append(Figure(f"{audit.drift.share:.0%}", "not led by the preferred replica"))
    if audit.faults:
        worst = audit.faults[0]
        figures += [
            Figure(
                f"{worst.unwritable:,}",
                "partitions unwritable after the worst failure",
                f"{named(worst)}; {worst.offline_partitions:,} offline",
            ),
            _highest_after(audit),
        ]
    return figures


def _highest_after(audit: Audit) -> Figure:
    highest = max(audit.faults, key=lambda fault: fault.peak_to_mean)
    return Figure(
        f"{highest.peak_to_mean:.2f} ×",
        "the mean of the remaining brokers: highest load after a failure",
        f"{named(highest)}; least possible {highest.bound_to_mean:.2f}",
    )


def _policies(audit: Audit) -> list[AuditRow]:
    loads = audit.loads
    rows = [
        AuditRow(name, f"broker {policy.broker}", f"{policy.peak_to_mean:.2f}")
        for name, policy in (
            ("to partitions in turn (default)", loads.default),
            ("to leaders in turn (node, or an SQF each)", loads.node),
        )
        if policy.broker is not None
    ]
    best = f"brokers {some(loads.least.brokers, 8)}" if loads.least.brokers else "–"
    rows.append(AuditRow("freely (an SQF shared by all)", best, f"{loads.least.peak_to_mean:.2f}"))
    return rows


def _row(fault: Fault) -> FaultRow:
    return FaultRow(
        dies=named(fault),
        offline=offline(fault),
        unwritable=dashed(fault.below_min_insync),
        moved=f"{fault.moved:,}",
        uneven=dashed(fault.newly_skewed),
        overlaps=overlaps(fault),
        peak=f"{fault.peak_to_mean:.2f}",
        on="–" if fault.peak_broker is None else f"broker {fault.peak_broker}",
        best=f"{fault.bound_to_mean:.2f}",
        bad=fault.unwritable > 0,
    )
