"""The halfway collector on real brokers: the same records, in order, whatever dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.streams import wait_until
from trimtab.apply.records.kafka.forward_route import ForwardReport, Route, survey
from trimtab.apply.records.kafka.forward_source import GroupSource
from trimtab.apply.records.kafka.forwarder import Forwarder, open_forwarder
from trimtab.cli.main import run
from trimtab.errors import ApplyError
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster


class Letter(NamedTuple):
    """All of a record that is to be kept."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass
class Ground:
    """A source and a target topic of three partitions each, and a group of their own."""

    server: str
    admin: KafkaAdmin
    name: str

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    @property
    def words(self) -> list[str]:
        return [
            *("forward", "--from-topic", self.source, "--to-topic", self.target),
            *("--group", self.name, "--execute", "--json", "--bootstrap-server", self.server),
        ]

    def send(self, letters: Sequence[Letter]) -> None:
        producer = Producer(
            {"bootstrap.servers": self.server, "acks": "all", "partitioner": "murmur2_random"}
        )
        for letter in letters:
            producer.produce(
                self.source,
                letter.value,
                letter.key,
                headers=list(letter.headers),
                timestamp=letter.timestamp_ms,
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def received(self) -> list[Letter]:
        """What is in the target, partition by partition in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.server,
                "group.id": "looks",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.target, p, 0) for p in range(3)])
        found, ended = [], 0
        while ended < 3:
            m: Any = consumer.poll(30)
            assert m is not None, "the topic did not end"
            if m.error():
                ended += 1
                continue
            headers = tuple(m.headers() or ())
            found.append(Letter(m.key(), m.value(), headers, m.timestamp()[1]))
        consumer.close()
        return found

    def committed(self) -> int:
        """How many records of the source are committed."""
        return sum(self.admin.committed([self.name]).get(self.name, {}).values())

    def forwarding(self, stop: threading.Event, **route: Any) -> ForwardReport:
        asked = Route(
            topics={self.source: self.target}, group=self.name, partitioner="node", **route
        )
        end = Cluster(self.server)
        with open_forwarder(survey(asked, self.admin, self.admin), end, end) as forwarder:
            return forwarder.run(stop)


@pytest.fixture
def post(cluster: LocalCluster) -> Iterator[Ground]:
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        made = Ground(cluster.bootstrap_servers, admin, f"f{uuid.uuid4().hex[:8]}")
        for topic in (made.source, made.target):
            # The letters are dated years ago: with the usual retention brokers would delete them.
            kept = {"retention.ms": "-1"}
            admin.create_topic(TopicSpec(name=topic, partitions=3, replication=3, settings=kept))
        yield made


def keyed(keys: int, each: int) -> list[Letter]:
    """Numbers 0, 1, 2 … of each key, the keys in turn."""
    return [
        Letter(b"k%d" % key, b"%d" % number, (("tt", b"%d" % number),), 1_600_000_000_000 + number)
        for number in range(each)
        for key in range(keys)
    ]


def order_of_first_copies(letters: Sequence[Letter]) -> dict[bytes | None, list[bytes | None]]:
    """By key, values in the order in which each was first seen; without a key there is none."""
    seen: defaultdict[bytes | None, dict[bytes | None, None]] = defaultdict(dict)
    for letter in letters:
        if letter.key is not None:
            seen[letter.key].setdefault(letter.value)
    return {key: list(values) for key, values in seen.items()}


def test_what_arrives_is_what_was_sent(post, capsys):
    odd = [
        Letter(None, b"no key", (), 1_500_000_000_000),
        Letter(b"", b"empty key", (("a", b"1"), ("a", b"2"), ("none", None)), 1_500_000_000_001),
        Letter(b"gone", None, (), 1_500_000_000_002),
        Letter(None, b"", (("x", b""),), 1_500_000_000_003),
    ]
    letters = keyed(40, 25) + odd
    post.send(letters)

    assert run([*post.words, "--until-end", "--partitioner", "sqf"]) == 0

    received = post.received()
    assert Counter(received) == Counter(letters)
    assert order_of_first_copies(received) == order_of_first_copies(letters)
    report = json.loads(capsys.readouterr().out)
    assert report["taken"] == report["forwarded"] == len(letters)
    assert sum(report["brokers"].values()) == len(letters)
    assert post.committed() == len(letters)


def start(post: Ground, *words: str, program: str = "") -> subprocess.Popen[bytes]:
    run_it = "import sys; from trimtab.cli.main import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", f"{program}\n{run_it}", *post.words, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def killed_in_the_middle(post: Ground, enough: int, program: str = "") -> None:
    """Starts a forwarder and kills it when it has committed so many records."""
    process = start(post, program=program)
    try:
        wait_until(lambda: post.committed() >= enough, within_s=180, what="a commit")
    finally:
        process.kill()
        process.communicate(timeout=30)


def feed(post: Ground, enough: threading.Event) -> list[Letter]:
    """Sends number after number of a hundred keys until it is enough."""
    letters: list[Letter] = []
    while not enough.is_set():
        number = len(letters) // 100
        part = [Letter(b"k%d" % key, b"%d" % number, (), 1_600_000_000_000) for key in range(100)]
        post.send(part)
        letters += part
    return letters


def test_a_forwarder_killed_in_the_middle_loses_nothing_and_keeps_the_order(post):
    enough = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        feeding = thread.submit(feed, post, enough)
        try:
            killed_in_the_middle(post, 2000)
        finally:
            enough.set()
        letters = feeding.result(60)
    assert 2000 <= post.committed() < len(letters)

    heir = start(post, "--until-end")
    _, said = heir.communicate(timeout=120)

    assert heir.returncode == 0, said
    received = post.received()
    assert set(received) == set(letters)
    assert order_of_first_copies(received) == order_of_first_copies(letters)


COMMITS_TOO_EARLY = """
from trimtab.apply.records import forwarding
from trimtab.apply.records.kafka import forwarder
take, reliable = forwarding.ForwardProgress.taken, forwarder.reliable
def taken(self, partition, offset, *, size):
    take(self, partition, offset, size=size)
    self.acknowledged(partition, offset)
forwarding.ForwardProgress.taken = taken
forwarder.reliable = lambda *a, **k: reliable(*a, **{**k, "linger_ms": 60_000})
"""


def test_the_check_finds_what_a_forwarder_loses_that_commits_before_the_acknowledgements(post):
    letters = keyed(20, 50)
    post.send(letters)
    killed_in_the_middle(post, len(letters), program=COMMITS_TOO_EARLY)

    heir = start(post, "--until-end")
    heir.communicate(timeout=120)

    assert set(post.received()) < set(letters)


def test_partitions_that_change_hands_are_settled_first(post):
    letters = keyed(50, 60)
    stops = threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as threads:
        post.send(letters[:1000])
        first = threads.submit(post.forwarding, stops[0])
        wait_until(lambda: post.committed() >= 1000, within_s=180, what="the first part")
        feeding = threads.submit(post.send, letters[1000:])
        second = threads.submit(post.forwarding, stops[1])
        feeding.result()
        wait_until(lambda: post.committed() >= len(letters), within_s=180, what="the rest")
        stops[0].set()
        first.result(60)
        more = [Letter(b"k%d" % n, b"last", (), 1_700_000_000_000) for n in range(50)]
        post.send(more)
        wait_until(lambda: post.committed() >= len(letters + more), within_s=180, what="the last")
        stops[1].set()
        assert second.result(60).forwarded >= len(more)

    received = post.received()
    assert Counter(received) == Counter(letters + more), "handed over in order: nothing twice"
    assert order_of_first_copies(received) == order_of_first_copies(letters + more)


def test_to_the_end_goes_on_through_a_rebalance(post, monkeypatch):
    letters = keyed(30, 10)
    last = [Letter(None, b"last %d" % n, (), 1_700_000_000_000) for n in range(3)]
    post.send(letters)
    ends = GroupSource.ends
    monkeypatch.setattr(
        GroupSource, "ends", lambda self: {p: end + 1 for p, end in ends(self).items()}
    )
    took = Forwarder.on_assigned
    shares: list[int] = []

    def counted(self: Forwarder, given: Any) -> None:
        took(self, given)
        shares.append(len(given))

    monkeypatch.setattr(Forwarder, "on_assigned", counted)
    stop = threading.Event()
    guest = Consumer({"bootstrap.servers": post.server, "group.id": post.name})
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(post.forwarding, stop, until_end=True)
        try:
            wait_until(
                lambda: post.committed() >= len(letters), within_s=180, what="all but the end"
            )
            guest.subscribe([post.source])
            wait_until(lambda: guest.poll(0.1) or guest.assignment(), within_s=180, what="a share")
            guest.close()
            wait_until(
                lambda: running.done() or (len(shares) > 2 and shares[-1] == 3),
                within_s=180,
                what="all of it again",
            )
            producer = Producer({"bootstrap.servers": post.server, "acks": "all"})
            for number, letter in enumerate(last):
                producer.produce(
                    post.source, letter.value, partition=number, timestamp=letter.timestamp_ms
                )
            assert producer.flush(60) == 0
            wait_until(running.done, within_s=180, what="the end")
        finally:
            stop.set()
        assert running.result().taken == len(letters + last)

    assert Counter(post.received()) == Counter(letters + last)
    assert post.committed() == len(letters + last)


def test_a_record_that_is_too_large_for_the_target_is_named_and_nothing_is_lost(post):
    post.admin.delete_topic(post.target)
    post.admin.create_topic(
        TopicSpec(
            name=post.target, partitions=3, replication=3, settings={"max.message.bytes": "4000"}
        )
    )
    small = [Letter(b"k", b"%d" % n, (), 1_600_000_000_000) for n in range(500)]
    large = Letter(b"k", Random(1).randbytes(20_000), (), 1_600_000_000_000)
    post.send([*small, large])

    with pytest.raises(ApplyError, match=r"offset 500 .* was refused") as raised:
        post.forwarding(threading.Event(), until_end=True)

    assert "max.message.bytes" in (raised.value.hint or "")
    assert post.committed() == 500
    assert order_of_first_copies(post.received()) == order_of_first_copies(small)


def test_one_shared_instance_evens_out_topics_that_overlap(post):
    """A on brokers 1, 2, 2 and B on 2, 3, at equal rates: node by node it would be 1 : 2 : 1."""
    for topic, leaders in (("A", (1, 2, 2)), ("B", (2, 3))):
        placed = {n: [broker] for n, broker in enumerate(leaders)}
        for name in (f"{post.name}.{topic}", f"{post.name}.{topic}.in"):
            post.admin.create_topic(
                TopicSpec(name=name, partitions=len(leaders), replication=1, assignment=placed)
            )
    topics = {f"{post.name}.{t}.in": f"{post.name}.{t}" for t in "AB"}
    route = Route(topics=topics, group=post.name, partitioner="sqf", records=4000)
    end = Cluster(post.server)
    with (
        open_forwarder(survey(route, post.admin, post.admin), end, end) as forwarder,
        ThreadPoolExecutor(1) as thread,
    ):
        running = thread.submit(forwarder.run, threading.Event())
        feeding = Producer({"bootstrap.servers": post.server, "linger.ms": 0})
        for _ in range(100):  # both all the time, as from many producers
            for topic in topics:
                for _ in range(20):
                    feeding.produce(topic, b"x" * 50)
            assert feeding.flush(60) == 0
        report = running.result(60)

    assert report.ratios is not None
    assert sum(report.brokers.values()) == 4000
    assert report.ratios.brokers < 1.02
