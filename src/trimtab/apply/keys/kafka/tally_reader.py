"""Reads `.state` and `.handover` of a group into tallies, all partitions at once.

Promise  Only what was committed is counted; nothing is committed and no group is joined.
Cost     All records since the last compaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.kafka.state_reader import state_consumer
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.state_tally import HandoverTally, StateTally
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors

_AT_ONCE = 10_000
_WAIT_S = 0.2
_CLIENT = "trimtab-status"


@dataclass(slots=True)
class GroupTallies:
    """What the changelogs and the hand-overs say, by partition."""

    states: dict[int, StateTally] = field(default_factory=dict)
    handovers: dict[int, HandoverTally] = field(default_factory=dict)


def read_tallies(
    cluster: Cluster,
    topics: KeyedTopics,
    partitions: Collection[int],
    *,
    on_records: Callable[[int], None] = lambda _records: None,
) -> GroupTallies:
    """Reads both topics up to their ends; `on_records` is called with the records read so far."""
    found = GroupTallies(
        states={number: StateTally() for number in partitions},
        handovers={number: HandoverTally() for number in partitions},
    )
    by_name: dict[tuple[str, int], StateTally | HandoverTally] = {
        **{(topics.state, number): tally for number, tally in found.states.items()},
        **{(topics.handover, number): tally for number, tally in found.handovers.items()},
    }
    unread, records = set(by_name), 0
    moved_at = time.monotonic()
    with (
        kafka_errors(f"reading {topics.state} and {topics.handover}"),
        state_consumer(cluster, client_id=_CLIENT, group=_CLIENT) as consumer,
    ):
        consumer.assign([TheirPartition(*name, OFFSET_BEGINNING) for name in sorted(by_name)])
        while unread:
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            if messages:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > cluster.timeouts.request_s:
                raise BrokerUnavailable(
                    f"Topics {topics.state} and {topics.handover} could not be read to their ends.",
                    hint="Check that their brokers run.",
                )
            for message in messages:
                name = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    records += 1
                    _add(by_name[name], name, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(name)
                elif not is_retriable(KafkaException(error)):
                    raise KafkaException(error)
            on_records(records)
    return found


def _add(tally: StateTally | HandoverTally, name: tuple[str, int], message: object) -> None:
    key = message.key()  # type: ignore[attr-defined]
    if key is None:
        return
    try:
        tally.add(key, message.value(), message.timestamp()[1])  # type: ignore[attr-defined]
    except BrokenState as error:
        raise ApplyError(
            f"{name[0]}-{name[1]} cannot be read: {error}.",
            hint="Was it written by a newer version, or by something else?",
        ) from error
