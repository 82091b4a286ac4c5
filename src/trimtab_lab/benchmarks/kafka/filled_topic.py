"""A topic with a given number of records of one size, filled once and then reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimtab.errors import MeasurementError
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.murmur2 import homes
from trimtab.observe.clock import wall_clock_us
from trimtab.workload.kafka.fill import FillRecord, fill
from trimtab.workload.key_streams import KeyStream, key_bytes


def filled_topic(
    admin: Admin,
    cluster: Cluster,
    *,
    rows: int,
    partitions: int,
    value_bytes: int,
    say: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """The end offset of each partition of a topic that holds exactly `rows` records."""
    topic = f"bench-{rows}-{value_bytes}"
    value = b"v" * value_bytes

    def records() -> Iterator[FillRecord]:
        return (FillRecord(TopicPartition(topic, row % partitions), value) for row in range(rows))

    return _filled(admin, cluster, topic, rows, partitions, records, say)


def keyed_topic(
    admin: Admin,
    cluster: Cluster,
    *,
    stream: KeyStream,
    rows: int,
    partitions: int,
    value_bytes: int,
    say: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """The same with the keys of a stream, each record in its key's home partition.

    The records have the times of the stream, which ended one minute before the topic was filled.
    """
    topic = f"bench-keys-{rows}-{value_bytes}-{stream.rate_s:g}"
    value = b"v" * value_bytes
    began_ms = wall_clock_us() // 1000 - round(1000 * rows / stream.rate_s) - 60_000

    def records() -> Iterator[FillRecord]:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        left = rows
        for times_s, ranks in stream.blocks(2 * rows / stream.rate_s + 60):
            keys = key_bytes(ranks[:left])
            for ms, key, home in zip(
                (began_ms + 1000 * times_s).astype("int64").tolist(),
                keys,
                homes(keys, partitions).tolist(),
                strict=False,  # the last block is cut
            ):
                yield FillRecord(places[home], value, key, ms)
            left -= len(keys)
            if not left:
                return

    return _filled(admin, cluster, topic, rows, partitions, records, say)


def _filled(
    admin: Admin,
    cluster: Cluster,
    topic: str,
    rows: int,
    partitions: int,
    records: Callable[[], Iterator[FillRecord]],
    say: Callable[[str], None],
) -> dict[TopicPartition, int]:
    ends = _ends(admin, topic)
    if sum(ends.values()) == rows and len(ends) == partitions:
        return ends
    say(f"filling topic {topic}")
    admin.delete_topic(topic)
    admin.create_topic(
        TopicSpec(
            name=topic,
            partitions=partitions,
            replication=1,
            settings={"retention.ms": "-1", "retention.bytes": "-1"},
        )
    )
    fill(
        records(),
        cluster,
        {"batch.size": 1_000_000, "queue.buffering.max.messages": 500_000},
        what=topic,
    )
    ends = _ends(admin, topic)
    if sum(ends.values()) != rows:
        raise MeasurementError(
            f"Topic {topic} has {sum(ends.values())} records instead of {rows}.",
            hint="Delete the topic, then run the benchmark again: it fills the topic.",
        )
    return ends


def _ends(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    placed = admin.topics([topic])
    found = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    return {name: end for name, (_, end) in found.items()}
