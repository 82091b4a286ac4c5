"""Loads of brokers: unknown rates, brokers that are down, what doubling a topic does."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from trimtab.audit.groups import max_groups
from trimtab.audit.layout import layout_of
from trimtab.audit.loads import BrokerLoads, TopicLoad, broker_loads, topic_rates
from trimtab.model.cluster import ClusterSnapshot, TopicPartition
from trimtab.model.load import Unit
from trimtab.testing.placements import led, placement


def loads(
    snapshot: ClusterSnapshot, rates: TopicLoad | None = None, down: tuple[int, ...] = ()
) -> BrokerLoads:
    layout = layout_of(snapshot)
    return broker_loads(layout, max_groups(layout), rates, down=down)


def test_a_topic_measured_in_part_is_unknown_and_named() -> None:
    snapshot = placement({"A": [[1], [2]], "B": [[1], []], "C": [[2]]})
    measured = {
        TopicPartition("A", 0): 5.0,
        TopicPartition("B", 0): 7.0,  # its other partition has no leader to be measured on
        TopicPartition("gone", 0): 9.0,
    }

    rates = topic_rates(snapshot, measured, Unit.BYTES_S)
    found = loads(snapshot, rates)

    assert (rates.by_topic["B"], rates.in_part) == (7.0, ("A",))
    assert (found.unmeasured, found.in_part) == (("A", "C"), ("A",))
    assert found.default.by_broker == {1: 7.0, 2: 0.0}
    assert found.measured is not None
    assert found.measured.by_broker == {1: 12.0, 2: 0.0}


def test_rates_are_the_same_to_the_last_digit_in_any_order_of_the_snapshot() -> None:
    snapshot = placement({"A": [[1], [2], [3], [1]]})
    measured = {TopicPartition("A", n): rate for n, rate in enumerate((0.1, 0.2, 0.3, 0.7))}

    found = {
        topic_rates(replace(snapshot, partitions=order), measured, Unit.BYTES_S).by_topic["A"]
        for order in permutations(snapshot.partitions)
    }

    assert len(found) == 1


def test_the_mean_is_over_all_brokers_that_are_up() -> None:
    snapshot = placement({"A": [[1], [2]]}, brokers=[3, 4])

    assert loads(snapshot).default.peak_to_mean == 2.0
    assert loads(snapshot, down=(3, 4)).default.peak_to_mean == 1.0


def test_without_rates_topics_are_ranked_by_what_doubling_them_would_do() -> None:
    # Broker 2 has the most already; doubling B, which is there alone, is worst.
    found = loads(led({"A": {1: 1, 2: 1}, "B": {2: 1}, "C": {3: 1}}))

    assert found.unit is None
    assert [(d.topic, d.broker) for d in found.doubled] == [("B", 2), ("A", 2), ("C", 3)]
    assert found.doubled[0].peak_to_mean == pytest.approx(2.5 / (4 / 3))
    assert loads(led({"A": {1: 1}}), TopicLoad(by_topic={"A": 1.0})).doubled == ()


def test_no_load_at_all_is_even() -> None:
    found = loads(led({"A": {1: 1, 2: 1}}), TopicLoad(by_topic={"A": 0.0}))

    assert (found.default.peak_to_mean, found.node.peak_to_mean) == (1.0, 1.0)
    assert (found.least.peak, found.least.peak_to_mean) == (0.0, 1.0)


def test_idle_brokers_make_even_the_best_split_uneven() -> None:
    found = loads(placement({"A": [[1], [2]]}, brokers=[3, 4]))

    assert (found.least.peak_to_mean, found.least.brokers) == (2.0, (1, 2))
