"""kafka-python's own producer, buffer and metadata, with nobody at the other end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kafka import KafkaProducer
from kafka.cluster import ClusterMetadata
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.protocol.metadata import MetadataResponse

_VERSION = 12


def metadata(
    leaders: Mapping[str, Mapping[int, int]],
    *,
    cluster: str | None = "c",
    racks: Mapping[int, str] | None = None,
) -> ClusterMetadata:
    """Live metadata that knows these topics."""
    live = ClusterMetadata()
    learn(live, leaders, cluster=cluster, racks=racks)
    return live


def learn(
    live: ClusterMetadata,
    leaders: Mapping[str, Mapping[int, int]],
    *,
    cluster: str | None = "c",
    racks: Mapping[int, str] | None = None,
) -> None:
    """A full refresh, as a broker would answer."""
    topic, broker = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseBroker
    answer = MetadataResponse(
        brokers=[broker(b, f"h{b}", 9092, (racks or {}).get(b)) for b in range(1, 9)],
        cluster_id=cluster,
        controller_id=1,
        topics=[
            topic(
                error_code=0,
                name=name,
                is_internal=False,
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=p,
                        leader_id=leader,
                        leader_epoch=1,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                        offline_replicas=[],
                    )
                    for p, leader in of_topic.items()
                ],
            )
            for name, of_topic in leaders.items()
        ],
    )
    encoded = answer.encode(version=_VERSION)
    live.update_metadata(MetadataResponse.decode(encoded, version=_VERSION))


class OfflineProducer(KafkaProducer):  # type: ignore[misc] # the library has no types
    """Sends into the library's own buffer, which nobody drains."""

    def __init__(self, partitioner: Any, live: ClusterMetadata, *, batch_size: int = 16384) -> None:
        self.config = KafkaProducer.DEFAULT_CONFIG | {
            "partitioner": partitioner,
            "api_version": (2, 6),
        }
        self._closed = False
        self._metadata = live
        self._transaction_manager = None
        self._sender = SimpleNamespace(wakeup=lambda: None)
        self._accumulator = RecordAccumulator(batch_size=batch_size)

    def __del__(self) -> None:
        pass

    def counts(self, topic: str) -> Counter[int]:
        """How many records wait for each partition."""
        found: Counter[int] = Counter()
        for place, batches in self._accumulator._batches.items():
            if place.topic == topic:
                found[place.partition] += sum(b.record_count for b in batches)
        return found
