"""`trimtab load` up to the door: what it would send, and what it says of how it went."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.cli import main
from trimtab.workload.due import Acks, DueRecords
from trimtab.workload.kafka import load as door
from trimtab.workload.load_summary import LoadSummary

WELL = LoadSummary(
    asked=10,
    sent=10,
    acknowledged=10,
    failed=0,
    asked_rate=5.0,
    achieved_rate=5.0,
    duration_s=2.0,
    late=0,
    late_after_ms=100.0,
    max_late_ms=0.4,
    queue_full_s=0.0,
    latency_p50_ms=1.5,
    latency_p99_ms=8.25,
)


class Door:
    """Stands in for the brokers: keeps what it was asked to send, and answers as it is told."""

    def __init__(self) -> None:
        self.answer = WELL
        self.topic: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}
        self.blocks: list[DueRecords] = []

    def ensure_topic(self, topic, **options):
        self.topic = {"topic": topic, **options}
        return 8

    def send(self, blocks, **options):
        self.sent = options
        self.blocks = list(blocks)
        return self.answer

    @property
    def times_s(self):
        return np.concatenate([block.times_s for block in self.blocks])

    @property
    def partitions(self):
        return np.concatenate([block.partitions for block in self.blocks])


@pytest.fixture
def brokers(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMTAB_BOOTSTRAP_SERVER", "broker:9092")
    monkeypatch.chdir(tmp_path)
    stand_in = Door()
    monkeypatch.setattr(door, "ensure_topic", stand_in.ensure_topic)
    monkeypatch.setattr(door, "send", stand_in.send)
    return stand_in


def load(*arguments):
    return main.run(["load", *arguments])


# ---- what is sent -------------------------------------------------------------------------------


def test_keys_are_sent_for_as_long_and_as_often_as_asked(brokers):
    code = load(
        *("keys", "--topic", "t", "--rate", "500", "--duration", "4s", "--keys", "10"),
        *("--shift", "100", "--shift-every", "2s", "--value-bytes", "30"),
    )

    assert code == 0
    assert brokers.times_s.size == pytest.approx(2000, abs=200)
    assert brokers.times_s.max() < 4.0
    keys = {int(key) for block in brokers.blocks for key in block.keys}
    assert keys == {*range(10), *range(100, 110)}
    assert {block.value_bytes for block in brokers.blocks} == {30}


def test_the_same_seed_sends_the_same_keys(brokers):
    def keys(seed):
        load("keys", "--topic", "t", "--duration", "1s", "--seed", seed)
        return [key for block in brokers.blocks for key in block.keys]

    assert keys("4") == keys("4")
    assert keys("4") != keys("5")


def test_ezzeddines_workload_can_be_scaled_stretched_and_cut(brokers):
    code = load(
        *("rates", "--topic", "t", "--schedule", "ezzeddine-1"),
        *("--stretch", "0.1", "--scale", "2", "--duration", "10s"),
    )

    assert code == 0
    assert brokers.topic["least_partitions"] == 5
    assert np.bincount(brokers.partitions).tolist() == [300] * 5
    assert brokers.sent["duration_s"] == 10.0


def test_a_landau_walk_has_as_many_partitions_and_steps_as_asked(brokers):
    code = load(
        *("rates", "--topic", "t", "--schedule", "landau", "--partitions", "3", "--delta", "0"),
        *("--capacity", "40", "--iterations", "4", "--step", "500ms"),
    )

    counts = np.bincount(brokers.partitions, minlength=3)
    assert code == 0
    assert brokers.sent["duration_s"] == 2.5
    assert brokers.topic["least_partitions"] == 3
    assert (counts <= 100).all()
    assert counts.sum() > 0


def test_a_loads_file_is_a_schedule_whose_bytes_become_records(brokers, tmp_path):
    steps = [{"loads": {"orders": {"0": 1000, "1": 500}}}, {"loads": {"orders": {"1": 2000}}}]
    (tmp_path / "loads.json").write_text(json.dumps({"v": 1, "capacity": 9000, "steps": steps}))

    code = load(
        *("rates", "--topic", "t", "--schedule", "loads.json", "--step", "2s"),
        *("--value-bytes", "100"),
    )

    assert code == 0
    assert np.bincount(brokers.partitions).tolist() == [20, 50]


def test_keyless_records_leave_the_partition_to_the_client(brokers):
    assert load("keyless", "--topic", "t", "--rate", "300", "--duration", "2s") == 0

    assert brokers.times_s.size == pytest.approx(600, abs=120)
    assert {(block.keys, block.partitions) for block in brokers.blocks} == {(None, None)}


def test_a_trace_is_sent_at_its_speed_to_its_partitions(brokers, tmp_path):
    table = {"t_s": [0.0, 4.0, 8.0], "key": ["a", "b", "c"], "partition": [0, 6, 1]}
    pq.write_table(pa.table(table), tmp_path / "trace.parquet")

    assert load("trace", "trace.parquet", "--topic", "t", "--speed", "2", "--duration", "3s") == 0

    assert brokers.topic["least_partitions"] == 7
    assert brokers.times_s.tolist() == [0.0, 2.0]
    assert brokers.partitions.tolist() == [0, 6]


def test_the_door_is_told_how_to_send(brokers):
    code = load(
        *("keyless", "--topic", "t", "--duration", "1s", "--create", "6"),
        *("--replication-factor", "2", "--acks", "1", "--linger", "50ms"),
        *("--delivery-timeout", "10s", "--late-after", "20ms", "--bootstrap-server", "other:1"),
    )

    assert code == 0
    assert (brokers.topic["create"], brokers.topic["replication_factor"]) == (6, 2)
    delivery = brokers.sent["delivery"]
    assert (delivery.acks, delivery.linger_ms, delivery.timeout_s) == (Acks.LEADER, 50.0, 10.0)
    assert brokers.sent["late_after_s"] == 0.02
    assert brokers.sent["cluster"].servers == "other:1"


def test_acknowledgements_of_all_replicas_are_the_default(brokers):
    load("keyless", "--topic", "t", "--duration", "1s")

    assert brokers.sent["delivery"].acks is Acks.ALL
    assert brokers.topic["create"] is None


# ---- what is said -------------------------------------------------------------------------------


def test_programs_get_one_json_document(brokers, capsys):
    assert load("keyless", "--topic", "t", "--duration", "1s", "--json") == 0

    said = json.loads(capsys.readouterr().out)
    assert said["v"] == 1
    assert said["topic"] == "t"
    assert (said["asked"], said["sent"], said["acknowledged"], said["failed"]) == (10, 10, 10, 0)
    assert (said["asked_rate"], said["achieved_rate"]) == (5.0, 5.0)
    assert (said["late"], said["max_late_ms"]) == (0, 0.4)
    assert (said["latency_p50_ms"], said["latency_p99_ms"]) == (1.5, 8.25)


def test_people_get_the_same_figures_as_a_table(brokers, capsys):
    load("keyless", "--topic", "t", "--duration", "1s")

    out = capsys.readouterr().out
    assert "asked" in out
    assert "10 records" in out
    assert "5.0 per second" in out
    assert "p99 8.25 ms" in out


def test_a_schedule_that_could_not_be_kept_is_said_on_stderr(brokers, capsys):
    brokers.answer = replace(WELL, late=4, max_late_ms=1300.0, queue_full_s=0.9)

    assert load("keyless", "--topic", "t", "--duration", "1s") == 0

    said = " ".join(capsys.readouterr().err.split())
    assert "warning: fell 1.3 s behind its schedule: the client's queue was full for 0.9 s" in said


def test_unacknowledged_records_are_a_finding_after_the_summary(brokers, capsys):
    brokers.answer = replace(WELL, acknowledged=7, failed=3, failures={"_MSG_TIMED_OUT": 3})

    code = load("keyless", "--topic", "t", "--duration", "1s", "--json")

    said = capsys.readouterr()
    assert code == 1
    assert json.loads(said.out)["failed"] == 3
    assert "3 of 10 records were not acknowledged (_MSG_TIMED_OUT 3)" in said.err


def test_an_interrupted_load_prints_its_summary_and_leaves_with_130(brokers, monkeypatch, capsys):
    def interrupted(blocks, *, stop, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return replace(WELL, interrupted=stop.wait(10))

    monkeypatch.setattr(door, "send", interrupted)

    assert load("keyless", "--topic", "t", "--duration", "1s", "--json") == 130

    assert json.loads(capsys.readouterr().out)["interrupted"] is True


def test_a_second_interrupt_does_not_wait(brokers, monkeypatch, capsys):
    def stubborn(blocks, *, stop, **options):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        stop.wait(10)
        return WELL

    monkeypatch.setattr(door, "send", stubborn)

    assert load("keyless", "--topic", "t", "--duration", "1s", "--record", "trace.parquet") == 130

    assert capsys.readouterr().out == ""
    assert not os.path.exists("trace.parquet")


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["keys", "--rate", "0"], "rate"),
        (["keys", "--s", "-1"], "s, v and keys must be positive"),
        (["keyless", "--rate", "-5"], "-5 is not greater than 0"),
        (["rates", "--schedule", "landau", "--capacity", "0"], "capacity"),
        (["rates", "--schedule", "landau", "--scale", "-1"], "-1 is not greater than 0"),
        (["rates", "--schedule", "no-such.json"], "no-such.json"),
        (["trace", "no-such.parquet"], "no-such.parquet"),
        (["trace", "trace.parquet", "--speed", "0"], "speed"),
        (["trace", "trace.parquet", "--speed", "-1"], "speed"),
        (["trace", "trace.parquet", "--speed", "nan"], "speed"),
        (["keys", "--duration", "soon"], "invalid duration 'soon'"),
        (["keys", "--s", "inf"], "inf is not a finite number"),
        (["keys", "--s", "nan"], "nan is not a finite number"),
        (["keys", "--acks", "2"], "'2'"),
    ],
)
def test_numbers_and_files_that_make_no_load_are_refused(brokers, arguments, complaint, capsys):
    pq.write_table(pa.table({"t_s": [0.0, 4.0]}), "trace.parquet")

    assert load(*arguments, "--topic", "t") == 2

    assert complaint in " ".join(capsys.readouterr().err.split())
    assert brokers.sent == {}


def test_a_measurement_is_no_schedule(brokers, tmp_path, capsys):
    found = {
        "v": 1,
        "kind": "measurement",
        "cluster": None,
        "from_ts": 1,
        "to_ts": 2,
        "window_s": 1,
        "rejects": 0,
        "partitions": [],
        "keys": [],
    }
    (tmp_path / "measured.json").write_text(json.dumps(found))

    assert load("rates", "--topic", "t", "--schedule", "measured.json") == 2

    assert "is a measurement" in capsys.readouterr().err
