"""Outputs that brokers would refuse."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from trimtab.apply.keys.kafka.output_checks import OutputChecks
from trimtab.apply.keys.keyed_handler import Output


class Topics:
    """An admin client that knows some topics, and counts questions."""

    def __init__(self, known):
        self.known = dict(known)
        self.asked = 0

    def topics(self, names):
        self.asked += 1
        return [None] * self.known.get(names[0], 0)

    def topic_settings(self, name):
        return {"max.message.bytes": "1000"}


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def topics():
    return Topics({"totals": 3, "orders.state.g": 3})


@pytest.fixture
def check(topics, clock):
    @contextmanager
    def opened():
        yield topics

    return OutputChecks(opened, reserved=["orders.state.g"], clock=lambda: clock[0])


def test_a_good_output_passes_and_its_topic_is_looked_up_once(check, topics):
    for partition in (None, 0, 2):
        check(Output("totals", b"x" * 700, key=b"k", partition=partition))
    assert topics.asked == 1


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (Output("missing", b""), "there is no topic missing"),
        (Output("totals", b"", partition=3), "has 3 partitions, no 3"),
        (Output("totals", b"x" * 1000), "larger than topic totals takes"),
        (Output("totals", b"", headers=(("h", b"x" * 1000),)), "larger than topic totals takes"),
        (Output("orders.state.g", b""), "written by tasks only"),
    ],
)
def test_what_brokers_would_refuse_is_an_error(check, output, why):
    with pytest.raises(ValueError, match=why):
        check(output)


def test_a_topic_that_was_missing_is_looked_up_again_soon(check, topics, clock):
    with pytest.raises(ValueError, match="there is no topic late"):
        check(Output("late", b""))
    topics.known["late"] = 1
    clock[0] = 2.0
    check(Output("late", b""))
