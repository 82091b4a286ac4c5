"""What a broker says about a topic, errors included."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kafka.errors as theirs
import pytest

from trimtab.kafka import topic_facts


def broker(error: type[theirs.KafkaError], **configs: str | None) -> Callable[[Any], Any]:
    """One that answers about a single topic, whatever it is asked."""
    listed = [SimpleNamespace(name=name, value=value) for name, value in configs.items()]
    result = SimpleNamespace(error_code=error.errno, resource_name="t", configs=listed)
    return lambda request: SimpleNamespace(results=[result])


def test_settings_are_those_of_the_answer() -> None:
    ask = broker(theirs.NoError, policy="compact", follower=None)

    assert topic_facts.settings(ask, "t") == {"policy": "compact", "follower": ""}


def test_a_topic_that_this_broker_has_not_heard_of_yet_has_unknown_settings() -> None:
    assert topic_facts.settings(broker(theirs.UnknownTopicOrPartitionError), "t") is None


def test_a_topic_that_may_not_be_described_is_an_error_and_not_one_without_settings() -> None:
    with pytest.raises(theirs.TopicAuthorizationFailedError):
        topic_facts.settings(broker(theirs.TopicAuthorizationFailedError), "t")
