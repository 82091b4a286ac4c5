"""The topic of rates on real brokers: a topic with ten thousand partitions is split and joined."""

from __future__ import annotations

import uuid

from tests.kafka.streams import wait_until
from trimtab.apply.consumers.kafka.inbox import newest_rates
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.publisher import open_publisher
from trimtab.kafka.topics import OwnTopics, ensure_topics
from trimtab.local.cluster import LocalCluster
from trimtab.model.codec import Json, dumps, rates_records, rates_to
from trimtab.model.control import TopicRates
from trimtab.model.load import PartitionLoad, Source
from trimtab.observe.clock import wall_clock_us

PARTITIONS = 10_000


def _records(ts: int) -> list[Json]:
    loads = [
        PartitionLoad(
            topic="large",
            partition=n,
            bytes_s=n / 3,
            records_s=n / 7,
            source=Source.LOG_DIRS,
            end_offset=n,
            lag={"g": n},
        )
        for n in range(PARTITIONS)
    ]
    return list(rates_records(rates_to("large", loads, ts=ts, window_start=ts - 1, window_end=ts)))


def test_the_rates_of_a_large_topic_are_read_when_their_last_part_has_come(
    cluster: LocalCluster,
) -> None:
    own = OwnTopics(f"own-{uuid.uuid4().hex[:8]}.")
    target = Cluster(cluster.bootstrap_servers, topics=own)
    with target.admin() as admin:
        ensure_topics(admin, own)

    def publish(*records: Json) -> None:
        with open_publisher(target) as publisher:
            for record in records:
                publisher.publish(own.rates, b"large", dumps(record).encode())
        assert publisher.failed == 0

    seen: list[TopicRates] = []

    def is_there() -> bool:
        config = GroupConfig(cluster=target, group="g", topics=("large",))
        found = newest_rates(config).newest.get("large")
        seen[:] = [] if found is None else [found]
        return found is not None

    first = wall_clock_us()
    *parts, last = _records(first)
    assert parts
    publish(*parts)
    assert not is_there()
    publish(last)
    publish(*_records(first + 1)[:-1])

    wait_until(is_there, what="the rates of all parts")

    [rates] = seen
    ends = {number: rate.end_offset for number, rate in rates.partitions.items()}
    assert (rates.ts, ends) == (first, {n: n for n in range(PARTITIONS)})
    with target.admin() as admin:
        for topic in (own.telemetry, own.rates, own.hotkeys):
            admin.delete_topic(topic)
