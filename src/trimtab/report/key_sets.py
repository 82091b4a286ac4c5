"""A set audit as text tables."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.evaluate.key_history import SetAudit, SetFindingKind, SetRule
from trimtab.report.columns import new_table
from trimtab.report.measurement import readable

_MOST_ROWS = 40
_MOST_KEYS = 5
_MEANS = {
    SetRule.V1: "records of each key applied once, in the order of the source",
    SetRule.V2: "states result from the source",
    SetRule.V3: "one owner with a value; nothing waits, is parked or on its way",
    SetRule.V4: "each set adopted once; END, START and adoption agree",
    SetRule.V5: "records applied on the partition of their set",
    SetRule.V6: "sets of a key rise",
    SetRule.OWNERS: "one consumer process at a time works on a key",
}


def set_audit_view(audit: SetAudit) -> RenderableType:
    """What was audited, a verdict for each rule, and the first findings."""
    parts: list[RenderableType] = [_looked_at(audit), Text(), _verdicts(audit)]
    if audit.unsettled:
        named = ", ".join(readable(key) for key in audit.unsettled[:_MOST_KEYS])
        more = len(audit.unsettled) - _MOST_KEYS
        tail = f" and {more:,} more" if more > 0 else ""
        parts += [Text(), Text(f"not at rest: {len(audit.unsettled):,} keys ({named}{tail})")]
    if audit.findings:
        parts += [Text(), _findings(audit)]
    return Group(*parts)


def _looked_at(audit: SetAudit) -> Text:
    line = (
        f"{audit.keys:,} keys, {audit.records:,} records of the source, {audit.applied:,} "
        f"applied, {audit.dead:,} dead letters; {audit.sets:,} sets, {audit.adoptions:,} adopted"
    )
    return Text(line)


def _verdicts(audit: SetAudit) -> Table:
    counts = Counter(finding.kind.rule for finding in audit.findings)
    table = new_table("rule", "findings", "", "", title="Sets", box=None)
    table.columns[1].justify = "right"
    for rule in SetRule:
        table.add_row(str(rule), f"{counts[rule]:,}", _MEANS[rule], _note(rule, audit))
    return table


def _note(rule: SetRule, audit: SetAudit) -> str:
    if rule is SetRule.V3 and not audit.at_rest:
        return "not judged: things move"
    if rule is SetRule.V2 and not audit.chains:
        return "not judged: no chains"
    return ""


def _findings(audit: SetAudit) -> Table:
    table = new_table("rule", "kind", "key", "partition", "detail", title="Findings", box=None)
    shown: Counter[SetFindingKind] = Counter()
    rows = 0
    for f in audit.findings:
        shown[f.kind] += 1
        if shown[f.kind] > 10 or rows >= _MOST_ROWS:
            continue
        rows += 1
        place = "" if f.partition is None else str(f.partition)
        table.add_row(str(f.kind.rule), str(f.kind), Text(readable(f.key)), place, Text(f.detail))
    if rows < len(audit.findings):
        table.add_row(f"… and {len(audit.findings) - rows:,} more")
    return table
