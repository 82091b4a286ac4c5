"""The query on the driver begins where the tables end, however old its checkpoint is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark import driver_rates
from trimtab.measure.spark.driver_rates import DriverStart
from trimtab.measure.spark.streaming_queries import Stream
from trimtab.model.cluster import TopicPartition

SECOND = 1_000_000
WINDOW = 30 * SECOND
NOW = 1_000 * WINDOW + 7 * SECOND
A, B = TopicPartition("telemetry", 0), TopicPartition("telemetry", 1)


@dataclass
class Log:
    """Telemetry with a record of both partitions each second, and tables that end at a window."""

    closed: int
    is_readable: bool = True
    written: list[tuple[int, int]] = field(default_factory=list)
    read_from: list[int] = field(default_factory=list)

    def closed_until(self) -> int:
        return self.closed

    def write(self, start: int, end: int) -> bool:
        if self.is_readable:
            self.written.append((start, end))
            self.closed = end
        return self.is_readable

    def telemetry(self, *, from_ts: int, to_ts: int) -> str | None:
        self.read_from.append(from_ts)
        return "raw" if self.is_readable else None

    def offsets_at(self, ts: int) -> Mapping[TopicPartition, int] | None:
        return {A: ts // SECOND, B: ts // SECOND} if self.is_readable else None


@dataclass
class World:
    log: Log
    checkpoint: dict[TopicPartition, int]
    deleted: list[str] = field(default_factory=list)
    started: list[Stream] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)

    def start(self) -> DriverStart:
        ring = SimpleNamespace(window_s=30, closed_until=0)
        query = SimpleNamespace(ring=ring, refill=self.filled.append, on_batch=None)
        stream = Stream(
            name="rates",
            cluster=Cluster("127.0.0.1:1"),
            pattern="p",
            shape=lambda raw: raw,
            folder="/checkpoints/rates-1",
            trigger_s=0.2,
        )
        tables: Any = self.log
        return DriverStart(MagicMock(), cast("Any", query), tables, stream)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(Log(closed=NOW // WINDOW * WINDOW), {})

    class Checkpoints:
        def __init__(self, root: str) -> None:
            self.root = root

        def delete(self, _: object, name: str) -> None:
            world.deleted.append(f"{self.root}/{name}")
            world.checkpoint.clear()

    monkeypatch.setattr(driver_rates, "Folder", Checkpoints)
    monkeypatch.setattr(driver_rates, "committed_offsets", lambda *_: dict(world.checkpoint))
    monkeypatch.setattr(driver_rates, "wall_clock_us", lambda: NOW)
    monkeypatch.setattr(Stream, "start", lambda self, *_: world.started.append(self))
    return world


def starting(stream: Stream) -> Any:
    return json.loads(stream.starting)["telemetry"]


def test_the_first_start_begins_with_the_current_window(world: World) -> None:
    world.start()()
    assert starting(world.started[0]) == {"0": 30_000, "1": 30_000}
    assert world.log.written == []
    assert world.log.read_from == [NOW - WINDOW]


def test_a_driver_that_comes_back_soon_goes_on_from_its_checkpoint(world: World) -> None:
    world.checkpoint = {A: 30_001, B: 30_002}
    world.start()()
    assert world.started[0].starting == "latest"
    assert world.deleted == []


def test_a_checkpoint_of_days_ago_is_not_resumed(world: World) -> None:
    """The missed windows are written together, and the stream reads the last two only."""
    days = 4 * 86_400
    world.log.closed -= days * SECOND
    world.checkpoint = {A: 30_001 - days, B: 30_001 - days}
    start = world.start()
    start()
    assert world.deleted == ["/checkpoints/rates-1"]
    assert starting(world.started[0]) == {"0": 29_970, "1": 29_970}
    assert world.log.written == [((30_000 - days) * SECOND, 29_970 * SECOND)]
    assert start.query.ring.closed_until == 29_970 * SECOND


def test_a_checkpoint_from_before_rates_were_on_executors_is_not_resumed(world: World) -> None:
    """Executors have written the tables since, so no window is missing."""
    world.checkpoint = {A: 5, B: 5}
    world.start()()
    assert world.log.written == []
    assert starting(world.started[0]) == {"0": 30_000, "1": 30_000}


def test_a_checkpoint_that_lacks_a_partition_is_not_resumed(world: World) -> None:
    world.checkpoint = {A: 30_001}
    world.start()()
    assert starting(world.started[0]) == {"0": 30_000, "1": 30_000}


@pytest.mark.parametrize("away_s", [0, 86_400])
def test_nothing_counts_as_written_and_nothing_starts_while_telemetry_cannot_be_read(
    world: World, away_s: int
) -> None:
    closed = world.log.closed = world.log.closed - away_s * SECOND
    world.log.is_readable = False
    start = world.start()
    with pytest.raises(BrokerUnavailable, match="no leader"):
        start()
    assert (world.started, world.filled, world.log.closed) == ([], [], closed)
    world.log.is_readable = True
    start()
    assert len(world.started) == len(world.filled) == 1


def test_a_query_that_failed_is_started_again_with_the_ring_that_it_has(world: World) -> None:
    start = world.start()
    start()
    start.query.ring.closed_until += WINDOW
    world.checkpoint = {A: 30_031, B: 30_031}
    start()
    assert world.filled == ["raw"]
    assert world.started[1].starting == "latest"
