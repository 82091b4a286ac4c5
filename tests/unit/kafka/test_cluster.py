"""The one value for a cluster: what its time-outs do to the clients it hands out."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.kafka import admin, compacted, publisher
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.model.timeouts import Timeouts

SLOW = Timeouts(
    connect_s=40, request_s=90, attempt_s=70, delivery_s=200, transaction_s=120, close_s=50
)
FAR = Cluster("far:9092", timeouts=SLOW)


class Connections:
    """Notes how long the brokers may take."""

    def __init__(self, _: Cluster, connect_within_s: float, patience_s: float) -> None:
        self.asked = connect_within_s, patience_s

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("cluster", "given", "asked"),
    [
        (Cluster("h:1"), {}, (10.0, 10.0)),
        (FAR, {}, (40, 70)),
        (FAR, {"patience_s": 0.5, "connect_within_s": 3.0}, (3.0, 0.5)),
    ],
)
def test_admin_requests_wait_as_long_as_the_cluster_says(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, given: Any, asked: tuple[float, float]
) -> None:
    monkeypatch.setattr(admin, "Connections", Connections)

    with cluster.admin(**given) as opened:
        brokers: Any = opened._brokers

    assert brokers.asked == asked
    assert opened.timeouts is cluster.timeouts


def test_no_client_gives_up_a_request_before_we_do() -> None:
    assert FAR.client("c", {})["socket.timeout.ms"] == 90_000
    assert FAR.for_kafka_python()["request_timeout_ms"] == 90_000


def test_the_clients_own_limits_stay_where_ours_are_shorter() -> None:
    near = Cluster("h:1")

    assert "socket.timeout.ms" not in near.client("c", {})
    assert "request_timeout_ms" not in near.for_kafka_python()


def test_a_client_property_overrides_the_limit() -> None:
    named = ClientProperties({"request.timeout.ms": "100000"})
    cluster = Cluster("far:9092", named, timeouts=SLOW)

    assert cluster.client("c", {})["socket.timeout.ms"] == "100000"
    assert cluster.for_kafka_python()["request_timeout_ms"] == 100_000


def test_records_may_be_sent_and_flushed_as_long_as_the_cluster_says() -> None:
    sent = publisher.RecordPublisher(FAR, client_id="c", linger_ms=0)

    assert sent._config["message.timeout.ms"] == 200_000
    assert sent._close_s == 50


def test_a_consumer_asks_as_long_as_the_cluster_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Asked(Exception):
        pass

    class Consumer:
        def __init__(self, config: dict[str, Any]) -> None:
            assert config["socket.timeout.ms"] == 90_000

        def list_topics(self, _: str, timeout: float) -> None:
            waited.append(timeout)
            raise Asked

        def close(self) -> None: ...

    monkeypatch.setattr("confluent_kafka.Consumer", Consumer)

    with pytest.raises(Asked):
        compacted.TopicReader(FAR, "t", client_id="c")

    assert waited == [90]
