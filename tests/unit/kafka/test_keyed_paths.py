"""Which topics are Trimtab's own beside a topic that is routed by key."""

from __future__ import annotations

import pytest

from trimtab.kafka.keyed_paths import keyed_own_topics, keyed_topics

PATH = (
    "orders.assign",
    "orders.counts",
    "orders.moves",
    "orders.state.pay",
    "orders.state.pay.eu",
    "orders.handover.pay",
)


def test_all_topics_of_a_data_path_are_own_and_what_carries_load_is_not() -> None:
    load = {"orders", "orders.in", "orders.dead", "orders.v2"}

    assert keyed_own_topics({*load, *PATH}) == set(PATH)
    assert keyed_topics({*load, *PATH}) == {"orders"}


@pytest.mark.parametrize("missing", ["orders", "orders.assign"])
def test_without_the_data_topic_or_its_routes_nothing_is_own(missing: str) -> None:
    names = {"orders", *PATH} - {missing}

    assert keyed_own_topics(names) == frozenset()


@pytest.mark.parametrize(
    "other", ["bills.state.pay", "bills.counts", "orders.state.", "orders.states.pay", "x.orders"]
)
def test_other_topics_with_such_names_are_not_own(other: str) -> None:
    assert other not in keyed_own_topics({"orders", "orders.assign", other})


def test_data_topics_may_have_such_names_themselves() -> None:
    names = {"my.state.machine", "my.state.machine.assign", "my.state.machine.state.pay"}

    assert keyed_own_topics(names) == names - {"my.state.machine"}
