"""Why a keyed consumer refuses to run: one finding per wrong setting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.start_up_checks import (
    TopicFacts,
    data_findings,
    dead_findings,
    least_largest,
    state_findings,
    state_settings,
)


def topic(name="orders", *, partitions=8, replicas=3, **settings):
    named = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return TopicFacts(name=name, partitions=partitions, replicas=replicas, settings=named)


DATA = topic(min_insync_replicas=2)
STATE = replace(DATA, name="orders.state.pay", settings=state_settings(DATA, 3))
DEAD = topic("orders.dead", max_message_bytes=least_largest(DATA))


def changed(facts, **settings):
    named = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return replace(facts, settings={**facts.settings, **named})


def test_topics_with_the_settings_that_we_create_them_with_are_fine():
    assert list(data_findings(DATA)) == []
    assert list(state_findings(DATA, STATE)) == []
    assert list(dead_findings(DATA, DEAD)) == []


@pytest.mark.parametrize("replication", [1, 2, 3, 5])
def test_our_settings_are_fine_with_any_number_of_replicas(replication):
    data = topic(replicas=replication, min_insync_replicas=max(1, replication - 1))
    beside = replace(data, name="orders.state.pay", settings=state_settings(data, replication))

    assert list(state_findings(data, beside)) == []


def test_our_settings_let_compaction_reach_what_was_written_lately():
    assert state_settings(DATA, 3) == {
        "cleanup.policy": "compact",
        "segment.ms": "600000",
        "segment.bytes": "67108864",
        "min.cleanable.dirty.ratio": "0.2",
        "min.insync.replicas": "2",
        "max.message.bytes": "2097176",
    }


def test_the_largest_size_has_an_end():
    assert least_largest(topic(max_message_bytes=2**31 - 1)) == 2**31 - 1


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (changed(DATA, cleanup_policy="compact"), "orders is compacted"),
        (changed(DATA, cleanup_policy="compact,delete"), "cleanup.policy=compact,delete"),
        (changed(DATA, min_insync_replicas=1), "lost with one broker"),
        (topic(), "min.insync.replicas=1"),
        (topic(replicas=1, min_insync_replicas=2), "nothing can be written"),
    ],
)
def test_a_finding_of_a_data_topic(data, found):
    (finding,) = data_findings(data)

    assert found in finding


@pytest.mark.parametrize(
    ("beside", "found"),
    [
        (changed(STATE, cleanup_policy="delete"), "cleanup.policy=delete"),
        (changed(STATE, cleanup_policy="compact,delete"), "cleanup.policy=compact,delete"),
        (replace(STATE, partitions=4), "has 4 partitions and orders has 8"),
        (changed(STATE, max_message_bytes=1_048_588), "must be at least 2097176"),
        (changed(STATE, min_insync_replicas=1), "lost with one broker"),
        (changed(STATE, min_insync_replicas=4), "nothing can be written"),
    ],
)
def test_a_finding_of_a_topic_of_states(beside, found):
    (finding,) = state_findings(DATA, beside)

    assert found in finding
    assert finding.startswith("orders.state.pay")


@pytest.mark.parametrize(
    ("dead", "found"),
    [
        (changed(DEAD, cleanup_policy="compact"), "is compacted"),
        (topic("orders.dead"), "takes records of 1048588 bytes"),
    ],
)
def test_a_finding_of_the_topic_of_dead_letters(dead, found):
    (finding,) = dead_findings(DATA, dead)

    assert found in finding


def test_the_names_of_the_topics_of_a_group():
    topics = KeyedTopics("orders", "pay")

    assert topics.state == "orders.state.pay"
    assert topics.handover == "orders.handover.pay"
    assert topics.dead == "orders.dead"
    assert topics.assign == "orders.assign"
    assert topics.transactional_id(3) == "trimtab-task-pay-orders-3"
