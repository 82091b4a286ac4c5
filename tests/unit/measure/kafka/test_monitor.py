"""The monitor, against a cluster in memory."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from trimtab.errors import BrokerUnavailable
from trimtab.measure.kafka.monitor import Monitor, MonitorScope, in_background, next_sample_time
from trimtab.measure.sample_interval import SampleInterval
from trimtab.model.cluster import NO_LEADER, BrokerId, TopicPartition
from trimtab.testing.fakes import FakeAdmin, FakePublisher


def monitor(admin: FakeAdmin, publisher: FakePublisher, interest: MonitorScope) -> Monitor:
    return Monitor(
        admin,
        publisher,
        interest,
        topic="t",
        interval=SampleInterval(period_s=0.001),
        clock=lambda: 42,
        new_id=lambda: "5c",
    )


def published(publisher: FakePublisher) -> dict[str, dict[str, Any]]:
    return {key.decode(): json.loads(value) for key, value in publisher.records}


def test_a_sample_is_one_telemetry_record_per_topic(world: FakeAdmin) -> None:
    publisher = FakePublisher()

    monitor(world, publisher, MonitorScope()).step()

    assert published(publisher) == {
        "orders": {
            "v": 2,
            "sample_id": "5c",
            "ts": 42,
            "cluster": "fake",
            "topic": "orders",
            "partition": [0, 1],
            "leader": [1, 2],
            "replicas": [[1, 2], [2, 1]],
            "isr": [[1, 2], [2, 1]],
            "log_bytes": [100, 200],
            "begin_offset": [0, 0],
            "end_offset": [10, 20],
            "committed": {"g": [7, None]},
        }
    }


def test_a_named_group_that_committed_nothing_is_unknown_not_absent(
    world: FakeAdmin,
) -> None:
    publisher = FakePublisher()

    monitor(world, publisher, MonitorScope(groups=("g", "new"))).step()

    record = published(publisher)["orders"]
    assert record["committed"] == {"g": [7, None], "new": [None, None]}
    assert record["named"] == ["g", "new"]


def test_the_time_of_a_sample_is_when_the_sizes_were_asked_for(world: FakeAdmin) -> None:
    publisher, now = FakePublisher(), [0]

    def later() -> None:
        now[0] += 10

    world.before = dict.fromkeys(("topics", "committed", "log_dirs", "offsets"), later)
    Monitor(
        world,
        publisher,
        MonitorScope(),
        topic="t",
        interval=SampleInterval(),
        clock=lambda: now[0],
    ).step()

    assert published(publisher)["orders"]["ts"] == 20


def test_what_a_silent_broker_leads_is_null_and_the_rest_is_there(world: FakeAdmin) -> None:
    publisher = FakePublisher()
    world.silent = {BrokerId(2)}

    monitor(world, publisher, MonitorScope()).step()

    record = published(publisher)["orders"]
    assert (record["log_bytes"], record["end_offset"]) == ([100, None], [10, None])


def test_an_offline_partition_is_published_with_leader_minus_one(world: FakeAdmin) -> None:
    publisher = FakePublisher()
    name = TopicPartition("orders", 0)
    world.partitions[name] = replace(world.partitions[name], leader=NO_LEADER)

    monitor(world, publisher, MonitorScope()).step()

    record = published(publisher)["orders"]
    assert (record["leader"], record["log_bytes"]) == ([-1, 2], [None, 200])


@pytest.mark.parametrize(
    ("interest", "wanted"),
    [
        (MonitorScope(), {"orders", "pay"}),
        (MonitorScope(topics=frozenset({"pay"})), {"pay"}),
        (MonitorScope(pattern=re.compile("or.*")), {"orders"}),
        (MonitorScope(pattern=re.compile("or")), set()),
        (MonitorScope(topics=frozenset({"pay"}), pattern=re.compile("or.*")), {"pay", "orders"}),
        (MonitorScope(pattern=re.compile(".*")), {"orders", "pay"}),
        (MonitorScope(topics=frozenset({"__x", "trimtab.rates"})), {"__x", "trimtab.rates"}),
    ],
)
def test_topics_of_interest_are_named_or_matched_whole(
    interest: MonitorScope, wanted: set[str]
) -> None:
    topics = {"orders", "pay", "__x", "trimtab.rates"}

    assert interest.wanted(topics) == wanted


def test_topics_beside_a_keyed_topic_are_sampled_only_if_named() -> None:
    topics = {"orders", "orders.in", "orders.assign", "orders.state.pay", "bills.state.pay"}

    assert MonitorScope().wanted(topics) == {"orders", "orders.in", "bills.state.pay"}
    named = MonitorScope(topics=frozenset({"orders.state.pay"}))
    assert named.wanted(topics) == {"orders.state.pay"}


def test_an_outage_skips_samples_and_the_monitor_goes_on(world: FakeAdmin) -> None:
    """Down during the second sample only: the first and third are published."""
    stop = threading.Event()
    beats = []

    def beat() -> None:
        beats.append(1)
        world.down = len(beats) == 2
        if len(beats) == 3:
            stop.set()

    world.before["topics"] = beat
    report = monitor(world, FakePublisher(), MonitorScope()).run(stop)

    assert (report.samples, report.skipped) == (2, 1)
    assert report.published == 2


def test_a_topic_deleted_mid_sample_is_null_once_and_gone_afterwards(world: FakeAdmin) -> None:
    publisher = FakePublisher()
    world.before["log_dirs"] = lambda: world.delete_topic("orders")
    watching = monitor(world, publisher, MonitorScope())

    watching.step()
    watching.step()

    assert [r["log_bytes"] for r in published(publisher).values()] == [[None, None]]
    assert len(publisher.records) == 1


def test_a_stopped_monitor_has_delivered_what_it_took(world: FakeAdmin) -> None:
    enough = threading.Event()
    publisher = FakePublisher(on_publish=enough.set)

    with in_background(monitor(world, publisher, MonitorScope())) as running:
        assert enough.wait(10)

    assert running.report.published == len(publisher.records) == running.report.samples


def test_a_fault_of_our_own_in_the_background_comes_to_light(world: FakeAdmin) -> None:
    seen = threading.Event()

    def fault() -> None:
        seen.set()
        raise ZeroDivisionError

    world.before["topics"] = fault
    with (
        pytest.raises(ZeroDivisionError),
        in_background(monitor(world, FakePublisher(), MonitorScope())),
    ):
        assert seen.wait(10)


def test_a_run_for_a_while_ends_by_itself(world: FakeAdmin) -> None:
    report = monitor(world, FakePublisher(), MonitorScope()).run(threading.Event(), for_s=0.01)

    assert report.samples >= 1


@pytest.mark.parametrize(
    ("now", "beat"), [(100.0, 101.0), (100.99, 101.0), (101.0, 102.0), (105.5, 106.0)]
)
def test_the_beat_neither_drifts_nor_catches_up(now: float, beat: float) -> None:
    assert next_sample_time(100.0, 1.0, now) == beat


def test_a_sample_taken_by_hand_says_when_nobody_answers(world: FakeAdmin) -> None:
    world.down = True

    with pytest.raises(BrokerUnavailable):
        monitor(world, FakePublisher(), MonitorScope()).sample()


def watched(world: FakeAdmin, took_s: float, *, window_s: float | None = None) -> Monitor:
    """A monitor whose samples take `took_s` each, by its own stopwatch."""
    now = [0.0]

    def later() -> None:
        now[0] += took_s

    world.before["topics"] = later
    return Monitor(
        world,
        FakePublisher(),
        MonitorScope(),
        topic="t",
        interval=SampleInterval(window_s=window_s),
        stopwatch=lambda: now[0],
    )


def asked_offsets(world: FakeAdmin) -> list[str]:
    """Which offsets are asked for: `ends`, or `offsets` with the first ones too."""
    asked: list[str] = []
    for kind in ("offsets", "ends"):
        world.before[kind] = partial(asked.append, kind)
    return asked


def test_first_offsets_are_asked_for_once_in_ten_seconds(world: FakeAdmin) -> None:
    asked = asked_offsets(world)
    watching = watched(world, 4.0)

    samples = [watching.sample() for _ in range(5)]

    assert asked == ["offsets", "ends", "ends", "offsets", "ends"]  # at 4, 8, 12, 16, 20 s
    assert all(s.partitions == samples[0].partitions for s in samples)


def test_first_offsets_of_new_partitions_are_asked_for_at_once(world: FakeAdmin) -> None:
    asked = asked_offsets(world)
    watching = watched(world, 0.001)
    watching.sample()

    world.add_partitions("orders", 3)
    watching.sample()
    watching.sample()

    assert asked == ["offsets", "offsets", "ends"]


def test_first_offsets_of_a_topic_that_was_created_again_are_asked_for_again(
    world: FakeAdmin,
) -> None:
    asked = asked_offsets(world)
    watching = watched(world, 0.001)
    name = TopicPartition("orders", 1)
    world.partitions[name] = replace(world.partitions[name], begin_offset=15, end_offset=20)
    watching.sample()

    world.partitions[name] = replace(world.partitions[name], begin_offset=0, end_offset=2)
    again = watching.sample()

    assert asked == ["offsets", "ends", "offsets"]
    assert [(p.begin_offset, p.end_offset) for p in again.partitions][1] == (0, 2)


def test_slow_samples_are_taken_less_often_and_the_log_says_so_once(world: FakeAdmin) -> None:
    slow = watched(world, 4.5, window_s=30.0)

    with capture_logs() as told:
        for _ in range(9):
            slow.step()

    changes = [line for line in told if line["event"] == "sample_interval_changed"]
    assert [(line["from_s"], line["to_s"]) for line in changes] == [(1.0, 5.0)]
    assert "samples take longer" in changes[0]["why"]
    assert "hint" not in changes[0]
    assert slow.interval_s == 5.0
    assert REGISTRY.get_sample_value("trimtab_monitor_interval_seconds") == 5.0


def test_an_interval_that_rates_cannot_bear_is_named_with_the_window_it_needs(
    world: FakeAdmin,
) -> None:
    slow = watched(world, 4.5, window_s=12.0)

    with capture_logs() as told:
        for _ in range(3):
            slow.step()

    [hint] = [line["hint"] for line in told if line["event"] == "sample_interval_changed"]
    assert "Rates over 12 s are incomplete" in hint
    assert "measure.window_s to 15." in hint


def test_samples_that_failed_do_not_change_the_interval(world: FakeAdmin) -> None:
    world.down = True
    failing = watched(world, 9.0)

    for _ in range(5):
        failing.step()

    assert failing.interval_s == 1.0
