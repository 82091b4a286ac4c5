"""Handlers for experiments, and what members of a group log about a rebalance."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from trimtab.apply.handling import FixedService, load_handler
from trimtab.errors import ConfigError
from trimtab.model.record import Record
from trimtab_lab.papers.live import handlers
from trimtab_lab.papers.live.handlers import SERVICE_BYTES_S, limited_by_bytes
from trimtab_lab.papers.live.kafka.run_watch import rebalances, running_consumers

RECORD = Record("t", 0, 0, None, bytes(5000), (), 0)


def test_the_handler_is_found_by_its_name_and_takes_the_time_of_the_bytes(monkeypatch):
    slept: list[float] = []

    def service(service_s: float, *, per_byte_s: float) -> FixedService:
        return FixedService(service_s, per_byte_s=per_byte_s, sleep=slept.append)

    monkeypatch.setenv(SERVICE_BYTES_S, "50000")
    monkeypatch.setattr(handlers, "FixedService", service)
    handler = load_handler(f"{handlers.__name__}:limited_by_bytes")
    handler(RECORD)
    assert slept == [pytest.approx(0.1)]


@pytest.mark.parametrize("said", ["", "fast", "0", "-5", "nan", "inf"])
def test_a_rate_that_is_none_is_refused(monkeypatch, said):
    monkeypatch.setenv(SERVICE_BYTES_S, said)
    with pytest.raises(ConfigError, match=SERVICE_BYTES_S):
        limited_by_bytes(RECORD)


def test_rebalances_are_those_that_members_logged_in_the_time_of_the_run(tmp_path: Path):
    def said(second: int, blocked_s: float) -> str:
        event = {"event": "partitions_assigned", "blocked_s": blocked_s}
        return json.dumps({**event, "timestamp": f"2026-01-01T00:00:{second:02}Z"})

    (tmp_path / "consumer-0.log").write_text(
        "\n".join([said(5, 9.0), "not JSON", said(21, 7.0)[:-9], said(20, 0.4), said(30, 0.0)])
        + "\n"
    )
    (tmp_path / "consumer-1.log").write_text(said(25, 1.2) + "\n")
    began = 1_767_225_600_000_000  # 2026-01-01

    found = sorted(rebalances(tmp_path, began + 10_000_000, began + 60_000_000))

    assert found == [0.4, 1.2]  # the first of a member begins with nothing: it blocks nobody


def test_consumers_are_counted_without_touching_their_files(tmp_path: Path):
    for index, pid in ((0, 2**22 - 1), (1, 2**22 - 2)):
        told = {"v": 1, "pid": pid, "started": str(time.time())}
        (tmp_path / f"consumer-{index}.json").write_text(json.dumps(told))

    assert running_consumers(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 2
    assert running_consumers(tmp_path / "nowhere") == 0
