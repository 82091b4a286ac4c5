"""States that can never come, and states that are only late, on real brokers."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import AdminClient

from trimtab.apply.consumers.kafka.directed_reader import DirectedReader
from trimtab.apply.keys.kafka.keyed_work import KeyedWork
from trimtab.apply.keys.kafka.keyed_worker import KeyedWorker
from trimtab.apply.keys.kafka.lost_ends import KafkaEndSources, LostEnds
from trimtab.apply.keys.kafka.topic_checks import checked_topics
from trimtab.apply.keys.keyed_handler import counting_handler
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.message_sets import DataRecord, EndMarker, StartMarker
from trimtab.apply.keys.record_headers import headers_for
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition

KEY = b"customer-7"
WITHIN_S = 120.0


class CountedSources(KafkaEndSources):
    """The real look-ups; `looks` says how many were begun."""

    looks = 0

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.looks += 1
        return super().committed(partitions)


class MovedKey:
    """A key that has moved from partition 0 to partition 1, and a consumer of its own group."""

    def __init__(self, cluster: Cluster) -> None:
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.old, self.new = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)
        self.cluster = cluster
        self.group = f"pay-{uuid.uuid4().hex[:8]}"
        self.stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all"})
        with cluster.admin() as admin:
            durable = {"min.insync.replicas": "2"}
            admin.create_topic(
                TopicSpec(name=self.topic, partitions=2, replication=3, settings=durable)
            )
            facts = checked_topics(admin, [self.topic], self.group)
        for src in range(3):
            self.send(self.old, DataRecord(shard=0, gen=1, src=src))
        self.end = self.send(self.old, EndMarker(shard=0, gen=1, set_id=0, next_set=1, to=1))
        start = StartMarker(shard=0, gen=1, set_id=1, source=0, end_offset=self.end)
        self.send(self.new, start)
        for src in range(3, 5):
            self.send(self.new, DataRecord(shard=0, gen=1, src=src, set_id=1))
        self.reader = DirectedReader(
            self.group, cluster, client_id="lost", on_lost=lambda _: None, skip_lost=False
        )
        self.worker = KeyedWorker(
            cluster,
            self.group,
            KeyedWork(handler=counting_handler(), commit_s=0.1),
            facts=facts,
            client_id="lost",
            stop=self.stop,
        )
        self.worker.attach(self.reader)
        self.sources = CountedSources(cluster, self.group, client_id="lost")
        self.worker._lost_ends = LostEnds(self.sources, after_s=0.2)

    def send(
        self,
        to: TopicPartition,
        record: DataRecord | EndMarker | StartMarker,
    ) -> int:
        """Writes a record as a gateway does; returns its offset."""
        offsets: list[int] = []
        self._producer.produce(
            to.topic,
            None if isinstance(record, EndMarker | StartMarker) else b"v",
            KEY,
            to.partition,
            headers=list(headers_for(record)),
            on_delivery=lambda _, message: offsets.append(message.offset() or 0),
        )
        assert self._producer.flush(30) == 0
        return offsets[0]

    def prepare_route(self) -> None:
        """A gateway that has not finished the migration."""
        name = KeyedTopics(self.topic, self.group).assign
        with self.cluster.admin() as admin:
            admin.create_topic(TopicSpec(name=name, partitions=1, replication=3))
        route = {"v": 1, "part": 1, "set": 1, "from": 0, "phase": "prepared"}
        self._producer.produce(name, json.dumps(route).encode(), b"k" + KEY)
        assert self._producer.flush(30) == 0

    def finish_route(self) -> None:
        """The gateway has finished."""
        name = KeyedTopics(self.topic, self.group).assign
        route = {"v": 1, "part": 1, "set": 1, "phase": "done"}
        self._producer.produce(name, json.dumps(route).encode(), b"k" + KEY)
        assert self._producer.flush(30) == 0

    def delete_end(self) -> None:
        """Retention has passed END."""
        behind = TheirPartition(*self.old, self.end + 1)
        client = AdminClient({"bootstrap.servers": self.cluster.servers})
        for future in client.delete_records([behind]).values():
            future.result(60)

    def own(self, *partitions: TopicPartition) -> None:
        """The consumer takes these partitions, as a directed one does."""
        self.worker.prepare(partitions)
        for partition, committed in self.reader.take(partitions, self.stop).items():
            self.worker.begin(partition, committed)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline
            self.worker.turn()

    def look_twice(self) -> None:
        """Two more looks have ended, and their answers were taken."""
        seen = self.sources.looks + 3
        self.run_until(lambda: self.sources.looks >= seen)

    @property
    def waiting(self) -> int:
        return self.worker.tasks[self.new].counts.waiting

    @property
    def count(self) -> int:
        """What the handler has counted for the key on its new partition."""
        entry = self.worker.tasks[self.new]._entries.get(KEY)
        return int(json.loads(entry.value or b"{}").get("count", 0))

    def close(self) -> None:
        self.worker.close()
        self.reader.close()


@pytest.fixture
def moved(cluster: LocalCluster) -> Iterator[MovedKey]:
    with closing(MovedKey(Cluster(cluster.bootstrap_servers))) as moved:
        yield moved


def test_a_key_goes_on_empty_when_retention_has_passed_its_end(moved: MovedKey) -> None:
    moved.delete_end()
    moved.own(moved.new)
    moved.run_until(lambda: moved.waiting == 1)
    moved.look_twice()
    assert moved.waiting == 1, "a task may have read END before: nobody reads its partition yet"

    moved.own(moved.old)  # begins behind END, and commits that
    moved.run_until(lambda: moved.waiting == 0 and moved.count == 2)
    assert moved.worker.tasks[moved.new].counts.lost_states == 1


def test_a_key_waits_for_an_end_that_nobody_has_read_yet(moved: MovedKey) -> None:
    moved.own(moved.new)
    moved.run_until(lambda: moved.waiting == 1)
    moved.look_twice()
    assert moved.waiting == 1

    moved.own(moved.old)
    moved.run_until(lambda: moved.waiting == 0 and moved.count == 5)
    assert moved.worker.tasks[moved.new].counts.lost_states == 0


def test_a_key_waits_while_its_gateway_has_not_finished_the_migration(moved: MovedKey) -> None:
    moved.prepare_route()
    moved.delete_end()
    moved.own(moved.new, moved.old)
    moved.run_until(lambda: moved.waiting == 1)
    moved.look_twice()
    assert moved.waiting == 1

    moved.finish_route()
    moved.run_until(lambda: moved.waiting == 0 and moved.count == 2)
    assert moved.worker.tasks[moved.new].counts.lost_states == 1
