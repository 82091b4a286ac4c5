"""Reads settings, min.insync.replicas and eligible leader replicas of many topics at once.

Promise  One request for up to 500 topics. Topics that do not exist are left out; missing
         authorization is an error. Clusters without eligible leader replicas report none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import kafka.errors as theirs
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, DescribeTopicPartitionsRequest

from trimtab.model.cluster import BrokerId, TopicPartition

Ask = Callable[[Callable[[], Any]], Any]
"""Sends a request to any broker."""

MIN_INSYNC = "min.insync.replicas"
_PER_REQUEST = 500


def settings(ask: Ask, name: str) -> dict[str, str] | None:
    """All settings of a topic, defaults included; None if the broker does not know the topic.

    kafka-python's own `describe_configs` ignores errors: it returns no settings for a topic that
    this broker does not know yet, or that the user may not describe.
    """
    resources = [(ConfigResourceType.TOPIC, name, None)]
    [result] = ask(partial(DescribeConfigsRequest, resources=resources)).results
    if not _known(result.error_code):
        return None
    return {config.name: config.value or "" for config in result.configs}


def min_insync(ask: Ask, names: Collection[str]) -> dict[str, int]:
    """min.insync.replicas by topic."""
    found = {}
    for part in _parts(names):
        resources = [(ConfigResourceType.TOPIC, name, [MIN_INSYNC]) for name in part]
        answer = ask(partial(DescribeConfigsRequest, resources=resources))
        for result in answer.results:
            if _known(result.error_code):
                for config in result.configs:
                    if config.name == MIN_INSYNC and config.value is not None:
                        found[result.resource_name] = int(config.value)
    return found


def eligible(ask: Ask, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Eligible leader replicas of the partitions that have any."""
    found: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    topic = DescribeTopicPartitionsRequest.TopicRequest
    for part in _parts(names):
        cursor = None
        while True:
            topics = [topic(name=name) for name in part]
            request = partial(DescribeTopicPartitionsRequest, topics=topics, cursor=cursor)
            try:
                answer = ask(request)
            except theirs.IncompatibleBrokerVersion:  # before Kafka 3.7 there are none
                return {}
            for one in answer.topics:
                if _known(one.error_code):
                    for p in one.partitions:
                        if p.eligible_leader_replicas:
                            ids = tuple(map(BrokerId, p.eligible_leader_replicas))
                            found[TopicPartition(one.name, p.partition_index)] = ids
            cursor = answer.next_cursor
            if cursor is None:
                break
    return found


def _parts(names: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(set(names))
    return (ordered[at : at + _PER_REQUEST] for at in range(0, len(ordered), _PER_REQUEST))


def _known(code: int) -> bool:
    """Whether a topic exists; other errors are raised."""
    kind = theirs.for_code(code)
    if kind is theirs.UnknownTopicOrPartitionError:
        return False
    if kind is not theirs.NoError:
        raise kind()
    return True
