"""kafka-python's built-in partitioner, called as its producer calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka.cluster import ClusterMetadata
from kafka.partitioner import DefaultPartitioner
from kafka.protocol.metadata import MetadataResponse


def metadata(topic: str, leaders: Mapping[int, int]) -> ClusterMetadata:
    """The metadata that a producer has received about one topic."""
    response_topic = MetadataResponse.MetadataResponseTopic
    cluster = ClusterMetadata(bootstrap_servers=["localhost:9092"])
    cluster.update_metadata(
        MetadataResponse(
            version=8,
            brokers=[
                MetadataResponse.MetadataResponseBroker(broker, "localhost", 9092, None, version=8)
                for broker in sorted(set(leaders.values()))
            ],
            cluster_id="benchmark",
            controller_id=min(leaders.values()),
            topics=[
                response_topic(
                    error_code=0,
                    name=topic,
                    is_internal=False,
                    partitions=[
                        response_topic.MetadataResponsePartition(
                            error_code=0,
                            partition_index=partition,
                            leader_id=broker,
                            leader_epoch=0,
                            replica_nodes=[broker],
                            isr_nodes=[broker],
                            offline_replicas=[],
                        )
                        for partition, broker in leaders.items()
                    ],
                )
            ],
        )
    )
    return cluster


def asked(topic: str, leaders: Mapping[int, int], value: bytes) -> Callable[[int], None]:
    """Returns a function that chooses partitions for a number of keyless records."""
    cluster = metadata(topic, leaders)
    partition = DefaultPartitioner().partition

    def ask(records: int) -> None:
        for _ in range(records):
            partition(topic, None, None, value, value, cluster)

    return ask
