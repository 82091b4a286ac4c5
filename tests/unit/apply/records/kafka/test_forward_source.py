"""A forwarder's source on the mock cluster of librdkafka: pauses, first offsets, lost commits."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.records.kafka import forward_source as door
from trimtab.apply.records.kafka.forward_source import End, GroupSource
from trimtab.errors import ApplyError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

EACH = 20
PLACES = [TheirPartition("s", n, 0) for n in range(4)]


class Told:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("on_assigned", sorted(partitions)))

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("settle", sorted(partitions)))

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", sorted(partitions)))

    def on_commit_failed(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("not kept", sorted(partitions)))

    def fail(self, error: ApplyError) -> None:
        raise error


class PromptCluster(Cluster):
    """Its fetches wait for no half second when there is nothing, or an error."""

    def client(self, client_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        prompt = {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 20}
        return super().client(client_id, {**settings, **prompt})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A cluster with 20 records in each of the four partitions of topic s."""
    producer = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1, "log_level": 0})
    for n in range(4 * EACH):
        producer.produce("s", b"x", partition=n % 4)
    assert producer.flush(10) == 0
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del producer


@contextmanager
def source_of(server: str, group: str, **more: Any) -> Iterator[GroupSource]:
    made = GroupSource(group, ["s"], PromptCluster(server), **more)
    made.hooks = Told()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def alone(server: str, group: str, **more: Any) -> Iterator[GroupSource]:
    """A source that gets and loses partitions by `give` and `take`, at once and in no group."""
    with source_of(server, group, **more) as made:
        made._consumer.unsubscribe()
        yield made


def give(source: GroupSource, places: list[TheirPartition]) -> None:
    source._on_assign(None, places)
    source._consumer.assign(places)


def take(source: GroupSource, *, lost: bool = False) -> None:
    places = [TheirPartition(*p) for p in source.owned()]
    (source._on_lost if lost else source._on_revoke)(None, places)
    source._consumer.unassign()


def read(source: GroupSource, partitions: Collection[int]) -> dict[int, list[int]]:
    """Offsets by partition until each of these has ended."""
    found: dict[int, list[int]] = {}
    open_now, deadline = set(partitions), time.monotonic() + 20
    while open_now:
        assert time.monotonic() < deadline, f"{open_now} did not end"
        got = source.next(0.1)
        if isinstance(got, Record):
            found.setdefault(got.partition, []).append(got.offset)
        elif isinstance(got, End):
            open_now.discard(got.partition.partition)
    return found


@pytest.mark.parametrize("lost", [False, True])
def test_a_partition_that_went_while_held_is_read_when_it_comes_back(server, lost):
    with alone(server, f"back-{lost}") as source:
        give(source, PLACES)
        read(source, range(4))
        source.hold(still=True)
        take(source, lost=lost)
        give(source, PLACES[:2])
        source.hold(still=False)
        take(source)
        give(source, PLACES)

        assert read(source, range(4)) == {n: list(range(EACH)) for n in range(4)}


def test_partitions_that_come_while_held_are_held_from_the_first(server):
    with alone(server, "held") as source:
        source.hold(still=True)
        give(source, PLACES)
        early = [got for _ in range(10) if (got := source.next(0.05)) is not None]
        assert len(early) <= 1, "at most what came with the partitions"

        source.hold(still=False)
        assert sum(map(len, read(source, range(4)).values())) + len(early) == 4 * EACH


def test_from_latest_commits_the_ends_that_lack_an_offset_and_no_other(server):
    plain = Consumer({"bootstrap.servers": server, "group.id": "ends", "log_level": 0})
    plain.commit(offsets=[TheirPartition("s", 1, 7)], asynchronous=False)

    with source_of(server, "ends", from_latest=True):
        found = plain.committed([TheirPartition("s", n) for n in range(4)], timeout=10)

    plain.close()
    assert [p.offset for p in found] == [EACH, 7, EACH, EACH]


@pytest.mark.parametrize("from_latest", [False, True])
def test_an_offset_out_of_range_is_read_from_the_start(server, from_latest):
    with alone(server, f"range-{from_latest}", from_latest=from_latest) as source:
        give(source, [TheirPartition("s", 0, 10**6)])
        assert read(source, [0]) == {0: list(range(EACH))}


def test_a_commit_that_failed_later_is_told(monkeypatch):
    made: list[dict[str, Any]] = []

    class Client:
        def __init__(self, config: dict[str, Any]) -> None:
            made.append(config)

        def subscribe(self, *_: Any, **__: Any) -> None:
            pass

    monkeypatch.setattr("confluent_kafka.Consumer", Client)
    source = GroupSource("g", ["s"], Cluster("x:1"))
    source.hooks = told = Told()
    a, b = (SimpleNamespace(topic="s", partition=n, error=None) for n in range(2))

    made[0]["on_commit"](None, [a, b])
    assert told.heard == []
    made[0]["on_commit"](KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), [a])
    b.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    made[0]["on_commit"](None, [a, b])
    assert told.heard == [
        ("not kept", [TopicPartition("s", 0)]),
        ("not kept", [TopicPartition("s", 1)]),
    ]


class Coordinated:
    """A client whose coordinator answers with `faults` first, in turn."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self.faults: list[int] = []
        self.assigned: list[tuple[int, int]] = []
        self.in_part = False

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass

    def committed(self, places: list[TheirPartition], timeout: float) -> list[TheirPartition]:
        assert timeout > 0
        if self.faults:
            raise KafkaException(KafkaError(self.faults.pop(0)))
        return [TheirPartition(p.topic, p.partition, [5, -1001][p.partition]) for p in places]

    def assign(self, places: list[TheirPartition]) -> None:
        if self.in_part:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.assigned = [(p.partition, p.offset) for p in places]

    def incremental_assign(self, places: list[TheirPartition]) -> None:
        assert self.in_part
        self.assigned = [(p.partition, p.offset) for p in places]


@pytest.fixture
def coordinated(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("confluent_kafka.Consumer", Coordinated)
    monkeypatch.setattr(door, "SLOWING", Retry(first_s=0.0, most_s=0.0))
    source = GroupSource("g", ["s"], Cluster("x:1"))
    source.hooks = Told()
    return source


@pytest.mark.parametrize("in_part", [False, True])
def test_a_coordinator_that_moves_leaves_no_partition_unread(coordinated: Any, in_part: bool):
    coordinated._consumer.in_part = in_part
    coordinated._consumer.faults = [KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT]

    coordinated._on_assign(None, PLACES[:2])

    assert coordinated._consumer.assigned == [(0, 5), (1, OFFSET_BEGINNING)]


def test_where_offsets_may_not_be_asked_for_the_client_says_so(coordinated: Any):
    coordinated._consumer.faults = [KafkaError.GROUP_AUTHORIZATION_FAILED]

    coordinated._on_assign(None, PLACES[:2])

    assert coordinated._consumer.assigned == []
