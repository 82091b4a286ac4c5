"""The two facts that the page on the audit shows hold for the files that it shows them with."""

from __future__ import annotations

import re

from tests import ROOT
from trimtab.audit.topology import Audit, AuditOptions, audit
from trimtab.model.codec import snapshot_from
from trimtab.model.json_reader import parse

PAGE = ROOT / "docs" / "how-to" / "audit-a-topology.md"


def shown() -> list[Audit]:
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    both = AuditOptions(up_to=2)
    return [audit(snapshot_from(parse(text, origin="page")), options=both) for text in blocks]


def test_replicas_inside_a_group_keep_it_apart_and_crossing_ones_do_not() -> None:
    inside, crossing = shown()

    assert [fault.dead for fault in inside.faults if fault.new_pairs] == []
    assert inside.details(inside.faults[0]).offline_topics == ("A",)
    assert inside.faults[0].dead == (1, 2)
    by_dead = {tuple(int(b) for b in fault.dead): fault for fault in crossing.faults}
    assert (by_dead[1,].new_pairs, by_dead[1,].contested) == (1, (3,))
    assert by_dead[1,].default_to_mean == 1.5
    assert (by_dead[1, 2].new_pairs, by_dead[1, 2].contested) == (0, ())
