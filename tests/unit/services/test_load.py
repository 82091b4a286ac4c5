"""The load service: what each kind of load is, and how it is sent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import dumps, measurement_to
from trimtab.model.load import Measurement
from trimtab.services.load import (
    Load,
    LoadTarget,
    keyed_load,
    keyless_load,
    schedule_of_file,
    scheduled_load,
    send_load,
)
from trimtab.workload.kafka import load as door
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab.workload.load_summary import LoadProgress
from trimtab.workload.rate_streams import RateSchedule


def times(load: Load) -> list[float]:
    return [float(t) for block in load.blocks for t in block.times_s]


def test_a_keyed_load_lasts_as_long_as_asked_for() -> None:
    stream = KeyStream(rate_s=100.0, seed=1, distribution=ZipfMandelbrot(s=1.1, v=2.72, keys=10))

    load = keyed_load(stream, duration_s=2.0, value_bytes=10)

    assert (load.duration_s, load.partitions) == (2.0, 1)
    assert 0 < max(times(load)) < 2.0


def test_a_schedule_is_cut_at_the_time_that_is_given() -> None:
    schedule = RateSchedule.constant([10.0, 20.0], duration_s=4.0)

    whole = scheduled_load(schedule, seed=0, value_bytes=10)
    half = scheduled_load(schedule, seed=0, value_bytes=10, at_most_s=2.0)

    assert (whole.duration_s, half.duration_s) == (4.0, 2.0)
    assert (len(times(whole)), len(times(half))) == (120, 60)
    assert whole.partitions == 2


def test_a_keyless_load_needs_one_partition() -> None:
    load = keyless_load(rate_s=50.0, duration_s=1.0, seed=0, value_bytes=10)

    assert (load.duration_s, load.partitions) == (1.0, 1)


def test_a_measurement_is_not_a_schedule(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    empty = Measurement(cluster=None, from_ts=0, to_ts=1, window_s=1.0, partitions=(), rejects=0)
    file.write_text(dumps(measurement_to(empty)))

    with pytest.raises(ConfigError, match="is a measurement"):
        schedule_of_file(file, topic="t", step_s=1.0, value_bytes=10)


def test_a_load_is_sent_to_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    told = Told()

    def send(blocks: Any, **options: Any) -> str:
        asked.update(options)
        now = {"time_s": 1.5, "sent": 9, "acknowledged": 8, "failed": 1, "behind_s": 0.5}
        fields: dict[str, Any] = {name: now.get(name, 0) for name in LoadProgress._fields}
        options["on_progress"](LoadProgress(**fields))
        return "summary"

    monkeypatch.setattr(door, "ensure_topic", lambda *_, **__: 8)
    monkeypatch.setattr(door, "send", send)

    load = keyless_load(rate_s=50.0, duration_s=3.0, seed=0, value_bytes=10)
    target = LoadTarget(topic="t", linger_s=0.01, seed=5)
    found: Any = send_load(Cluster("c:9092"), load, target, stop=threading.Event(), listener=told)

    assert found == "summary"
    assert (asked["topic"], asked["seed"], asked["delivery"].linger_ms) == ("t", 5, 10.0)
    assert told.starts == ["Sending to t (8 partitions) for 3 s"]
    assert told.steps == [
        ("sending", 0, 3),
        ("9 sent, 8 acknowledged, 1 failed, 0.5 s behind", 1, 3),
    ]
