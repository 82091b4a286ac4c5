"""Observes brokers and publishes the weights by which producers share keyless records among them.

Promise  One step per interval. Weights are published when they change, and at least three times
         within their validity; if the steering process ends, producers use equal weights after it.
         Metadata and light requests run in a separate thread with short timeouts, so that a broker
         that hangs delays neither probes nor steps. Weights are written to one partition per
         broker, without replicas, so that it does not delay their writing or reading either.
         Without `execute` no weights are published; the probe topic is created and written anyway.
Cost     Per broker the probes, two offset requests per second, the weights, and `intake`. Bytes per
         broker come from `trimtab.rates` if it is published. Two steering processes do no harm.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.records.cluster_poller import ClusterPoller
from trimtab.apply.records.kafka.intake import Intake
from trimtab.apply.records.kafka.probing import Prober
from trimtab.apply.records.kafka.weights_reader import KEY
from trimtab.apply.records.probe_log import Probes
from trimtab.apply.records.steering import (
    BrokerVerdict,
    Observation,
    SteeringRules,
    SteeringState,
    step,
)
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.kafka.topics import OwnTopic, ensure_per_broker
from trimtab.measure.kafka.monitor import Publisher, next_sample_time
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.model.codec import dumps, weights_to
from trimtab.model.control import TopicRates
from trimtab.model.rates_reader import RatesReader
from trimtab.model.weights import Weights
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0
_ENSURE_EVERY_S = 5.0
_REQUEST_TIMEOUT_S = 0.5  # a broker that needs longer is slow, which is what is measured
_REQUESTS_KEPT = 10
_RATES_HOLD_S = 60.0
_RATES_BACK = 1000
_DELIVERY_TIMEOUT_MS = 5_000  # short: newer weights follow
_FLUSH_S = 2.0  # the same
_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringStep:
    """One step: the observations, the weights, and whether they were published."""

    weights: Weights
    verdicts: Mapping[int, BrokerVerdict]
    seen: Mapping[int, Observation] = field(default_factory=dict)
    changed: bool = False
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringReport:
    """Summary: steps, steps that changed a weight, records published, and the last weights."""

    steps: int
    changes: int
    published: int
    weights: Mapping[int, float]


class ObservationSource(Protocol):
    """Where steering gets its observations."""

    def observe(self) -> Mapping[int, Observation]:
        """The recent observations of each broker; never waits for a broker."""
        ...


class Steerer:
    """Observes, judges and publishes at a fixed interval."""

    def __init__(  # noqa: PLR0913 - two clocks among them, for tests
        self,
        source: ObservationSource,
        publisher: Publisher | None,
        *,
        topic: str,
        interval_s: float = 0.2,
        valid_s: float = 10.0,
        rules: SteeringRules | None = None,
        on_step: Callable[[SteeringStep], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Does nothing yet; without a publisher it never publishes."""
        self._source = source
        self._publisher = publisher
        self._topic = topic
        self._interval_s = interval_s
        self._valid_s = valid_s
        self._rules = rules or SteeringRules()
        self._on_step = on_step
        self._clock = clock
        self._wall_us = wall_us
        self._state = SteeringState()
        self._last: dict[int, float] | None = None
        self._last_at = float("-inf")
        self._steps = self._changes = self._published = 0

    @property
    def report(self) -> SteeringReport:
        """The summary so far."""
        return SteeringReport(
            steps=self._steps,
            changes=self._changes,
            published=self._published,
            weights=self._last or {},
        )

    def run(self, stop: threading.Event, *, for_s: float | None = None) -> SteeringReport:
        """Steers until `stop` is set or `for_s` seconds have passed; then delivers the rest."""
        start = time.monotonic()
        end = float("inf") if for_s is None else start + for_s
        due = start + self._interval_s
        while not stop.wait(max(0.0, min(due, end) - time.monotonic())):
            if due >= end:
                break
            self.step()
            due = next_sample_time(start, self._interval_s, time.monotonic())
        if self._publisher is not None:
            self._publisher.flush()
        return self.report

    def step(self) -> None:
        """Observes once, and publishes the weights if they changed or are due."""
        seen = self._source.observe()
        if not seen:
            return
        now = self._clock()
        self._state, verdicts = step(self._state, seen, now, self._rules)
        weights = {broker: verdict.weight for broker, verdict in verdicts.items()}
        changed = weights != self._last
        due = now - self._last_at >= self._valid_s / _REPEATS - self._interval_s
        self._steps += 1
        result = SteeringStep(
            weights=Weights(ts=self._wall_us(), valid_s=self._valid_s, weights=weights),
            verdicts=verdicts,
            seen=seen,
            changed=changed,
            published=(changed or due) and self._publisher is not None,
        )
        if changed or due:
            self._publish(result, now)
        self._on_step(result)

    def _publish(self, result: SteeringStep, now: float) -> None:
        if result.changed and self._last is not None:
            self._changes += 1
            log.info("weights_changed", weights=dict(result.weights.weights))
        self._last, self._last_at = dict(result.weights.weights), now
        for broker, verdict in result.verdicts.items():
            metrics.steer_weight_ratio.labels(str(broker)).set(verdict.weight)
            if verdict.latency_s is not None:
                metrics.steer_probe_seconds.labels(str(broker)).set(verdict.latency_s)
        if self._publisher is not None:
            value = dumps(weights_to(result.weights)).encode()
            self._publisher.publish(self._topic, KEY, value)
            self._published += 1
            metrics.steer_published_total.inc()


