"""The demo on real brokers, shortened; and interrupted as a person would do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.streams import wait_until
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import BrokerProcessState, LocalCluster
from trimtab.model.codec import read_loads, read_snapshot
from trimtab.model.load import Unit
from trimtab.model.murmur2 import home
from trimtab.model.plan_codec import plan_id, read_plan
from trimtab.report.tables import limits_of
from trimtab.settings import load_settings
from trimtab_lab.demo.outcome import DemoOutcome, write
from trimtab_lab.demo.script import DemoEnvironment, Script
from trimtab_lab.demo.steps import run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Script(
    topic="demo-orders",
    group="demo-billing",
    duration_s=12.0,
    rate_s=1000.0,
    partitions=8,
    loop_s=10.0,
)


class _Listener:
    """Remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.moved = 0

    def step(self, number: int, title: str) -> None:
        self.steps.append(number)

    def say(self, line: str) -> None: ...

    def warn(self, line: str) -> None: ...

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        def move(done: int, of: int, words: str) -> None:
            self.moved += 1

        yield move


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def listener() -> _Listener:
    return _Listener()


@pytest.fixture(scope="module")
def played(
    cluster: LocalCluster, spark: SparkSession, folder: Path, listener: _Listener
) -> DemoOutcome:
    scene = DemoEnvironment(
        cluster=Cluster(cluster.bootstrap_servers),
        spark=lambda: spark,
        settings=load_settings(),
        tables=folder / "tables",
    )
    return run_steps(SCRIPT, scene, listener)


def test_every_partition_has_a_rate_and_every_group_a_lag(played: DemoOutcome) -> None:
    found = played.measurement.partitions

    assert [p.partition for p in found] == list(range(SCRIPT.partitions))
    assert all(p.complete and p.records_s is not None and p.bytes_s is not None for p in found)
    assert all(p.lag["demo-billing"] is not None for p in found)
    assert {group for group, _ in played.states} == {"demo-billing"}
    assert played.measurement.rejects == 0


def test_the_heaviest_key_is_the_one_that_was_sent_most(played: DemoOutcome) -> None:
    heaviest = played.measurement.keys[0]

    assert heaviest.key == b"0"
    assert heaviest.lower == heaviest.upper
    assert heaviest.partition_home == home(b"0", SCRIPT.partitions)


def test_the_plan_is_for_the_live_group_as_kafka_dealt_it(played: DemoOutcome) -> None:
    before = played.plan.previous

    # range: the first two partitions to the first consumer, and so on
    assert {p.partition: c for p, c in before.items()} == {n: n // 2 for n in range(8)}
    assert played.plan.scope.group == "demo-billing"


def test_the_capacity_is_what_the_consumers_managed(played: DemoOutcome) -> None:
    limits = limits_of(played.plan)

    assert limits.unit is Unit.RECORDS_S
    assert 0 < limits.capacity <= SCRIPT.pace_s


def test_the_plan_leaves_no_consumer_overloaded_that_need_not_be(played: DemoOutcome) -> None:
    capacity, oversize = (
        limits_of(played.plan).capacity,
        {u.partition for u in played.plan.unplaced},
    )

    for consumer, load in played.plan.assignment.loads(played.loads).items():
        owned = {p.partition for p, c in played.plan.assignment.items() if c == consumer}
        assert load <= capacity or owned <= oversize


def test_the_plan_for_hot_keys_levels_the_partitions_that_were_measured(
    played: DemoOutcome,
) -> None:
    planned = played.hot_keys
    (topic,) = planned.plan.scope.topics
    measured = {p.partition: p.records_s for p in played.measurement.partitions if p.topic == topic}

    shares = [total / planned.counts.records for total in planned.counts.partition_totals]
    whole = sum(rate or 0.0 for rate in measured.values())
    assert shares == pytest.approx(
        [(measured[n] or 0.0) / whole for n in sorted(measured)], abs=0.01
    )
    assert planned.plan.moves
    assert planned.plan.after.imbalance < planned.plan.before.imbalance
    assert planned.plan.after.imbalance >= planned.plan.bound - 1e-9


def test_the_lines_are_whole_windows_inside_the_span(played: DemoOutcome) -> None:
    found, half = played.measurement, SCRIPT.line_s * 1e6 / 2

    assert played.history.keys() <= {p.name for p in found.partitions}
    points = [point for line in played.history.values() for point in line]
    assert points
    assert all(found.from_ts <= p.ts - half and p.ts + half <= found.to_ts for p in points)


def test_the_loop_ran_a_group_and_lost_nothing(played: DemoOutcome) -> None:
    found = played.loop.figures

    assert found["records"] > 0
    assert found["most_replicas"] >= 1
    assert (found["order_findings"], found["unexplained"]) == (0, 0)


def test_what_is_written_can_be_read_again(played: DemoOutcome, folder: Path) -> None:
    files = write(played, folder)

    assert read_loads(files.measurement)[0] == played.measurement
    assert read_plan(files.plan)[0] == played.plan
    assert read_plan(files.keys_plan)[0] == played.hot_keys.plan
    assert plan_id(played.hot_keys.plan) in files.report.read_text(encoding="utf-8")
    assert plan_id(played.plan) in files.report.read_text(encoding="utf-8")
    assert read_snapshot(files.snapshot)[0] == played.placed
    assert "<svg" in files.audit.read_text(encoding="utf-8")


def test_the_cluster_was_audited_with_the_rates_that_were_measured(played: DemoOutcome) -> None:
    assert played.audit.partitions == len(played.placed.partitions) > 0
    assert played.audit.loads.unit is Unit.BYTES_S
    assert len(played.audit.faults) == len(played.placed.brokers)


def test_all_steps_were_announced_and_the_bars_moved(
    played: DemoOutcome, listener: _Listener
) -> None:
    assert listener.steps == [2, 3, 4, 5, 6]
    assert listener.moved > 0


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    settings = {"TRIMTAB_HOME": str(tmp_path), "TRIMTAB_CACHE": str(load_settings().cache)}
    said = tmp_path / "stderr"
    with said.open("w") as stderr:
        demo = subprocess.Popen(
            [Path(sys.executable).with_name("trimtab"), "demo"],
            env=os.environ | settings,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        _wait_for(demo, said, "[2/7]")
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground

        assert demo.wait(timeout=90) == 130
    finally:
        demo.kill()
        demo.wait()
        status = LocalCluster("demo", home=tmp_path).status()
        LocalCluster("demo", home=tmp_path).down()

    assert status.controller is BrokerProcessState.ABSENT
    assert status.brokers == ()
    assert not _session_members(demo.pid)


def _wait_for(demo: subprocess.Popen[bytes], said: Path, text: str) -> None:
    wait_until(lambda: text in said.read_text() or demo.poll() is not None, within_s=120)
    assert demo.poll() is None, said.read_text()


def _session_members(session: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-eo", "sid=,pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if line.split()[0] == str(session)]
