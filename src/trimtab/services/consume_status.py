"""Tells how a keyed group is doing, from its topics and offsets; no consumer needs to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.errors import ConfigError, MeasurementError
from trimtab.evaluate.keyed_status import (
    KeyedPartition,
    KeyedStatus,
    ReadPosition,
    confirmed,
    holding_up,
    keyed_status,
    losses,
)
from trimtab.model.cluster import TopicPartition
from trimtab.observe.clock import wall_clock_us
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.apply.keys.kafka.tally_reader import GroupTallies
    from trimtab.kafka.admin import Admin
    from trimtab.kafka.cluster import Cluster

_READING = "Reading states and hand-overs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatusRequest:
    """Which group and topic; `watch_s` is how long the offsets that others wait for are watched."""

    group: str
    topic: str
    watch_s: float = 2.0


def consume_status(
    cluster: Cluster,
    request: ConsumeStatusRequest,
    *,
    listener: ProgressListener = NO_LISTENER,
    clock: Callable[[], int] = wall_clock_us,
    pause: Callable[[float], None] = time.sleep,
) -> KeyedStatus:
    """The status of a keyed group on a topic."""
    from trimtab.apply.keys.kafka.tally_reader import read_tallies

    topics = KeyedTopics(request.topic, request.group)
    with cluster.admin() as admin:
        numbers = partitions_of(admin, topics.data, topics.state, topics.handover, request.group)
        beside = _records_of(admin, (topics.state, topics.handover))

        def read() -> GroupTallies:
            return read_tallies(
                cluster,
                topics,
                numbers,
                on_records=lambda done: listener.progress(_READING, min(done, beside), beside),
            )

        return status_of(admin, request, read, numbers, clock=clock, pause=pause)


def partitions_of(admin: Admin, data: str, state: str, handover: str, group: str) -> range:
    """The partitions of a data topic; raises if it or its topics of states do not exist."""
    placed = admin.topics([data, state, handover])
    found = {name: sum(p.topic == name for p in placed) for name in (data, state, handover)}
    if not found[data]:
        raise ConfigError(f'The cluster has no topic "{data}".', hint="Correct --topic.")
    for name in (state, handover):
        if not found[name]:
            raise ConfigError(
                f"Group {group} does not consume {data} by key: there is no topic {name}.",
                hint="Correct --group and --topic; the topic is created when the first "
                '"trimtab consume --keyed" of the group starts.',
            )
    return range(found[data])


def _records_of(admin: Admin, names: Collection[str]) -> int:
    """About how many records there are to read."""
    return sum(end - begin for begin, end in _offsets(admin, names).values())


def _offsets(admin: Admin, names: Collection[str]) -> dict[TopicPartition, tuple[int, int]]:
    return admin.offsets({p.name: p.leader for p in admin.topics(names) if not p.offline})


def status_of(
    admin: Admin,
    request: ConsumeStatusRequest,
    read: Callable[[], GroupTallies],
    numbers: range,
    *,
    clock: Callable[[], int] = wall_clock_us,
    pause: Callable[[float], None] = time.sleep,
) -> KeyedStatus:
    """The status from tallies and offsets, which are looked up a second time if needed."""
    committed = _committed(admin, request.group)
    status = _look(admin, request, committed, read, numbers, clock)
    if losses(status):
        committed = _committed(admin, request.group)
        status = confirmed(status, _look(admin, request, committed, read, numbers, clock))
    watched = holding_up(status)
    if not watched or request.watch_s <= 0:
        return status
    pause(request.watch_s)
    later = _committed(admin, request.group)
    topics = KeyedTopics(request.topic, request.group)
    names = (topics.data, topics.handover)
    seen = tuple(
        replace(
            p, still=p.partition in watched and not _moved(p.partition, names, committed, later)
        )
        for p in status.partitions
    )
    return replace(status, partitions=seen)


def _look(
    admin: Admin,
    request: ConsumeStatusRequest,
    committed: Mapping[TopicPartition, int],
    read: Callable[[], GroupTallies],
    numbers: range,
    clock: Callable[[], int],
) -> KeyedStatus:
    """One status; offsets come first: what they say was sent must then be in the topics."""
    topics = KeyedTopics(request.topic, request.group)
    offsets = _offsets(admin, (topics.data, topics.handover))
    owners = _owners(admin, request.group)
    tallies = read()
    partitions = [
        KeyedPartition(
            partition=number,
            contents=tallies.states[number].contents(),
            under_way=tallies.handovers[number].under_way(),
            data=_position(TopicPartition(topics.data, number), offsets, committed),
            handovers=_position(TopicPartition(topics.handover, number), offsets, committed),
            owner=owners.get(TopicPartition(topics.data, number)),
        )
        for number in numbers
    ]
    return keyed_status(request.group, request.topic, clock(), partitions)


def _moved(
    number: int,
    names: Collection[str],
    before: Mapping[TopicPartition, int],
    after: Mapping[TopicPartition, int],
) -> bool:
    places = (TopicPartition(name, number) for name in names)
    return any(before.get(place) != after.get(place) for place in places)


def _position(
    name: TopicPartition,
    offsets: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int],
) -> ReadPosition:
    begin, end = offsets.get(name, (None, None))
    return ReadPosition(begin, end, committed.get(name))


def _committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    found = admin.committed([group]).get(group)
    if found is None:
        raise MeasurementError(
            f"The offsets of group {group} are not known: its coordinator did not answer.",
            hint="Try again; brokers that start need a moment.",
        )
    return found


def _owners(admin: Admin, group: str) -> dict[TopicPartition, str]:
    """The members that partitions are assigned to; empty for directed consumers."""
    return {
        partition: member.client_id
        for found in admin.groups([group])
        for member in found.members
        for partition in member.partitions
    }
