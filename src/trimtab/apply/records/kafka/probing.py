"""Produce probes: how long each broker takes to store a record.

Why      With acks=all a record waits for its slowest replica, so its latency does not show which
         broker is slow. A partition with one replica involves one broker only.
Promise  Each broker gets about one probe per pace, at random times, so that periodic slowness is
         not missed; one probe is in flight at a time. A broker that does not answer does not delay
         other probes. Latencies are measured by the client, independent of this process's load.
Cost     Per broker and second 1 / pace produce requests of about 100 bytes, kept for ten minutes.

The topic has a partition per broker; see `trimtab.kafka.topics.ensure_per_broker`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

import structlog
from confluent_kafka import KafkaError, KafkaException

from trimtab.apply.records.probe_log import ProbeLog, Probes
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors, reason_of

log = structlog.get_logger()

_VALUE = b"trimtab probe"
_PROBE_TIMEOUT_MS = 10_000  # the longest response time that is measured


class Prober:
    """Probes brokers in a background thread."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        topic: str,
        pace_s: float,
        kept_s: float,
    ) -> None:
        self._topic = topic
        self._pace_s = pace_s
        self._kept_s = kept_s
        self._guard = threading.Lock()
        self._logs: dict[int, ProbeLog] = {}
        self._places: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._refused: set[int] = set()
        self._closed = threading.Event()
        self._rng = random.Random()
        with kafka_errors("starting the prober"):
            self._producer = cluster.producer(
                "trimtab-prober",
                {
                    "acks": 1,
                    "enable.idempotence": False,
                    "linger.ms": 0,
                    "message.timeout.ms": _PROBE_TIMEOUT_MS,
                    "request.timeout.ms": _PROBE_TIMEOUT_MS,
                    "reconnect.backoff.max.ms": 500,
                    "topic.metadata.refresh.interval.ms": 2000,
                },
            )
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, places: Mapping[int, int]) -> None:
        """Probes these brokers from now on (broker → its partition)."""
        with self._guard:
            now = time.monotonic()
            for broker in places.keys() - self._places.keys():
                self._logs[broker] = ProbeLog(pace_s=self._pace_s, kept_s=self._kept_s)
                self._due[broker] = now + self._rng.random() * self._pace_s
            for broker in self._places.keys() - places.keys():
                del self._logs[broker], self._due[broker]
            self._places = dict(places)

    def seen(self) -> dict[int, Probes]:
        """The recent probes of each broker."""
        now = time.monotonic()
        with self._guard:
            return {broker: probes.seen(now) for broker, probes in sorted(self._logs.items())}

    def close(self) -> None:
        """Stops; probes in flight are dropped."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            now = time.monotonic()
            with self._guard:
                due = [
                    (broker, self._places[broker])
                    for broker, at in self._due.items()
                    if at <= now and not self._logs[broker].waiting
                ]
                for broker, _ in due:
                    self._logs[broker].sent(now)
                    self._due[broker] = now + self._pace_s * self._rng.uniform(0.5, 1.5)
                soonest = min(
                    (at for broker, at in self._due.items() if not self._logs[broker].waiting),
                    default=now + POLL_SLICE_S,
                )
            for broker, partition in due:
                self._send(broker, partition)
            # Returns early when a probe is answered: that broker may be due again.
            self._producer.poll(min(POLL_SLICE_S, max(0.001, soonest - time.monotonic())))
        self._producer.purge()
        self._producer.poll(0)

    def _send(self, broker: int, partition: int) -> None:
        def on_delivery(error: KafkaError | None, message: Any) -> None:
            self._on_delivered(broker, error, message)

        try:
            self._producer.produce(
                self._topic, _VALUE, partition=partition, on_delivery=on_delivery
            )
        except (BufferError, KafkaException) as error:
            why = reason_of(error) if isinstance(error, KafkaException) else str(error)
            self._on_failed(broker, why)

    def _on_delivered(self, broker: int, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._on_failed(broker, error.str())
            return
        with self._guard:
            if broker in self._logs:
                self._logs[broker].answered(time.monotonic(), latency_s=message.latency())
        if broker in self._refused:
            self._refused.discard(broker)
            log.warning("broker_answers_probes_again", broker=broker)

    def _on_failed(self, broker: int, why: str) -> None:
        with self._guard:
            if broker in self._logs:
                self._logs[broker].failed()
        if broker not in self._refused and not self._closed.is_set():  # logged once
            self._refused.add(broker)
            log.warning("probe_failed", broker=broker, why=why)
