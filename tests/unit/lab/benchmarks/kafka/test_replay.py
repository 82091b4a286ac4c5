"""Replayed telemetry is what a monitor of such a cluster would write."""

from __future__ import annotations

from trimtab.measure.topic_samples import read_sample
from trimtab_lab.benchmarks.kafka.replay import PER_TOPIC, sample_record, topic_names


def test_a_replayed_sample_can_be_read_and_grows() -> None:
    first, second = (
        read_sample(sample_record("t", 3, ts=step, step=step), arrived_ts=step) for step in (1, 2)
    )
    assert first.partition.tolist() == [0, 1, 2]
    assert (second.log_bytes > first.log_bytes).all()
    assert (second.end_offset > second.committed["g"]).all()


def test_a_cluster_has_topics_of_fifty_partitions() -> None:
    assert len(topic_names(10_000)) == 10_000 // PER_TOPIC
    assert len(topic_names(7)) == 1
