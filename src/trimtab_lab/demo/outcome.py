"""The results of the demo, its report and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.audit.topology import Audit
from trimtab.model.cluster import ClusterSnapshot, TopicPartition
from trimtab.model.codec import dumps, measurement_to, snapshot_to
from trimtab.model.files import write_atomically
from trimtab.model.load import Measurement
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_to
from trimtab.report.audit_page import audit_page
from trimtab.report.html import Figure
from trimtab.report.measurement_page import FigureChange, JudgedRow, page
from trimtab.report.plots import RateHistory
from trimtab.services.plan_keys import PlannedKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The result of the group that a controller ran; `figures` are those of a live experiment."""

    rate_s: float
    duration_s: float
    sla_s: float
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """All results of the demo."""

    measurement: Measurement
    states: Mapping[tuple[str, TopicPartition], str]
    stored_ratio: float | None
    history: RateHistory
    loads: Mapping[TopicPartition, float]
    plan: ConsumerPlan
    hot_keys: PlannedKeys
    loop: Loop
    facts: Mapping[str, str]
    placed: ClusterSnapshot
    audit: Audit

    def page(self) -> str:
        """The report as HTML."""
        return page(
            self.measurement,
            self.history,
            self.states,
            self.plan,
            self.facts,
            loop_summary(self.loop),
            (self.hot_keys.plan, self.hot_keys.counts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files in the output folder."""

    report: Path
    measurement: Path
    plan: Path
    keys_plan: Path
    loop: Path
    snapshot: Path
    audit: Path


def write(outcome: DemoOutcome, folder: Path) -> Files:
    """Writes the report, and files that other commands take as input."""
    files = Files(
        report=folder / "report.html",
        measurement=folder / "measurement.json",
        plan=folder / "plan.json",
        keys_plan=folder / "keys-plan.json",
        loop=folder / "loop.json",
        snapshot=folder / "snapshot.json",
        audit=folder / "audit.html",
    )
    for path, text in (
        (files.report, outcome.page()),
        (files.measurement, dumps(measurement_to(outcome.measurement), indent=1) + "\n"),
        (files.plan, dumps(plan_to(outcome.plan), indent=2) + "\n"),
        (files.keys_plan, dumps(plan_to(outcome.hot_keys.plan), indent=2) + "\n"),
        (files.loop, dumps(dict(outcome.loop.figures), indent=1) + "\n"),
        (files.snapshot, dumps(snapshot_to(outcome.placed), indent=1) + "\n"),
        (files.audit, audit_page(outcome.audit)),
    ):
        write_atomically(path, text)
    return files


def loop_summary(loop: Loop) -> JudgedRow:
    """The result of the loop, as text for the page."""
    found = loop.figures
    blocked = found["handover"] or found["blocked"]
    return JudgedRow(
        sent=f"up to {loop.rate_s:.0f} records/s for {loop.duration_s:g} s",
        figures=[
            Figure(
                f"{found['sla_share']:.1%}",
                f"within {loop.sla_s:g} s",
                f"of {found['records']} records, p99 {found['p99_s']:.2f} s",
            ),
            Figure(
                f"{found['replica_minutes']:.1f}",
                "replica-minutes",
                f"{found['most_replicas']} consumers at most",
            ),
            Figure(
                str(blocked["moves"]),
                "hand-overs",
                "" if blocked["p90_s"] is None else f"blocked p90 {blocked['p90_s']:.2f} s",
            ),
            Figure(str(found["order_findings"]), "lost or reordered records", "all audited"),
        ],
        changes=[
            FigureChange(f"{max(0.0, at_s):.1f} s", f"{before} → {after}", reason)
            for at_s, _, before, after, reason in found["changes"]
        ],
    )
