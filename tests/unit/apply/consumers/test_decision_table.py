"""Decisions as a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from trimtab.apply.consumers.decision_table import DecisionTable
from trimtab.model.control import Action, Decision


def decision(ts: int) -> Decision:
    return Decision(
        ts=ts,
        group="g",
        action=Action.SCALE_UP,
        before=1,
        after=2,
        reason="so",
        forecast={"consumers": 2},
    )


def test_decisions_are_kept_when_the_ledger_is_closed(tmp_path: Path):
    with DecisionTable(tmp_path / "decisions") as ledger:
        ledger.add(decision(1))
        ledger.add(decision(2))

    rows = pq.read_table(tmp_path / "decisions").to_pylist()

    assert [row["from"] for row in rows] == [1, 1]
    assert rows[0]["forecast"] == '{"consumers": 2}'
    assert rows[0]["plan"] is None


def test_a_ledger_that_is_due_writes_at_once_and_leaves_no_half_file(tmp_path: Path):
    with DecisionTable(tmp_path, every_s=0) as ledger:
        ledger.add(decision(1))
        written = [path.name for path in tmp_path.iterdir()]

    assert len(written) == 1
    assert written[0].startswith("1-")
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_decided_is_nothing_written(tmp_path: Path):
    with DecisionTable(tmp_path / "decisions"):
        pass

    assert not (tmp_path / "decisions").exists()


def test_a_folder_that_cannot_be_written_is_tried_again_and_ends_nobody(tmp_path: Path):
    in_the_way = tmp_path / "decisions"
    in_the_way.write_text("no folder")
    with DecisionTable(in_the_way, every_s=0) as ledger:
        ledger.add(decision(1))
        in_the_way.unlink()
        ledger.add(decision(2))

    assert pq.read_table(in_the_way).num_rows == 2
