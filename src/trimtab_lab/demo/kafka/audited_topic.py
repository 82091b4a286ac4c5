"""The audit step of the demo: where the topic's leaders are, and the effect of each failure."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.audit.findings import findings
from trimtab.audit.loads import topic_rates
from trimtab.audit.topology import Audit, AuditOptions, audit
from trimtab.kafka.admin import Admin
from trimtab.kafka.snapshot import take_placement
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.load import Measurement, Unit
from trimtab.report.audit import headline


def audited_topic(
    admin: Admin,
    topic: str,
    measured: Measurement,
    *,
    clock: Callable[[], int],
    say: Callable[[str], None],
) -> tuple[ClusterSnapshot, Audit]:
    """Audits one topic with the measured rates, and prints the findings."""
    placed, down = take_placement(admin, topics=[topic], clock=clock)
    rates = topic_rates(placed, measured.loads(Unit.BYTES_S), Unit.BYTES_S)
    options = AuditOptions(min_insync=admin.min_insync(placed.topics), down=down)
    found = audit(placed, rates, options)
    say(f"Audit: {headline(found)}.")
    for finding in findings(found):
        say(f"  {finding.level}: {finding.text}")
    return placed, found
