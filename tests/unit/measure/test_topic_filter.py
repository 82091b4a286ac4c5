"""Which topics are measured: named ones always, others if they match and are not internal."""

from __future__ import annotations

import re

import pytest

from trimtab.measure.topic_filter import TopicFilter


@pytest.mark.parametrize(
    ("topics", "pattern", "wanted", "unwanted"),
    [
        ((), None, ["orders"], ["__consumer_offsets", "trimtab.rates"]),
        (("orders",), None, ["orders"], ["payments"]),
        (("trimtab.rates",), None, ["trimtab.rates"], ["orders"]),
        ((), "o.*", ["orders"], ["payments", "__o", "trimtab.o"]),
        (("payments",), "o.*", ["orders", "payments"], ["carts"]),
        ((), "o", [], ["orders"]),  # the whole name must match
    ],
)
def test_a_topic_is_wanted_by_name_or_pattern(
    topics: tuple[str, ...], pattern: str | None, wanted: list[str], unwanted: list[str]
) -> None:
    found = TopicFilter(
        topics=frozenset(topics), pattern=None if pattern is None else re.compile(pattern)
    )
    assert [t for t in (*wanted, *unwanted) if found.wants(t)] == wanted


def test_own_topics_without_the_prefix_are_wanted_only_by_name() -> None:
    own = frozenset({"orders.assign"})

    assert not TopicFilter(own=own).wants("orders.assign")
    assert not TopicFilter(pattern=re.compile("orders.*"), own=own).wants("orders.assign")
    assert TopicFilter(own=own).wants("orders.in")
    assert TopicFilter(topics=own, own=own).wants("orders.assign")
