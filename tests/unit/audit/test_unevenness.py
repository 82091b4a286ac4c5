"""Uneven and stacked topics, idle brokers, drift, replicas behind."""

from __future__ import annotations

import pytest

from trimtab.audit.groups import max_groups
from trimtab.audit.layout import layout_of
from trimtab.audit.unevenness import (
    Level,
    below_min_insync,
    drift,
    group_counts,
    leaders_per_broker,
    out_of_sync,
    seem_down,
    stacked_topics,
    uneven_topics,
)
from trimtab.testing.placements import led, placement


@pytest.mark.parametrize(
    ("counts", "level"),
    [
        ({1: 2, 2: 1}, Level.NOTE),  # three on two: one more is the best there is
        ({1: 3, 2: 1}, Level.WARNING),  # four on two could be two each
        ({1: 3, 2: 1, 3: 1}, Level.WARNING),  # five on three could be 2, 2, 1
        ({1: 2, 2: 2, 3: 1}, Level.NOTE),
    ],
)
def test_only_what_could_be_more_even_is_a_warning(counts: dict[int, int], level: Level) -> None:
    (found,) = uneven_topics(layout_of(led({"A": counts})))

    assert found.level is level


def test_a_topic_is_stacked_while_another_broker_leads_none_of_it() -> None:
    layout = layout_of(led({"A": {1: 2, 2: 2}, "B": {1: 1, 2: 1}, "C": {1: 1, 2: 1, 3: 2}}))

    assert stacked_topics(layout, brokers=3) == ("A",)
    assert stacked_topics(layout, brokers=2) == ()


def test_the_counts_of_a_group_are_those_of_its_topics_together() -> None:
    layout = layout_of(led({"A": {1: 1, 2: 2}, "B": {1: 3, 2: 1}, "C": {3: 1}}))

    assert group_counts(layout, max_groups(layout)) == ((4, 3), (1,))


def test_a_broker_without_leaders_is_counted_as_zero() -> None:
    assert leaders_per_broker(layout_of(placement({"A": [[2]]}, brokers=[1]))) == {1: 0, 2: 1}


def test_drift_is_by_the_broker_that_should_lead() -> None:
    layout = layout_of(placement({"A": [[1, 2], [1, 2], [2, 1], []]}, leaders={"A": [2, 1, 2, -1]}))

    found = drift(layout)

    assert (found.away, found.of, found.share) == (1, 3, 1 / 3)
    assert {b: found.share_of(b) for b in layout.brokers} == {1: 0.5, 2: 0.0}


def test_replicas_out_of_sync_are_counted_and_brokers_without_any_in_sync_are_named() -> None:
    layout = layout_of(placement({"A": [[1, 2, 3], [2, 3, 1], [1, 2]]}, out_of_sync=[3]))

    assert out_of_sync(layout) == (2, (3,))
    assert below_min_insync(layout, {"A": 2}) == 0
    assert below_min_insync(layout, {"A": 3}) == 3


def test_an_offline_partition_is_not_below_min_insync_too() -> None:
    layout = layout_of(placement({"A": [[], [1]]}))

    assert below_min_insync(layout, {"A": 1}) == 0


@pytest.mark.parametrize(
    ("listed", "leaders", "down"),
    [
        ([[1, 2], [2, 1]], [1, 1], set()),
        ([[1, 3], [2, 1]], [1, 2], {3}),  # 3 is out of sync everywhere
        ([[1, 3], [2, 1]], [1, -1], {2, 3}),  # 2 is the last in sync, and does not lead
        ([[1, 3], [2, 1]], [3, 2], set()),  # 3 leads, whatever the list says
        ([[3], [3]], [-1, -1], {3}),
    ],
)
def test_a_broker_that_holds_replicas_and_is_in_sync_nowhere_seems_to_be_down(
    listed: list[list[int]], leaders: list[int], down: set[int]
) -> None:
    snapshot = placement({"A": listed}, brokers=[9], out_of_sync=[3], leaders={"A": leaders})

    assert seem_down(snapshot) == down
