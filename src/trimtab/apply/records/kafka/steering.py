"""Sees how brokers do and publishes how much of the keyless records each should get.

Promise  A step per interval. Weights are published when they change, and at least three times
         within the time for which they hold; a writer that dies leaves producers with equal
         weights after that. Who stands in the cluster, what it leads and how quickly it answers a
         light request is asked in a thread of its own, with little patience: a broker that hangs
         does not stop the probes of others, nor the steps.
         Weights are written to a partition of each broker, which has no other replica: one that
         hangs holds up neither their writing nor their reading.
         Without `execute` nothing is published; the topic of probes is made and written either way.
Cost     Per broker the probes, two offset requests per second, and what is published; and what it
         takes to count the records that each of them takes (`intake`).

Bytes per broker are those of `trimtab.rates`, where somebody measures; otherwise they are unknown.
Two that steer at once say nearly the same, and the last one counts: no harm, and no use.
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

from trimtab.apply.records.asking import Asking
from trimtab.apply.records.kafka.intake import Intake
from trimtab.apply.records.kafka.probing import Prober
from trimtab.apply.records.kafka.weights_reader import KEY
from trimtab.apply.records.probe_log import Probes
from trimtab.apply.records.steering import BrokerVerdict, Observation, Steering, SteeringRules, step
from trimtab.errors import BadFile
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.kafka.topics import OwnTopic, ensure_per_broker
from trimtab.measure.kafka.monitor import Publisher, next_beat
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.model.codec import dumps, weights_to
from trimtab.model.control import TopicRates
from trimtab.model.control_codec import topic_rates_from
from trimtab.model.reading import parse
from trimtab.model.weights import Weights
from trimtab.observe import metrics

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0
_ENSURE_EVERY_S = 5.0
_PATIENCE_S = 0.5
_REQUESTS_KEPT = 10
_RATES_HOLD_S = 60.0
_RATES_BACK = 1000
_GIVEN_UP_MS = 5_000
_FLUSH_S = 2.0
_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringStep:
    """One look: what was seen, what follows, and whether it was published."""

    weights: Weights
    verdicts: Mapping[int, BrokerVerdict]
    seen: Mapping[int, Observation] = field(default_factory=dict)
    changed: bool = False
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringReport:
    """What was done: steps, those that changed a weight, records published, and how it ended."""

    steps: int
    changes: int
    published: int
    weights: Mapping[int, float]


class Eyes(Protocol):
    """What steering looks through."""

    def look(self) -> Mapping[int, Observation]:
        """What was seen of each broker lately; never waits for a broker."""
        ...


class Steerer:
    """Looks, judges and publishes at a steady beat."""

    def __init__(  # noqa: PLR0913 - two clocks among them, for tests
        self,
        eyes: Eyes,
        publisher: Publisher | None,
        *,
        topic: str,
        interval_s: float = 0.2,
        valid_s: float = 10.0,
        rules: SteeringRules | None = None,
        on_step: Callable[[SteeringStep], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Changes nothing yet; without a publisher it never does."""
        self._eyes = eyes
        self._publisher = publisher
        self._topic = topic
        self._interval_s = interval_s
        self._valid_s = valid_s
        self._rules = rules or SteeringRules()
        self._on_step = on_step
        self._clock = clock
        self._wall_us = wall_us
        self._state = Steering()
        self._said: dict[int, float] | None = None
        self._said_at = float("-inf")
        self._steps = self._changes = self._published = 0

    @property
    def report(self) -> SteeringReport:
        """What was done so far."""
        return SteeringReport(
            steps=self._steps,
            changes=self._changes,
            published=self._published,
            weights=self._said or {},
        )

    def run(self, stop: threading.Event, *, for_s: float | None = None) -> SteeringReport:
        """Steers until `stop` is set or `for_s` seconds have passed; delivers what is left."""
        start = time.monotonic()
        end = float("inf") if for_s is None else start + for_s
        due = start + self._interval_s
        while not stop.wait(max(0.0, min(due, end) - time.monotonic())):
            if due >= end:
                break
            self.step()
            due = next_beat(start, self._interval_s, time.monotonic())
        if self._publisher is not None:
            self._publisher.flush()
        return self.report

    def step(self) -> None:
        """Looks once, and says what follows if there is anything new to say."""
        seen = self._eyes.look()
        if not seen:
            return
        now = self._clock()
        self._state, verdicts = step(self._state, seen, now, self._rules)
        weights = {broker: verdict.weight for broker, verdict in verdicts.items()}
        changed = weights != self._said
        due = now - self._said_at >= self._valid_s / _REPEATS - self._interval_s
        self._steps += 1
        told = SteeringStep(
            weights=Weights(ts=self._wall_us(), valid_s=self._valid_s, weights=weights),
            verdicts=verdicts,
            seen=seen,
            changed=changed,
            published=(changed or due) and self._publisher is not None,
        )
        if changed or due:
            self._say(told, now)
        self._on_step(told)

    def _say(self, told: SteeringStep, now: float) -> None:
        if told.changed and self._said is not None:
            self._changes += 1
            log.info("weights_changed", weights=dict(told.weights.weights))
        self._said, self._said_at = dict(told.weights.weights), now
        for broker, verdict in told.verdicts.items():
            metrics.steer_weight_ratio.labels(str(broker)).set(verdict.weight)
            if verdict.latency_s is not None:
                metrics.steer_probe_seconds.labels(str(broker)).set(verdict.latency_s)
        if self._publisher is not None:
            value = dumps(weights_to(told.weights)).encode()
            self._publisher.publish(self._topic, KEY, value)
            self._published += 1
            metrics.steer_published_total.inc()


