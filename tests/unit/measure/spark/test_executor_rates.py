"""A task goes on where the last one ended, wherever that ran; the log fills every gap."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from trimtab.kafka.cluster import Cluster
from trimtab.measure.kafka.telemetry_log import LogRecord
from trimtab.measure.ring_files import RingFiles
from trimtab.measure.spark import executor_rates
from trimtab.measure.spark.executor_rates import RatesTask
from trimtab.measure.topic_filter import TopicFilter

SECOND = 1_000_000
START = 1_700_000_000
NONSENSE = b"{nonsense"


def record(second: int, topic: str = "t", *, part: int = 0, of: int = 1) -> bytes:
    numbers = [2 * part, 2 * part + 1]
    value = {
        "v": 2,
        "sample_id": "s",
        "ts": (START + second) * SECOND,
        "topic": topic,
        "partition": numbers,
        "leader": [1, 1],
        "log_bytes": [100 * second * (n + 1) for n in numbers],
        "end_offset": [second] * 2,
        "committed": {"g": [max(0, second - 1)] * 2},
        "part": part,
        "of": of,
    }
    return json.dumps(value).encode()


class World:
    """One partition of the log, tasks on any executor, and what they have read again."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[LogRecord] = []
        self.read_again: list[int] = []
        self._tmp_path, self._monkeypatch = tmp_path, monkeypatch
        self.task = RatesTask(
            cluster=Cluster("127.0.0.1:1"),
            window_s=10,
            min_span_s=2,
            topics=TopicFilter(),
            groups=None,
            identity="i",
        )
        monkeypatch.setattr(executor_rates, "read_log", self._read_log)

    def write(self, value: bytes) -> None:
        arrived = START * SECOND if value == NONSENSE else json.loads(value)["ts"]
        self.log.append(LogRecord(len(self.log), arrived, value))

    def run(self, first: int, end: int | None = None, *, executor: str = "a") -> list[Any]:
        """The rates of a batch of these offsets."""
        self._monkeypatch.setenv("SPARK_LOCAL_DIRS", str(self._tmp_path / executor))
        rows = self.log[first:end]
        batch = pa.RecordBatch.from_pydict(
            {
                "partition": [3] * len(rows),
                "offset": [r.offset for r in rows],
                "arrived": [r.arrived_ts for r in rows],
                "value": [r.value for r in rows],
            }
        )
        task = pickle.loads(pickle.dumps(self.task))  # as Spark sends it
        values = [v for out in task([batch]) for v in out.column("value").to_pylist()]
        return [json.loads(value) for value in values]

    def _read_log(
        self, _: Cluster, partition: int, *, from_ts: int, least_offset: int, until_offset: int
    ) -> Iterator[LogRecord]:
        assert partition == 3
        for found in self.log[least_offset:until_offset]:
            if found.arrived_ts >= from_ts:
                self.read_again.append(found.offset)
                yield found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def fill(world: World, seconds: int) -> None:
    for second in range(1, seconds + 1):
        world.write(record(second))


def speeds(rates: Any) -> dict[str, float]:
    return {number: p["bytes_s"] for number, p in rates["partitions"].items()}


def test_a_task_goes_on_with_the_ring_of_the_one_before(world: World) -> None:
    fill(world, 6)
    for offset in range(5):
        world.run(offset, offset + 1)
    (rates,) = world.run(5, 6)
    assert rates["ts"] == (START + 6) * SECOND
    assert rates["window_start"] == (START + 1) * SECOND
    assert speeds(rates) == {"0": 100.0, "1": 200.0}
    assert rates["partitions"]["0"]["lag"] == {"g": 1}
    assert rates["partitions"]["0"]["lag_s"] == {"g": 1.0}
    assert world.read_again == []


def test_a_batch_of_several_samples_gives_one_record_per_topic(world: World) -> None:
    fill(world, 6)
    world.write(record(6, "u"))
    world.write(record(3, "u"))
    found = world.run(0)
    assert [rates["topic"] for rates in found] == ["t", "u"]
    assert {rates["ts"] for rates in found} == {(START + 6) * SECOND}


def test_a_task_on_another_executor_reads_the_window_from_the_log(world: World) -> None:
    fill(world, 15)
    world.run(0, 14)
    (there,) = world.run(14, 15, executor="b")
    (here,) = world.run(14, 15)
    assert there == here
    assert world.read_again == list(range(4, 14))  # ten seconds, not the whole log


def test_a_task_that_comes_back_reads_only_what_it_has_missed(world: World) -> None:
    fill(world, 8)
    world.run(0, 4)
    world.run(4, 6, executor="b")
    world.read_again.clear()
    (rates,) = world.run(6, 8)
    assert world.read_again == [4, 5]
    assert rates["window_start"] == (START + 1) * SECOND


def test_a_batch_that_is_repeated_gives_the_same_rates(world: World) -> None:
    fill(world, 8)
    world.run(0, 6)
    assert world.run(6, 8) == world.run(6, 8)


def test_a_disk_that_is_full_costs_no_rates(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be stored is read from the log again."""

    def full(*_: object) -> None:
        raise OSError("no space left")

    fill(world, 7)
    world.run(0, 4)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(RingFiles, "save", full)
        patched.setattr(executor_rates, "_told_at", [-math.inf])
        found = [world.run(offset, offset + 1) for offset in (4, 5)]
    assert world.read_again == [4]
    assert [rates["window_start"] for (rates,) in found] == [(START + 1) * SECOND] * 2
    assert [speeds(rates) for (rates,) in found] == [{"0": 100.0, "1": 200.0}] * 2
    assert [line["event"] for line in logs] == ["ring_not_stored"], "it is not told at every batch"
    (rates,) = world.run(6)
    assert (rates["ts"], world.read_again) == ((START + 7) * SECOND, [4, 4, 5])


def test_a_log_that_was_made_anew_is_read_from_its_start(world: World) -> None:
    fill(world, 8)
    world.run(0)
    world.log.clear()
    for second in (9, 10):
        world.write(record(second))
    (rates,) = world.run(0)
    assert rates["ts"] == (START + 10) * SECOND
    world.write(record(11))
    (rates,) = world.run(2)
    assert rates["window_start"] == (START + 1) * SECOND


def test_a_topic_in_parts_is_published_when_the_last_one_has_come(world: World) -> None:
    for second in range(1, 5):
        for part in (0, 1):
            world.write(record(second, part=part, of=2))
    assert len(world.run(0)) == 1
    world.write(record(5, part=0, of=2))
    world.write(record(5, part=1, of=2))
    assert world.run(8, 9) == []
    (rates,) = world.run(9)
    assert not any(p["stale"] for p in rates["partitions"].values())
    assert len(rates["partitions"]) == 4


def test_records_that_cannot_be_read_and_other_topics_are_left_out(world: World) -> None:
    fill(world, 5)
    world.write(NONSENSE)
    world.write(record(5, "__consumer_offsets"))
    world.write(record(5, "trimtab.rates"))
    assert [rates["topic"] for rates in world.run(0)] == ["t"]
    assert world.run(5, 6) == []
