"""The planning service of keys: plans from counts and from measurements, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.plan.keys.test_situation import heavy, measurement, partition
from tests.unit.plan.keys.windows import window
from tests.unit.services.listening import Told
from trimtab.errors import ConfigError, MeasurementError
from trimtab.kafka.cluster import Cluster
from trimtab.model.key_counts import KeyCounts
from trimtab.model.murmur2 import home
from trimtab.plan.keys.trim import TRIM
from trimtab.services import plan_keys
from trimtab.services.measure import MeasuredSpan, MeasureRequest
from trimtab.services.plan_keys import KeyPlanRequest, plan_hot_keys, plan_live_keys

COUNTS = window({b"a": (900, 0), b"b": (300, 0)}, (1700, 1100))
MEASURED = measurement(
    [partition(0, 1700.0), partition(1, 1100.0)],
    [heavy(b"a", 900, 900 / 2800, 0), heavy(b"b", 300, 300 / 2800, 0)],
)


def test_counts_are_planned_without_a_word_if_all_is_well() -> None:
    told = Told()

    found = plan_hot_keys(
        KeyPlanRequest(counts=COUNTS, planner=TRIM, topic="orders"), listener=told
    )

    assert [m.key for m in found.plan.moves] == [b"b"]
    assert found.plan.scope.topics == ("orders",)
    assert found.counts is COUNTS
    assert (told.notes, told.warnings) == ([], [])


def test_a_measurement_makes_the_same_plan_and_says_what_was_assumed() -> None:
    told = Told()

    found = plan_hot_keys(KeyPlanRequest(counts=MEASURED, planner=TRIM), listener=told)

    assert found.counts.partition_totals == COUNTS.partition_totals
    assert [m.key for m in found.plan.moves] == [b"b"]
    assert told.notes == [
        "Topic orders: 2800 records in 1 s at the measured rates; all keys are at their home "
        "partitions."
    ]
    (old,) = told.warnings
    assert old.startswith("the loads were measured")


@pytest.mark.parametrize(
    ("counts", "warning"),
    [
        (window({}, (50, 10)), "no hot keys are listed: nothing can move"),
        (window({b"a": (9, 0)}, (50, 10)), "no key has 10 records in the window: nothing is hot"),
    ],
)
def test_a_window_in_which_nothing_is_hot_is_warned_of(counts: KeyCounts, warning: str) -> None:
    told = Told()

    found = plan_hot_keys(KeyPlanRequest(counts=counts, planner=TRIM), listener=told)

    assert found.plan.moves == ()
    assert told.warnings == [warning]


def test_bounds_too_wide_for_the_threshold_are_refused() -> None:
    keys = [heavy(b"a", 900, 0.3, 0, upper=2000), heavy(b"b", 10, 0.1, 1, upper=1000)]
    measured = measurement([partition(0), partition(1)], keys)

    with pytest.raises(MeasurementError, match="1000 records is not above the error bound of 1100"):
        plan_hot_keys(KeyPlanRequest(counts=measured, planner=TRIM))


def test_a_topic_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match='no load of topic "pay"'):
        plan_hot_keys(KeyPlanRequest(counts=MEASURED, planner=TRIM, topic="pay"))


def test_live_keys_are_measured_and_then_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Found:
        measurement = MEASURED
        notes = ("orders: its records cover 20 s",)

    def measured(cluster: Cluster, request: MeasureRequest, span: MeasuredSpan, **_: Any) -> Found:
        asked.append((request.topics, span.from_ts, span.to_ts))
        return Found()

    monkeypatch.setattr(plan_keys, "measure_span", measured)
    told = Told()

    found = plan_live_keys(
        TRIM,
        Cluster("here:1"),
        MeasureRequest(topics=frozenset({"orders"}), warehouse="w"),
        MeasuredSpan(from_ts=1, to_ts=2),
        start_spark=lambda: pytest.fail("Spark is the measurement's"),
        listener=told,
    )

    assert asked == [(frozenset({"orders"}), 1, 2)]
    assert [m.key for m in found.plan.moves] == [b"b"]
    assert told.warnings[0] == "orders: its records cover 20 s"
    assert home(b"b", 2) in (0, 1)
