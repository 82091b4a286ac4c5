"""What is served to Prometheus, and on which address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest

from trimtab.cli import metrics_options
from trimtab.errors import ConfigError
from trimtab.measure.rate_metrics import show_rates, show_sample
from trimtab.measure.ring import RingRates
from trimtab.model.cluster import BrokerId, Replicas, TopicPartition
from trimtab.model.load import PartitionLoad, Source
from trimtab.observe import metrics


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for _, metric in metrics.ALL:
        if isinstance(metric, metrics.SeriesGauge):
            metric.read_from(None)


def lines(prefix: str) -> list[str]:
    return [line for line in generate_latest().decode().splitlines() if line.startswith(prefix)]


def placed(partition: int, *, end: int | None) -> Replicas:
    return Replicas(
        topic="orders",
        partition=partition,
        leader=BrokerId(1),
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        isr=(BrokerId(1),),
        log_bytes=70,
        begin_offset=3,
        end_offset=end,
    )


def test_lag_is_shown_per_group_and_partition_and_what_is_unknown_has_no_series() -> None:
    sample = [placed(0, end=10), placed(1, end=None)]
    names = [p.name for p in sample]

    show_sample(sample, {"pay": {names[0]: 4, names[1]: 5}, "ship": {names[0]: 12}})

    assert lines("trimtab_monitor_group_lag_records{") == [
        'trimtab_monitor_group_lag_records{group="pay",partition="0",topic="orders"} 6.0',
        'trimtab_monitor_group_lag_records{group="ship",partition="0",topic="orders"} 0.0',
    ]
    assert len(lines("trimtab_monitor_group_offset{")) == 3
    assert lines("trimtab_monitor_partition_end_offset{") == [
        'trimtab_monitor_partition_end_offset{partition="0",topic="orders"} 10.0'
    ]
    assert lines("trimtab_monitor_partition_in_sync_replicas{") == [
        f'trimtab_monitor_partition_in_sync_replicas{{partition="{n}",topic="orders"}} 1.0'
        for n in (0, 1)
    ]


def test_what_kafka_exporter_has_is_shown_under_its_names_and_labels_too() -> None:
    show_sample([placed(0, end=10)], {"pay": {TopicPartition("orders", 0): 4}})

    place = 'partition="0",topic="orders"'
    assert set(lines("kafka_")) == {
        f'kafka_consumergroup_lag{{consumergroup="pay",{place}}} 6.0',
        f'kafka_consumergroup_current_offset{{consumergroup="pay",{place}}} 4.0',
        f"kafka_topic_partition_oldest_offset{{{place}}} 3.0",
        f"kafka_topic_partition_current_offset{{{place}}} 10.0",
        f"kafka_topic_partition_replicas{{{place}}} 3.0",
        f"kafka_topic_partition_in_sync_replica{{{place}}} 1.0",
    }


def test_the_series_of_a_deleted_topic_and_group_disappear() -> None:
    gone = TopicPartition("orders", 1)
    show_sample([placed(0, end=10), placed(1, end=9)], {"pay": {gone: 4}})
    show_sample([placed(0, end=11)], {"pay": {gone: 4}})

    assert lines("trimtab_monitor_partition_end_offset{") == [
        'trimtab_monitor_partition_end_offset{partition="0",topic="orders"} 11.0'
    ]
    assert lines("trimtab_monitor_group") == []


def test_a_stale_rate_is_not_shown() -> None:
    loads = tuple(
        PartitionLoad(
            topic="orders",
            partition=n,
            bytes_s=100.0,
            records_s=5.0,
            source=Source.LOG_DIRS,
            lag_s={"pay": 1.5, "ship": None},
        )
        for n in (0, 1)
    )
    show_rates(
        [RingRates(topic="orders", ts=9, window_start=1, partitions=loads, stale=frozenset({1}))]
    )

    assert lines("trimtab_measure_partition_records_per_second{") == [
        'trimtab_measure_partition_records_per_second{partition="0",topic="orders"} 5.0'
    ]
    assert lines("trimtab_measure_group_lag_seconds{") == [
        'trimtab_measure_group_lag_seconds{group="pay",partition="0",topic="orders"} 1.5'
    ]


def test_metrics_are_served_on_the_address_that_is_given() -> None:
    with closing(socket.create_server(("127.0.0.7", 0))) as free:
        port = free.getsockname()[1]

    metrics_options.serve_metrics(port, "127.0.0.7")

    with urlopen(f"http://127.0.0.7:{port}/metrics", timeout=10) as answer:
        assert b"trimtab_monitor_partition_end_offset" in answer.read()
    with closing(socket.socket()) as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.1", port))
    with pytest.raises(ConfigError, match=rf"served on 127\.0\.0\.7 port {port}"):
        metrics_options.serve_metrics(port, "127.0.0.7")


def test_a_process_without_a_monitor_shows_no_age_of_samples() -> None:
    assert lines("trimtab_monitor_freshness_seconds ") == []

    metrics.monitor_freshness_seconds.read_from(lambda: {(): 1.5})

    assert lines("trimtab_monitor_freshness_seconds ") == ["trimtab_monitor_freshness_seconds 1.5"]
