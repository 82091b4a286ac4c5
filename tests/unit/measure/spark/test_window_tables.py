"""No closed window is skipped, and none is written before its samples have come."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from structlog.testing import capture_logs

from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark import window_tables
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.spark.window_tables import WindowTables

SECOND = 1_000_000
START = 300 * SECOND


class Tables(WindowTables):
    """Tables of which only the spans are kept."""

    def __init__(self) -> None:
        output = MagicMock(folder="/nowhere")
        asked = MeasureQuery(from_ts=0, to_ts=1)
        super().__init__(
            MagicMock(),
            MagicMock(),
            Cluster("127.0.0.1:1"),
            asked,
            output,
            window_s=30,
            min_span_s=3,
        )
        self.written: list[tuple[int, int]] = []
        self.is_readable = True
        self.failure: Exception | None = None

    def closed_until(self) -> int:
        return START

    def write(self, start: int, end: int) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.is_readable:
            self.written.append((start, end))
        return self.is_readable

    def look(self) -> None:
        """A tick, waited for."""
        self.tick()
        assert self._writing is not None
        self._writing.result()


class Clock:
    """The wall clock of these tests."""

    now = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(window_tables, "wall_clock_us", clock)
    return clock


def test_a_window_is_written_when_slow_samples_have_come_too(clock: Clock) -> None:
    """A sample of a large cluster arrives seconds after its time."""
    tables = Tables()
    clock.now = START + 39 * SECOND
    tables.look()
    assert tables.written == []
    clock.now = START + 40 * SECOND
    tables.look()
    tables.look()
    assert tables.written == [(START, START + 30 * SECOND)]


def test_a_window_that_cannot_be_read_is_written_later(clock: Clock) -> None:
    tables = Tables()
    clock.now = START + 41 * SECOND
    tables.is_readable = False
    tables.look()
    tables.is_readable = True
    clock.now = START + 71 * SECOND
    tables.look()
    assert tables.written == [(START, START + 60 * SECOND)]


def test_no_error_is_hidden_in_the_thread(clock: Clock) -> None:
    tables = Tables()
    clock.now = START + 41 * SECOND
    tables.failure = KeyError("x")
    with capture_logs() as logs:
        tables.look()
    assert [cast("dict[str, Any]", line)["event"] for line in logs] == ["tables_not_written"]


def test_without_telemetry_that_can_be_read_nothing_counts_as_written() -> None:
    tables = Tables()
    cast("MagicMock", tables._admin).topics.return_value = ()
    assert WindowTables.write(tables, START, START + 1) is False


def placed(*offline: bool) -> list[Any]:
    return [MagicMock(offline=is_offline, leader=1) for is_offline in offline]


def test_a_window_is_not_written_while_a_part_of_the_telemetry_cannot_be_read() -> None:
    """The topics whose samples are in that partition would be missing in the tables."""
    tables = Tables()
    cast("MagicMock", tables._admin).topics.return_value = placed(False, True, False)
    assert tables.telemetry(from_ts=START, to_ts=START + 1) is None
    assert tables.offsets_at(START) is None
    assert WindowTables.write(tables, START, START + 1) is False


def test_waiting_for_a_leader_is_told_once(clock: Clock) -> None:
    tables = Tables()
    clock.now = START + 41 * SECOND
    tables.is_readable = False
    with capture_logs() as logs:
        tables.look()
        tables.look()
        tables.is_readable = True
        tables.look()
        tables.is_readable = False
        clock.now = START + 71 * SECOND
        tables.look()
    assert [line["event"] for line in logs] == ["tables_not_written"] * 2
