"""The forwarder between a source and a target in memory: commits, order, failures, rebalances."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab.apply.records.kafka import forwarder as door
from trimtab.apply.records.kafka.forward_route import Route, survey
from trimtab.apply.records.kafka.forward_source import End
from trimtab.apply.records.kafka.forwarder import Forwarder
from trimtab.errors import ApplyError, BrokerUnavailable, ConfigError
from trimtab.kafka.admin import TopicSpec
from trimtab.model.cluster import Broker, BrokerId, TopicPartition
from trimtab.model.record import Record
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.testing.fakes import FakeAdmin

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)
LEADERS = LeaderSnapshot({"out": {0: 1, 1: 2}})


def record(offset: int, partition: int = 0, **more: Any) -> Record:
    return Record("in", partition, offset, more.get("key"), b"v", more.get("headers", ()), 1000)


@dataclass
class MemorySource:
    """Hands out what is queued; callables among it are called in its place."""

    items: deque[Record | End | Callable[[], None]] = field(default_factory=deque)
    held: list[TopicPartition] = field(default_factory=lambda: [P0, P1])
    until: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 3, P1: 0})
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)
    keeps: bool = True
    keeps_later: bool = True
    still: bool = False
    closed: bool = False
    on_empty: Callable[[], None] = lambda: None

    def next(self, timeout_s: float) -> Record | End | None:
        while self.items and not self.still:
            item = self.items.popleft()
            if isinstance(item, Record | End):
                return item
            item()
        self.on_empty()
        return None

    def owned(self) -> Collection[TopicPartition]:
        return self.held

    def ends(self) -> Mapping[TopicPartition, int]:
        return self.until

    def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> bool:
        if self.keeps and (wait or self.keeps_later):
            self.commits.append(dict(offsets))
        return self.keeps

    def hold(self, *, still: bool) -> None:
        self.still = still

    def close(self) -> None:
        self.closed = True

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The newest offset of each partition."""
        return {p: offset for kept in self.commits for p, offset in kept.items()}