# ---------------------------------------------------------------- observing a real cluster


class SpreadPublisher:
    """Writes each record to a partition of every broker; unavailable brokers miss it."""

    def __init__(self, cluster: Cluster) -> None:
        self.published = 0
        self.failed = 0
        self._places: tuple[int, ...] = ()
        with kafka_errors("starting the publisher of weights"):
            self._producer = cluster.producer(
                "trimtab-steer",
                {
                    "acks": 1,
                    "enable.idempotence": False,
                    "max.in.flight.requests.per.connection": 1,  # keeps the order
                    "linger.ms": 0,
                    "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
                    "reconnect.backoff.max.ms": 500,
                    "topic.metadata.refresh.interval.ms": 2000,
                },
            )

    def spread(self, places: Mapping[int, int]) -> None:
        """Writes to these partitions from now on."""
        self._places = tuple(sorted(places.values()))

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Queues a record; never raises and never waits."""
        for partition in self._places:
            try:
                self._producer.produce(
                    topic, value, key, partition=partition, on_delivery=self._on_delivery
                )
            except (BufferError, KafkaException) as error:
                self.failed += 1
                log.info("weights_were_not_written", partition=partition, why=str(error))
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits at most 2 s until the queued records are delivered."""
        self._producer.flush(_FLUSH_S)

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.published += 1
        else:
            self.failed += 1


