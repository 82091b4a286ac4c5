"""Exposes samples and rates as Prometheus metrics; a scrape reads the newest ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trimtab.measure.ring import RingRates
from trimtab.measure.windows import lag_records
from trimtab.model.cluster import Replicas, TopicPartition
from trimtab.model.load import PartitionLoad
from trimtab.observe import metrics
from trimtab.observe.metrics import Series

Committed = Mapping[str, Mapping[TopicPartition, int]]


def show_sample(partitions: Iterable[Replicas], committed: Committed) -> None:
    """Exposes a sample of the monitor, replacing the last one."""
    seen = tuple(partitions)
    metrics.monitor_partition_begin_offset.read_from(
        lambda: {_labels(p.name): p.begin_offset for p in seen}
    )
    metrics.monitor_partition_end_offset.read_from(
        lambda: {_labels(p.name): p.end_offset for p in seen}
    )
    metrics.monitor_partition_log_bytes.read_from(
        lambda: {_labels(p.name): p.log_bytes for p in seen}
    )
    metrics.monitor_partition_replicas.read_from(
        lambda: {_labels(p.name): len(p.replicas) for p in seen}
    )
    metrics.monitor_partition_in_sync_replicas.read_from(
        lambda: {_labels(p.name): len(p.isr) for p in seen}
    )
    metrics.monitor_group_offset.read_from(
        lambda: {
            (group, *_labels(name)): offset for group, name, offset, _ in _read(seen, committed)
        }
    )
    metrics.monitor_group_lag_records.read_from(
        lambda: {
            (group, *_labels(name)): lag_records(end, offset)
            for group, name, offset, end in _read(seen, committed)
        }
    )


def _read(
    partitions: Iterable[Replicas], committed: Committed
) -> Iterator[tuple[str, TopicPartition, int, int | None]]:
    """Group, partition, committed offset and end offset, of the sampled partitions."""
    ends = {p.name: p.end_offset for p in partitions}
    for group, offsets in committed.items():
        for name, offset in offsets.items():
            if name in ends:
                yield group, name, offset, ends[name]


def show_rates(topics: Iterable[RingRates]) -> None:
    """Exposes rates, replacing the last ones; stale rates are left out."""
    seen = tuple(topics)
    metrics.measure_partition_bytes_per_second.read_from(
        lambda: {_labels(p.name): p.bytes_s for p in _fresh(seen)}
    )
    metrics.measure_partition_records_per_second.read_from(
        lambda: {_labels(p.name): p.records_s for p in _fresh(seen)}
    )
    metrics.measure_group_lag_seconds.read_from(lambda: _lag_seconds(seen))


def _lag_seconds(topics: Iterable[RingRates]) -> Series:
    return {
        (group, *_labels(p.name)): seconds
        for p in _fresh(topics)
        for group, seconds in p.lag_s.items()
    }


def _fresh(topics: Iterable[RingRates]) -> Iterator[PartitionLoad]:
    return (p for topic in topics for p in topic.partitions if p.partition not in topic.stale)


def _labels(name: TopicPartition) -> tuple[str, str]:
    return name.topic, str(name.partition)
