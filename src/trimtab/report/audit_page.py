"""One self-contained HTML page of a topology audit.

Promise  As all our pages: values in, text out, nothing is loaded from anywhere. Whatever a topic is
         called, it is shown as text.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab.measure.topology.audit import Audit
from trimtab.measure.topology.faults import Fault
from trimtab.measure.topology.findings import counted, findings, named, some
from trimtab.report import audit_plots
from trimtab.report.audit import counted_in, headline, load, offline, overlaps
from trimtab.report.page import Figure, template

_MOST_FAULTS = 50
_MOST_ROWS = 100


class FaultRow(NamedTuple):
    """One failure in words."""

    dies: str
    offline: str
    unwritable: str
    moved: str
    uneven: str
    overlaps: str
    peak: str
    by_leaders: str
    least: str
    bad: bool


class Row(NamedTuple):
    """A topic, or a pair of groups, with what is to be said of it."""

    name: str
    where: str
    figure: str
    level: str = ""


def audit_page(audit: Audit) -> str:
    """The whole page."""
    worst = audit.faults[0] if audit.faults else None
    ranked = sorted(audit.pairs, key=lambda p: (-(p.rate or 0.0), p.first, p.second))
    uneven = sorted(audit.uneven, key=lambda u: (-u.level.rank, -u.peak_to_mean, u.topic))
    return template("audit.html").render(
        title=f"Topology of {audit.cluster or 'the cluster'}",
        headline=headline(audit),
        counted_in=counted_in(audit),
        figures=_figures(audit),
        findings=[(str(f.level), f.text) for f in findings(audit)],
        matrix=audit_plots.matrix(audit) if audit.groups else None,
        topics_left=max(0, len(audit.topics) - len(audit.offline_topics) - audit_plots.MOST_TOPICS),
        loads=audit_plots.loads(audit) if audit.groups else None,
        bottleneck=_bottleneck(audit),
        failures=audit_plots.failures(audit) if worst else None,
        worst=worst and named(worst),
        worst_loads=worst and audit_plots.worst_failure(audit, audit.loads_after(worst)),
        faults=[_row(fault) for fault in audit.faults[:_MOST_FAULTS]],
        faults_total=len(audit.faults),
        uneven=[
            Row(
                u.topic,
                some([f"{b}: {c}" for b, c in zip(u.brokers, u.counts, strict=True)], 12),
                f"{float(u.peak_to_mean):.2f}",
                str(u.level),
            )
            for u in uneven[:_MOST_ROWS]
        ],
        uneven_total=len(audit.uneven),
        pairs=[
            Row(
                " – ".join(some(audit.groups[g].topics, 3) for g in (p.first, p.second)),
                some(p.brokers, 12),
                load(p.rate or 0.0, audit.loads.unit),
            )
            for p in ranked
        ],
        pairs_total=audit.pairs_total,
    )


def _figures(audit: Audit) -> list[Figure]:
    loads = audit.loads
    offline_now = len(audit.offline_partitions)
    figures = [
        Figure(f"{offline_now:,}", "partitions offline now", f"of {audit.partitions:,}"),
        Figure(
            f"{loads.default.peak_to_mean:.2f} ×",
            "the mean: busiest broker",
            f"broker {loads.default.broker}; at best {loads.least.peak_to_mean:.2f}",
        ),
        Figure(
            f"{len(audit.uneven):,}",
            "uneven topics",
            f"of {len(audit.topics):,}, {len(audit.stacked):,} stacked",
        ),
        Figure(f"{audit.drift.share:.0%}", "away from the preferred leader"),
    ]
    if audit.faults:
        worst = audit.faults[0]
        figures.append(
            Figure(
                f"{worst.offline_partitions:,}",
                "partitions offline by the worst failure",
                named(worst),
            )
        )
    return figures


def _bottleneck(audit: Audit) -> str | None:
    """What to say where no partitioner gets below what is wanted."""
    least = audit.loads.least
    if least.peak_to_mean <= audit.options.wanted_peak:
        return None
    return (
        f"No partitioner gets below {least.peak_to_mean:.2f} × the mean: "
        f"{counted(len(least.topics), 'topic')} ({some(least.topics, 3)}) can go only to "
        f"{counted(len(least.brokers), 'broker')} ({some(least.brokers, 8)}). Move leaders."
    )


def _row(fault: Fault) -> FaultRow:
    return FaultRow(
        dies=named(fault),
        offline=offline(fault),
        unwritable=f"{fault.below_min_insync:,}" if fault.below_min_insync else "–",
        moved=f"{fault.moved:,}",
        uneven=f"{fault.newly_uneven:,}" if fault.newly_uneven else "–",
        overlaps=overlaps(fault),
        peak=f"{fault.default_to_mean:.2f}",
        by_leaders=f"{fault.node_to_mean:.2f}",
        least="" if fault.least_to_mean is None else f"{fault.least_to_mean:.2f}",
        bad=fault.offline_partitions > 0,
    )
