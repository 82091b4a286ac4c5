"""The record in hand is known after the process is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trimtab.apply.consumers.backends.crashes import Crashes
from trimtab.apply.consumers.backends.current_record import CurrentRecord, noted_record
from trimtab.model.record import Record

CRASHES = """
import os, signal, sys
from pathlib import Path
from trimtab.apply.consumers.backends.current_record import CurrentRecord
from trimtab.model.record import Record
note = CurrentRecord(Path(sys.argv[1]))
note(Record("a-longer-name-of-a-topic", 12, 1000000, None, None, (), 0))
note(None)
note(Record("orders", 3, 17, None, None, (), 0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_record_behind(tmp_path: Path) -> None:
    path = tmp_path / "consumer-0.record"

    subprocess.run([sys.executable, "-c", CRASHES, str(path)], check=False)

    assert noted_record(path) == "orders-3, offset 17"


def test_between_two_records_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "consumer-0.record"
    assert noted_record(path) is None

    note = CurrentRecord(path)
    assert noted_record(path) is None
    note(Record("orders", 3, 17, None, None, (), 0))
    assert noted_record(path) == "orders-3, offset 17"
    note(None)
    assert noted_record(path) is None


def test_pauses_grow_per_place_and_are_forgotten_after_a_while() -> None:
    crashes = Crashes(first_s=1.0, most_s=4.0, forget_s=100.0)
    assert crashes.note("here", 0.0) == 1
    assert crashes.note("there", 0.0) == 1
    assert crashes.waiting(0.0) is None
    assert crashes.note("here", 10.0) == 2
    assert crashes.waiting(10.0) == ("here", 2, 1.0)
    assert crashes.waiting(11.0) is None
    for now in (20.0, 30.0, 40.0):
        crashes.note("here", now)
    assert crashes.waiting(40.0) == ("here", 5, 4.0)
    assert crashes.note("here", 200.0) == 1
    assert crashes.waiting(200.0) is None
