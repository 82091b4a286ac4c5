"""What a keyed consumer shows to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from trimtab.apply.keys.key_entry import DropReason
from trimtab.apply.keys.keyed_metrics import KeyedMetrics
from trimtab.apply.keys.task_round import Adoption, TaskCounts
from trimtab.model.cluster import TopicPartition

P0 = TopicPartition("orders", 0)


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> Iterator[KeyedMetrics]:
    """Metrics of a group of this test's own: counters live as long as the process."""
    found = KeyedMetrics(request.node.name)
    yield found
    found.hide()


def value(group: str, name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"trimtab_consume_{name}", {"group": group, **labels})


def test_gauges_are_those_of_the_running_tasks_and_vanish_with_them(
    shown: KeyedMetrics, request: pytest.FixtureRequest
) -> None:
    counts = TaskCounts(owned=5, waiting=2, parked_records=3, parked_bytes=70)
    tasks: dict[TopicPartition, Any] = {P0: SimpleNamespace(counts=counts, oldest_wait_s=1.5)}
    shown.show(lambda: tasks)
    place = {"topic": "orders", "partition": "0"}
    names = ("owned_keys", "waiting_keys", "parked_records", "parked_bytes", "oldest_wait_seconds")

    def found() -> list[float | None]:
        return [value(request.node.name, name, **place) for name in names]

    assert found() == [5, 2, 3, 70, 1.5]
    tasks.clear()
    assert found() == [None] * 5


def test_counters_rise_by_what_a_transaction_has_added(
    shown: KeyedMetrics, request: pytest.FixtureRequest
) -> None:
    counts = TaskCounts(handovers_out=2, handover_bytes_out=30, dead_letters=1)
    counts.dropped[DropReason.REPLAYED] = 4
    shown.written(P0, counts)
    counts.handovers_out, counts.lost_states, counts.handovers_in = 3, 1, 1
    counts.handover_bytes_in = 9
    counts.dropped[DropReason.REPLAYED] = 6
    counts.dropped[DropReason.FENCED] = 1
    shown.written(P0, counts)
    shown.written(P0, counts)

    group, topic = request.node.name, {"topic": "orders"}
    assert value(group, "states_sent_total", **topic) == 3
    assert value(group, "sent_bytes_total", **topic) == 30
    assert value(group, "states_adopted_total", **topic) == 1
    assert value(group, "adopted_bytes_total", **topic) == 9
    assert value(group, "lost_states_total", **topic) == 1
    assert value(group, "dead_letters_total", **topic) == 1
    assert value(group, "dropped_records_total", **topic, reason="replayed") == 6
    assert value(group, "dropped_records_total", **topic, reason="fenced") == 1


def test_a_task_that_was_begun_again_counts_from_0(
    shown: KeyedMetrics, request: pytest.FixtureRequest
) -> None:
    shown.written(P0, TaskCounts(handovers_out=5))
    shown.written(P0, TaskCounts(handovers_out=2))

    assert value(request.node.name, "states_sent_total", topic="orders") == 7


def test_times_of_adoptions_and_restores_are_kept(
    shown: KeyedMetrics, request: pytest.FixtureRequest
) -> None:
    shown.adopted(P0, Adoption(10, travel_s=0.2, blocked_s=0.6))
    shown.adopted(P0, Adoption(0, travel_s=0.0, blocked_s=30.0, lost=True))
    shown.restored(P0, 1000, 2.0)

    group, topic = request.node.name, {"topic": "orders"}
    assert value(group, "handover_travel_seconds_count", **topic) == 1
    assert value(group, "handover_travel_seconds_sum", **topic) == 0.2
    assert value(group, "handover_blocked_seconds_sum", **topic) == 30.6
    assert value(group, "handover_blocked_seconds_bucket", **topic, le="1.0") == 1
    assert value(group, "restore_seconds_sum", **topic) == 2.0
    assert value(group, "restored_records_total", **topic) == 1000