class ClusterObserver(ClusterPoller):
    """Observes which brokers exist, their response times and the load they lead, in a thread."""

    def __init__(
        self,
        cluster: Cluster,
        per_broker: Mapping[OwnTopic, Callable[[Mapping[int, int]], None]],
        intake: Intake,
    ) -> None:
        """Starts when entered.

        Args:
            cluster: The cluster to observe.
            per_broker: Topics with a partition per broker; each callback gets broker → partition.
            intake: Counts the records that each broker receives.
        """
        super().__init__(
            name="cluster-observer", error_event="cluster_did_not_answer", pause_s=_LOOK_EVERY_S
        )
        self._cluster = cluster
        self._per_broker = per_broker
        self._intake = intake
        self._guard = threading.Lock()
        self._requests: dict[int, deque[float]] = {}
        self._loads: dict[int, tuple[float, float]] = {}
        self._brokers: set[int] = set()
        self._live: set[int] = set()
        self._places: dict[str, dict[int, int]] = {}
        self._ensured_at = float("-inf")
        self._rates: dict[str, TopicRates] = {}
        self._reader = RatesReader(origin=cluster.topics.rates)

    def observation(self, broker: int, probes: Probes) -> Observation:
        """All observations of a broker, with these probes."""
        counted = self._intake.records_s()
        with self._guard:
            bytes_s, records_s = self._loads.get(broker, (None, None))
            return Observation(
                probes=probes,
                requests_s=tuple(self._requests.get(broker, ())),
                bytes_s=bytes_s,
                records_s=counted.get(broker) if counted else records_s,
            )

    def _poll(self) -> None:
        with (
            self._cluster.admin(patience_s=_REQUEST_TIMEOUT_S) as admin,
            self._rates_consumer() as rates,
        ):
            while not self._closed.wait(_LOOK_EVERY_S):
                self._measure_requests(admin)
                self._read_rates(rates)
                self._succeeded()

    def ensure(self, admin: Admin) -> None:
        """Creates or extends our topics, and reports the partition of each broker."""
        cluster = admin.cluster()
        self._brokers = {int(b.id) for b in cluster.brokers}
        self._live = {int(b) for b in cluster.live}
        for topic, on_places in self._per_broker.items():
            self._places[topic.name] = ensure_per_broker(admin, topic, self._brokers, self._live)
            on_places(self._places[topic.name])
        self._ensured_at = time.monotonic()

    def _measure_requests(self, admin: Admin) -> None:
        if time.monotonic() - self._ensured_at >= _ENSURE_EVERY_S:
            self.ensure(admin)
        for broker, partition in self._places[self._cluster.topics.probe].items():
            if broker not in self._live:
                continue
            began = time.monotonic()
            name = TopicPartition(self._cluster.topics.probe, partition)
            answered = admin.offsets({name: BrokerId(broker)})
            took_s = time.monotonic() - began
            with self._guard:
                kept = self._requests.setdefault(broker, deque(maxlen=_REQUESTS_KEPT))
                if answered:
                    kept.append(took_s / 2)  # two requests, one after the other
        with self._guard:
            self._requests = {b: kept for b, kept in self._requests.items() if b in self._brokers}

    @contextmanager
    def _rates_consumer(self) -> Iterator[Consumer]:
        """A consumer of published rates; without the topic it returns nothing."""
        with kafka_errors(f"following {self._cluster.topics.rates}"):
            consumer = self._cluster.consumer(
                "trimtab-steer",
                {
                    "group.id": "trimtab-steer",  # required by the client; no group is joined
                    "enable.auto.commit": False,
                    "allow.auto.create.topics": False,
                    "auto.offset.reset": "latest",
                },
            )
            consumer.assign([TheirPartition(self._cluster.topics.rates, 0, -2000 - _RATES_BACK)])
        try:
            yield consumer
        finally:
            consumer.close()

    def _read_rates(self, consumer: Consumer) -> None:
        with kafka_errors(f"following {self._cluster.topics.rates}"):
            messages = consumer.consume(_RATES_BACK, 0)
        records = [(m.key(), m.value() or b"") for m in messages if m.error() is None]
        complete, refused = self._reader.read(records)
        for why in refused:
            log.warning("rates_were_refused", why=why.message)
        self._rates |= {rates.topic: rates for rates in complete}
        loads = led(self._rates, self._intake.leaders, ts=wall_clock_us())
        with self._guard:
            self._loads = loads


def led(
    rates: Mapping[str, TopicRates], leaders: Mapping[TopicPartition, int], *, ts: int
) -> dict[int, tuple[float, float]]:
    """Bytes and records per second that each broker leads, by rates of the last minute."""
    loads: dict[int, tuple[float, float]] = {}
    for topic, known in rates.items():
        if ts - known.ts > _RATES_HOLD_S * 1e6:
            continue
        for partition, rate in known.partitions.items():
            broker = leaders.get(TopicPartition(topic, partition))
            if broker is not None:
                so_far = loads.get(broker, (0.0, 0.0))
                loads[broker] = so_far[0] + (rate.bytes_s or 0), so_far[1] + (rate.records_s or 0)
    return loads


class LiveObservations:
    """Observations of a real cluster: probes, requests and rates."""

    def __init__(self, prober: Prober, observer: ClusterObserver) -> None:
        self._prober = prober
        self._observer = observer

    def observe(self) -> dict[int, Observation]:
        """The recent observations of each broker."""
        return {
            broker: self._observer.observation(broker, probes)
            for broker, probes in self._prober.seen().items()
        }


@contextmanager
def open_steering(
    cluster: Cluster,
    *,
    interval_s: float = 0.2,
    valid_s: float = 10.0,
    execute: bool,
    on_step: Callable[[SteeringStep], None] = lambda _: None,
) -> Iterator[Steerer]:
    """Steering of a real cluster; a broker is probed twice per interval."""
    pace_s = interval_s / 2
    rules = SteeringRules.paced(pace_s)
    own = cluster.topics
    weights, probe = own.of_steering
    publisher = SpreadPublisher(cluster) if execute else None
    with Prober(cluster, topic=own.probe, pace_s=pace_s, kept_s=rules.long_s) as prober:
        per_broker = {probe: prober.watch}
        if publisher is not None:
            per_broker[weights] = publisher.spread
        intake = Intake(cluster, without=(own.probe, own.weights))
        observer = ClusterObserver(cluster, per_broker, intake)
        with cluster.admin() as admin:
            observer.ensure(admin)
        with intake, observer:
            yield Steerer(
                LiveObservations(prober, observer),
                publisher,
                topic=own.weights,
                interval_s=interval_s,
                valid_s=valid_s,
                rules=rules,
                on_step=on_step,
            )