@dataclass
class MemoryTarget:
    """Takes records; delivers those that `answer` has an answer for, at the next poll."""

    answer: Callable[[int], KafkaError | bool | None] = lambda _: None
    breaks: bool = False
    taken: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[tuple[int, Callable[..., None]]] = field(default_factory=list)

    def produce(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> None:
        number = len(self.taken)
        told = more.pop("on_delivery")
        self.taken.append({"topic": topic, "value": value, "key": key, **more})
        self.waiting.append((number, told))

    def poll(self, timeout: float = 0.0) -> int:
        if self.breaks:
            self.breaks = False
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
        answers = [(n, told, self.answer(n)) for n, told in self.waiting]
        self.waiting = [(n, told) for n, told, answer in answers if answer is False]
        ready = [(n, told, answer) for n, told, answer in answers if answer is not False]
        for number, told, answer in ready:
            message = SimpleNamespace(
                topic=lambda: "out",
                partition=lambda n=number: n % 2,
                value=lambda: b"v",
                key=lambda: None,
            )
            told(answer, message)
        return len(ready)


class Clock:
    """Time passes with each look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.3
        return self.now


def forwarder(source: MemorySource, target: MemoryTarget, **route: Any) -> Forwarder:
    asked = Route(topics={"in": "out"}, group="g", partitioner="sqf", **route)
    made = Forwarder(asked, source, target, leaders=lambda: LEADERS, clock=Clock(), delivery_s=5.0)
    made.on_assigned(source.held)
    return made


def test_records_are_sent_on_as_they_are_and_committed():
    headers = (("trace", b"1"), ("trace", b"2"), ("nothing", None))
    source = MemorySource(deque([record(0, key=b"k", headers=headers), record(1), record(2)]))
    target = MemoryTarget()

    report = forwarder(source, target, records=3).run(threading.Event())

    assert target.taken[0] == {
        "topic": "out",
        "value": b"v",
        "key": b"k",
        "headers": list(headers),
        "timestamp": 1000,
    }
    assert target.taken[1]["headers"] is None
    assert source.committed == {P0: 3}
    assert source.closed
    assert (report.taken, report.forwarded) == (3, 3)
    assert report.brokers == {1: 2, 2: 1}
    assert report.partitions == {TopicPartition("out", 0): 2, TopicPartition("out", 1): 1}
    assert report.ratios is not None
    assert report.ratios.brokers == pytest.approx(4 / 3)


def test_nothing_is_committed_past_a_record_that_is_not_acknowledged():
    source = MemorySource(deque([record(n) for n in range(5)]))
    target = MemoryTarget(answer=lambda n: False if n == 2 else None)
    made = forwarder(source, target, records=5)

    with pytest.raises(ApplyError, match="1 records were not acknowledged"):
        made.run(threading.Event())

    assert source.committed == {P0: 2}
    assert source.closed


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "max.message.bytes"),
        (KafkaError.INVALID_TIMESTAMP, "message.timestamp.before.max.ms"),
    ],
)
def test_a_record_that_is_refused_for_good_ends_it_and_nothing_past_it_is_committed(code, setting):
    refusal = KafkaError(code)
    source = MemorySource(deque([record(n) for n in range(5)]))
    target = MemoryTarget(answer=lambda n: refusal if n == 3 else None)

    with pytest.raises(ApplyError, match="in-0 offset 3") as raised:
        forwarder(source, target).run(threading.Event())

    assert setting in (raised.value.hint or "")
    assert raised.value.exit_code == 5
    assert source.committed == {P0: 3}


def test_a_producer_that_breaks_says_so_before_what_arrived_is_told():
    source = MemorySource(deque([record(n) for n in range(4)]))
    target = MemoryTarget(breaks=True, answer=lambda n: False if n == 3 else None)

    with pytest.raises(ApplyError, match="of the target failed"):
        forwarder(source, target).run(threading.Event())

    assert source.committed == {P0: 3}


def test_a_record_that_the_client_does_not_take_ends_it():
    class Full(MemoryTarget):
        def produce(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> None:
            raise BrokerUnavailable("The buffer stayed full.", hint="check that they run")

    with pytest.raises(ApplyError, match="in-0 offset 7 could not be forwarded: The buffer"):
        forwarder(MemorySource(deque([record(7)])), Full()).run(threading.Event())


def test_before_partitions_are_given_up_what_is_under_way_of_them_is_waited_for():
    order: list[str] = []
    source = MemorySource()
    polls = iter(range(100))
    target = MemoryTarget(answer=lambda _: False if next(polls) < 8 else None)
    made = forwarder(source, target, records=2)

    def revoke() -> None:
        made.settle([P0])
        order.append(f"settled {source.committed}")
        source.held = [P1]

    source.items.extend([record(5), revoke, record(0, partition=1)])
    made.run(threading.Event())

    assert order == [f"settled { {P0: 6} }"]
    assert source.committed == {P0: 6, P1: 1}


def test_of_partitions_that_were_lost_nothing_more_is_committed():
    source = MemorySource()
    target = MemoryTarget()
    made = forwarder(source, target, records=2)

    def lose() -> None:
        source.held = [P1]
        made.lost([P0])

    source.items.extend([record(5), lose, record(0, partition=1)])
    made.run(threading.Event())

    assert source.committed == {P1: 1}


def test_settling_that_fails_within_the_client_ends_it_afterwards():
    source = MemorySource()
    made = forwarder(source, MemoryTarget())
    source.items.append(lambda: made.fail(ApplyError("refused")))

    with pytest.raises(ApplyError, match="refused"):
        made.run(threading.Event())


def test_it_ends_where_the_source_ended_at_the_start_and_passes_markers_over():
    source = MemorySource(deque([record(0), record(1), End(P0, 3), End(P1, 0)]))

    report = forwarder(source, MemoryTarget(), until_end=True).run(threading.Event())

    assert report.forwarded == 2
    assert source.committed == {P0: 3}


@pytest.mark.parametrize("way", ["settle", "lost"])
def test_between_two_assignments_of_a_rebalance_it_is_not_at_its_end(way):
    source = MemorySource()
    made = forwarder(source, MemoryTarget(), until_end=True)

    def lose() -> None:
        getattr(made, way)(source.held)
        source.held = []

    def gain() -> None:
        source.held = [P0, P1]
        made.on_assigned(source.held)

    source.items.extend([record(0), lose])
    again: deque[Any] = deque([gain, record(0), record(1), record(2)])
    looks = iter(range(100))
    source.on_empty = lambda: source.items.extend(again) if next(looks) == 3 else None
    report = made.run(threading.Event())

    assert report.taken == 4
    assert source.committed == {P0: 3}


def test_a_member_that_the_group_gives_nothing_is_at_its_end():
    source = MemorySource(held=[])

    assert forwarder(source, MemoryTarget(), until_end=True).run(threading.Event()).taken == 0


def test_offsets_that_go_back_are_read_anew():
    source = MemorySource(deque([record(500), record(0), record(1)]))

    forwarder(source, MemoryTarget(), records=3).run(threading.Event())

    assert source.committed == {P0: 2}


def test_what_arrives_of_the_old_records_says_nothing_of_the_new_ones_at_their_offsets():
    source = MemorySource(deque([record(5), record(6), record(5)]))
    target = MemoryTarget(answer=lambda n: False if n == 2 else None)

    with pytest.raises(ApplyError, match="1 records were not acknowledged"):
        forwarder(source, target, records=3).run(threading.Event())

    assert source.committed == {}


def test_a_partition_made_anew_ends_where_it_ends_now():
    source = MemorySource(until={P0: 500, P1: 0})
    made = forwarder(source, MemoryTarget(), until_end=True)

    def make_anew() -> None:
        source.until = {P0: 2, P1: 9}

    source.items.extend([record(400), make_anew, End(P0, 0), record(0), record(1)])
    report = made.run(threading.Event())

    assert report.taken == 3
    assert source.committed == {P0: 2}


def test_it_stops_when_told_to_and_commits_what_has_arrived():
    stop = threading.Event()
    source = MemorySource(deque([record(0), record(1)]), on_empty=stop.set)

    forwarder(source, MemoryTarget()).run(stop)

    assert source.committed == {P0: 2}


def test_a_commit_that_did_not_come_through_is_made_again():
    source = MemorySource(deque([record(0)]), keeps=False)
    made = forwarder(source, MemoryTarget())
    stop, looks = threading.Event(), iter(range(100))

    def empty() -> None:
        if next(looks) == 10:
            source.keeps = True
            stop.set()

    source.on_empty = empty
    made.run(stop)

    assert source.committed == {P0: 1}


def test_a_commit_of_which_nothing_was_heard_is_made_again_at_the_end_and_only_once():
    source = MemorySource(deque([record(0)]), keeps_later=False)
    made = forwarder(source, MemoryTarget())
    stop, looks = threading.Event(), iter(range(100))
    source.on_empty = lambda: stop.set() if next(looks) == 10 else None

    made.run(stop)
    made.settle([P0])

    assert source.commits == [{P0: 1}]


def test_a_commit_that_failed_later_is_made_again_before_the_end():
    source = MemorySource(deque([record(0)]), keeps_later=False)
    made = forwarder(source, MemoryTarget())
    stop, looks = threading.Event(), iter(range(100))

    def empty() -> None:
        look = next(looks)
        if look == 10:
            source.keeps_later = True
            made.on_commit_failed([P0])
        if look == 20:
            source.keeps = False  # the one at the end is too late
            stop.set()

    source.on_empty = empty
    made.run(stop)

    assert source.commits == [{P0: 1}]


def test_it_reads_no_more_while_too_much_is_under_way(monkeypatch):
    monkeypatch.setattr(door, "MOST_RECORDS", 3)
    monkeypatch.setattr(door, "_TURN", 1)
    held: list[tuple[bool, int]] = []
    polls = iter(range(1000))
    target = MemoryTarget(answer=lambda _: False if next(polls) % 20 < 15 else None)

    class Watched(MemorySource):
        def hold(self, *, still: bool) -> None:
            held.append((still, len(target.waiting)))
            super().hold(still=still)

    source = Watched(deque([record(n) for n in range(10)]))
    forwarder(source, target, records=10).run(threading.Event())

    assert held[0] == (True, 3)
    assert held[1][0] is False
    assert source.committed == {P0: 10}


# ---------------------------------------------------------------- survey


def cluster(name: str, **topics: int) -> FakeAdmin:
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(1)), Broker(id=BrokerId(2))], cluster=name)
    for topic, partitions in topics.items():
        admin.create_topic(TopicSpec(name=topic, partitions=partitions, replication=1))
    return admin


def routed(**topics: str) -> Route:
    return Route(topics=topics, group="g", partitioner="sqf")


def test_a_survey_says_what_is_read_and_who_leads_what_is_written():
    admin = cluster("c", a=2, b=3)
    admin.settings["b"]["max.message.bytes"] = "5000"

    found = survey(routed(a="b"), admin, admin)

    assert found.sources == {"a": 2}
    assert dict(found.targets.topic("b").leader) == {0: 1, 1: 2, 2: 1}
    assert found.largest_bytes == 5000


def test_a_topic_is_not_forwarded_onto_itself():
    admin = cluster("c", a=2, b=3)

    with pytest.raises(ConfigError, match="a would be forwarded to itself"):
        survey(routed(a="a"), admin, admin)
    with pytest.raises(ConfigError, match="b would be forwarded to itself"):
        survey(routed(a="b", b="a"), cluster("c", a=1, b=1), cluster("c", a=1, b=1))
    assert survey(routed(a="a"), admin, cluster("another", a=1)).sources == {"a": 2}


@pytest.mark.parametrize(("topics", "where"), [({"x": "b"}, "source"), ({"a": "x"}, "target")])
def test_a_topic_that_is_not_there_is_named(topics, where):
    admin = cluster("c", a=2, b=3)

    with pytest.raises(ConfigError, match=f"The {where} cluster has no topic x"):
        survey(routed(**topics), admin, admin)