# ---------------------------------------------------------------- seeing a real cluster


class SpreadPublisher:
    """Writes each record to a partition of every broker; who is away misses it."""

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
                    "max.in.flight.requests.per.connection": 1,  # the newest is the last
                    "linger.ms": 0,
                    "message.timeout.ms": _GIVEN_UP_MS,
                    "reconnect.backoff.max.ms": 500,
                    "topic.metadata.refresh.interval.ms": 2000,
                },
            )

    def spread(self, places: Mapping[int, int]) -> None:
        """Writes to these partitions from now on."""
        self._places = tuple(sorted(places.values()))

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Hands a record over; never raises, and waits for nobody."""
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
        """Waits a moment for what is under way."""
        self._producer.flush(_FLUSH_S)

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.published += 1
        else:
            self.failed += 1


class Surroundings(Asking):
    """Who stands in the cluster, how quickly each answers, what each leads; asked in a thread."""

    def __init__(
        self,
        cluster: Cluster,
        told: Mapping[OwnTopic, Callable[[Mapping[int, int]], None]],
        intake: Intake,
    ) -> None:
        """Begins when entered.

        Args:
            cluster: Where it looks.
            told: Topics with a partition on each broker, and who is told where it is.
            intake: Who counts what each broker takes.
        """
        super().__init__(
            name="surroundings", complaint="cluster_could_not_be_asked", rest_s=_LOOK_EVERY_S
        )
        self._cluster = cluster
        self._told = told
        self._intake = intake
        self._guard = threading.Lock()
        self._requests: dict[int, deque[float]] = {}
        self._loads: dict[int, tuple[float, float]] = {}
        self._brokers: set[int] = set()
        self._live: set[int] = set()
        self._places: dict[str, dict[int, int]] = {}
        self._ensured_at = float("-inf")
        self._rates: dict[str, TopicRates] = {}

    def around(self, broker: int, probes: Probes) -> Observation:
        """What was seen of a broker, all told."""
        counted = self._intake.records_s()
        with self._guard:
            bytes_s, records_s = self._loads.get(broker, (None, None))
            return Observation(
                probes=probes,
                requests_s=tuple(self._requests.get(broker, ())),
                bytes_s=bytes_s,
                records_s=counted.get(broker) if counted else records_s,
            )

    def _visit(self) -> None:
        with self._cluster.admin(patience_s=_PATIENCE_S) as admin, self._heard() as heard:
            while not self._closed.wait(_LOOK_EVERY_S):
                self._look(admin)
                self._listen(heard)
                self._went_well()

    def ensure(self, admin: Admin) -> None:
        """Makes or grows our topics, and tells who holds which partition."""
        cluster = admin.cluster()
        self._brokers = {int(b.id) for b in cluster.brokers}
        self._live = {int(b) for b in cluster.live}
        for topic, tell in self._told.items():
            self._places[topic.name] = ensure_per_broker(admin, topic, self._brokers, self._live)
            tell(self._places[topic.name])
        self._ensured_at = time.monotonic()

    def _look(self, admin: Admin) -> None:
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
    def _heard(self) -> Iterator[Consumer]:
        """Rates that somebody publishes; a topic that is not there says nothing."""
        with kafka_errors(f"following {self._cluster.topics.rates}"):
            consumer = self._cluster.consumer(
                "trimtab-steer",
                {
                    "group.id": "trimtab-steer",  # asked for; no group is joined
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

    def _listen(self, consumer: Consumer) -> None:
        with kafka_errors(f"following {self._cluster.topics.rates}"):
            messages = consumer.consume(_RATES_BACK, 0)
        for message in messages:
            if message.error() is not None:
                continue
            try:
                rates = topic_rates_from(
                    parse(message.value() or b"", origin=self._cluster.topics.rates)
                )
            except BadFile as refused:
                log.warning("rates_were_refused", why=refused.message)
                continue
            self._rates[rates.topic] = rates
        loads = led(self._rates, self._intake.leaders, ts=time.time_ns() // 1000)
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


class LiveEyes:
    """Probes, requests and rates of a real cluster."""

    def __init__(self, prober: Prober, surroundings: Surroundings) -> None:
        self._prober = prober
        self._surroundings = surroundings

    def look(self) -> dict[int, Observation]:
        """What was seen of each broker lately."""
        return {
            broker: self._surroundings.around(broker, probes)
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
        told = {probe: prober.watch}
        if publisher is not None:
            told[weights] = publisher.spread
        intake = Intake(cluster, without=(own.probe, own.weights))
        surroundings = Surroundings(cluster, told, intake)
        with cluster.admin() as admin:
            surroundings.ensure(admin)
        with intake, surroundings:
            yield Steerer(
                LiveEyes(prober, surroundings),
                publisher,
                topic=own.weights,
                interval_s=interval_s,
                valid_s=valid_s,
                rules=rules,
                on_step=on_step,
            )
