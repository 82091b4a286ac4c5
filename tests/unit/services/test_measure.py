"""The measuring services, up to the point where Spark would be started."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import ConfigError, TrimtabError
from trimtab.kafka import publisher as publishing
from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark.hot_keys import CountingMode
from trimtab.measure.spark.measure_result import MeasureResult
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Source
from trimtab.services.measure import (
    ContinuousOptions,
    MeasuredFiles,
    MeasuredSpan,
    MeasureRequest,
    PublishedRecords,
    measure_continuously,
    measure_files,
    measure_span,
    publish_measurement,
)
from trimtab.testing.fakes import FakePublisher

SECOND = 1_000_000
REQUEST = MeasureRequest(topics=frozenset({"orders"}), warehouse="w")


class SparkStarted(Exception):
    """Everything before Spark was in order."""


def start_spark() -> Any:
    raise SparkStarted


def request(**changes: Any) -> MeasureRequest:
    return MeasureRequest(**({"topics": frozenset({"orders"}), "warehouse": "w"} | changes))


def span(length_s: float = 60, **more: Any) -> MeasuredSpan:
    return MeasuredSpan(from_ts=0, to_ts=round(length_s * SECOND), **more)


def test_a_span_that_can_be_measured_starts_spark(cluster: Cluster) -> None:
    with pytest.raises(SparkStarted):
        measure_span(cluster, REQUEST, span(), start_spark=start_spark)


@pytest.mark.parametrize(
    ("asked", "of", "complaint"),
    [
        (request(topics=frozenset({"ordres"})), span(), "no topic ordres"),
        (request(keys="guess"), span(), "--keys takes auto"),
        (REQUEST, span(1), "a rate needs at least 3 s"),
        (REQUEST, span(for_s=1.0), "a rate needs at least 3 s"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_spark_is_started(
    cluster: Cluster, asked: MeasureRequest, of: MeasuredSpan, complaint: str
) -> None:
    with pytest.raises(TrimtabError, match=complaint):
        measure_span(cluster, asked, of, start_spark=start_spark)


def test_files_that_are_not_there_are_refused_before_spark_is_started(tmp_path: Path) -> None:
    files = MeasuredFiles(events=tmp_path / "none")

    with pytest.raises(TrimtabError, match="no such file or folder"):
        measure_files(REQUEST, files, start_spark=start_spark)


def test_a_topic_that_does_not_exist_yet_is_told_when_measuring_goes_on(cluster: Cluster) -> None:
    told = Told()

    with pytest.raises(SparkStarted):
        measure_continuously(
            cluster,
            request(topics=frozenset({"orders", "soon"})),
            ContinuousOptions(checkpoint="c"),
            start_spark=start_spark,
            until_stopped=nullcontext(threading.Event()),
            listener=told,
        )

    assert told.warnings == ["topic soon does not exist yet"]


def test_exact_counting_is_not_for_measuring_that_goes_on() -> None:
    with pytest.raises(ConfigError, match="not with two-pass"):
        request(keys="two-pass").counting()
    assert request(keys="none").counting() is None
    counting = request(live_key_window_s=7.0).counting()
    assert counting is not None
    assert (counting.mode, counting.window_s) == (CountingMode.LOSSY, 7.0)


def test_what_is_read_follows_from_the_request() -> None:
    only_samples = request(rates_from="samples", keys="none").asked((1, 2))
    only_events = request(rates_from="events").asked((1, 2))

    assert (only_samples.events, only_samples.samples, only_samples.only_samples) == (
        *(False, True, True),
    )
    assert (only_events.events, only_events.samples) == (True, False)


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> FakePublisher:
    """Where measurements are published."""
    publisher = FakePublisher()

    @contextmanager
    def open_publisher(_: Cluster) -> Iterator[FakePublisher]:
        yield publisher
        publisher.flush()

    monkeypatch.setattr(publishing, "open_publisher", open_publisher)
    return publisher


def test_a_measurement_of_a_large_topic_is_published_in_parts(
    cluster: Cluster, publisher: FakePublisher
) -> None:
    loads = (
        PartitionLoad(topic="t", partition=n, bytes_s=1, records_s=1, source=Source.LOG_DIRS)
        for n in range(10_000)
    )
    measured = Measurement(
        cluster=None, from_ts=0, to_ts=1, window_s=1, partitions=tuple(loads), rejects=0
    )
    found = MeasureResult(
        measurement=measured, states={}, stored_ratio=None, key_span=None, run="r"
    )

    publish_measurement(cluster, REQUEST, found)

    parts = [json.loads(value) for _, value in publisher.records]
    assert [(p["part"], p["of"]) for p in parts] == [(0, 2), (1, 2)]
    assert max(len(value) for _, value in publisher.records) <= 900_000


def test_a_measurement_is_published_by_topic(cluster: Cluster, publisher: FakePublisher) -> None:
    measured = Measurement(
        cluster="fake",
        from_ts=0,
        to_ts=60 * SECOND,
        window_s=30.0,
        partitions=tuple(
            PartitionLoad(
                topic=topic, partition=0, bytes_s=1.0, records_s=1.0, source=Source.LOG_DIRS
            )
            for topic in ("orders", "pay")
        ),
        keys=(KeyLoad(topic="pay", key=b"k", lower=5, upper=5, share=0.5, partition_home=0),),
        rejects=0,
    )
    found = MeasureResult(
        measurement=measured, states={}, stored_ratio=None, key_span=None, run="r"
    )

    done = publish_measurement(cluster, REQUEST, found)

    assert done == PublishedRecords(published=3, failed=0)
    assert [key for key, _ in publisher.records] == [b"orders", b"pay", b"pay"]
    assert json.loads(publisher.records[-1][1])["n"] == 10
