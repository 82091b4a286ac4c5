"""The brokers of the experiment: three local brokers, topics, a steering service, conditions.

Promise  The steering service runs during every run, and the choices of every policy are counted,
         so all policies have the same share of the machine. A condition is set up before its runs,
         which start when the weights are stable or after half a minute, and is ended after them.
         Each run waits again for stable weights, at most five seconds, because the previous run may
         have changed them. A run during which steering or the foreign load died is an error. All
         processes end with the block.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import Producer

from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.apply.records.kafka.weights_reader import WeightsReader
from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.errors import MeasurementError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.local.processes import ahead_of_others
from trimtab.observe.clock import TimedOut, wait_until
from trimtab.plan.records.live_weights import LiveWeights
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import partitioner_of
from trimtab_lab.papers.burato.design import (
    BROKERS,
    FOREIGN_MB_S,
    LIBRDKAFKA,
    PLACEMENT,
    PRODUCER,
    SATURATING,
    SLOWED,
    SLOWED_PERIOD_S,
    SLOWED_SHARE,
    BrokerRun,
    BrokerWorld,
    BuratoCell,
    ExperimentSetting,
    PolicyName,
    RunKind,
)
from trimtab_lab.papers.burato.kafka.driver import open_loop, saturate
from trimtab_lab.slow_broker import slowed

log = structlog.get_logger()

FOREIGN_TOPIC = "foreign"
_FOREIGN_BYTES = 10_000
_SETTLED_WITHIN_S = 30.0
_SETTLED_AGAIN_WITHIN_S = 5.0
_END_WITHIN_S = 15.0
_FOREIGN_WAIT_S = 4.0
_WARM_UP_S = 4.0
_SHED = 0.2
_ALL = range(1, BROKERS + 1)
_KEPT: Mapping[str, str] = {
    # Runs write gigabytes that are never read.
    "retention.bytes": str(128 * 2**20),
    "segment.bytes": str(32 * 2**20),
    "file.delete.delay.ms": "1000",
}
BROKER_PROPERTIES: Mapping[str, str] = {"log.retention.check.interval.ms": "5000"}


@dataclass(slots=True)
class ExperimentCluster:
    """A cluster with the experiment's topics; `weights` are those that steering publishes."""

    cluster: LocalCluster
    kafka: Cluster
    weights: LiveWeights
    folder: Path
    _beside: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # ------------------------------------------------------------ worlds

    @contextmanager
    def world(self, world: BrokerWorld) -> Iterator[None]:
        """Gives the brokers a condition while the block runs."""
        match world:
            case BrokerWorld.EVEN:
                self._settle(world, _ALL, _SETTLED_WITHIN_S)
                yield
            case BrokerWorld.SLOWED:
                with slowed(
                    self.cluster, broker=SLOWED, share=SLOWED_SHARE, period_s=SLOWED_PERIOD_S
                ):
                    self._settle(world, _ALL, _SETTLED_WITHIN_S)
                    yield
            case BrokerWorld.FOREIGN:
                with self._foreign_load():
                    time.sleep(_FOREIGN_WAIT_S)
                    yield

    def _settle(self, world: BrokerWorld, brokers: Collection[int], within_s: float) -> None:
        def settled() -> bool:
            if self._settled(world, brokers):
                return True
            self._check()
            return False

        try:
            wait_until(settled, within_s=within_s)
        except TimedOut:
            log.warning("weights_not_stable", weights=dict(self.weights()))

    def _settled(self, world: BrokerWorld, brokers: Collection[int]) -> bool:
        """Whether the weights of these brokers have the values expected in this condition."""
        weights = {broker: self.weights().get(broker) for broker in brokers}
        if world is BrokerWorld.FOREIGN:
            return True  # the resulting weights are not known in advance
        if world is BrokerWorld.SLOWED:
            shed = weights.pop(SLOWED, None)
            if shed is None or shed > _SHED:
                return False
        return all(weight == 1.0 for weight in weights.values())

    @contextmanager
    def _foreign_load(self) -> Iterator[None]:
        """Another producer sends records to the broker while the block runs."""
        words = ["load", "keyless", "--topic", FOREIGN_TOPIC, "--acks", "1", "--duration", "24h"]
        words += ["--value-bytes", str(_FOREIGN_BYTES)]
        words += ["--rate", f"{FOREIGN_MB_S * 2**20 / _FOREIGN_BYTES:.0f}"]
        with self.running("foreign", *words):
            yield

    @contextmanager
    def running(self, name: str, *words: str) -> Iterator[None]:
        """Runs one of our own programs while the block runs; its output goes to a log file."""
        command = [sys.executable, "-m", "trimtab.cli.main", *words]
        command += ["--bootstrap-server", self.kafka.servers]
        with (self.folder / f"{name}.log").open("ab") as said:
            child = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        self._beside[name] = child
        try:
            yield
        finally:
            del self._beside[name]
            child.terminate()
            try:
                child.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _check(self) -> None:
        """Raises if a program that a run needs has ended."""
        for name, child in self._beside.items():
            if child.poll() is not None:
                raise MeasurementError(
                    f"{name} ended during a run with exit code {child.returncode}.",
                    hint=f"See its log: {self.folder / f'{name}.log'}",
                )

    # ------------------------------------------------------------ runs

    def run(self, run: BrokerRun) -> dict[str, Any]:
        """Sends one run's records and returns the figures."""
        setting = run.cell.setting
        leaders = {p: replicas[0] for p, replicas in enumerate(PLACEMENT[setting.topic])}
        self._settle(setting.world, set(leaders.values()), _SETTLED_AGAIN_WITHIN_S)
        with self._sender(run) as sender, ahead_of_others():
            if run.cell.kind is RunKind.SATURATING:
                figures = saturate(
                    sender,
                    setting.topic,
                    value_bytes=setting.value_bytes,
                    duration_s=run.duration_s,
                    leaders=leaders,
                )
            else:
                figures = open_loop(
                    sender,
                    setting.topic,
                    value_bytes=setting.value_bytes,
                    duration_s=run.duration_s,
                    rate=run.rate,
                    seed=1000 * run.seed + run.repetition,  # the same for every policy
                    leaders=leaders,
                )
        self._check()
        if not figures["records"]:
            raise MeasurementError(
                f"{run.key}: no record was acknowledged.",
                hint="Check that the brokers are running, then start the experiment again: it "
                "repeats this run.",
            )
        return {**figures, "weights": {str(b): w for b, w in self.weights().items()}}

    def warm_up(self, on_run: Callable[[str, int, int], None]) -> None:
        """Warm-up; results discarded: brokers are slow after their start, whatever the policy."""
        for topic in PLACEMENT:
            on_run(f"warm-up {topic}", 0, 0)
            for acks in ("1", "all"):
                setting = ExperimentSetting(topic=topic, acks=acks, value_bytes=1000)
                cell = BuratoCell(setting=setting, policy=PolicyName("uniform-sticky"))
                self.run(BrokerRun(cell=cell, repetition=0, duration_s=_WARM_UP_S))

    @contextmanager
    def _sender(self, run: BrokerRun) -> Iterator[Any]:
        acks = run.cell.setting.acks
        config = {**PRODUCER, "acks": acks, "enable.idempotence": acks == "all"}
        if run.cell.kind is RunKind.SATURATING:
            config |= SATURATING
        policy = run.cell.policy
        if policy.name == LIBRDKAFKA:
            yield _Sending(Producer({**config, "bootstrap.servers": self.kafka.servers}))
            return
        batch_bytes = PRODUCER["batch.size"]
        under_way = OutstandingBytes(batch_bytes=batch_bytes)
        options = RoutingOptions(
            granularity=policy.granularity,
            sticky_bytes=batch_bytes,
            linger_s=PRODUCER["linger.ms"] / 1000,
            weights=self.weights,
            queues=under_way.queues,
            rack=policy.rack,
        )
        with RoutedProducer(
            {**config, "bootstrap.servers": self.kafka.servers},
            partitioner_of(policy.name, options),
            outstanding=under_way,
            racks=policy.rack is not None,
        ) as routed:
            yield _Sending(routed.producer, routed.produce)


class _Sending:
    """A producer, with or without one of our partitioners."""

    def __init__(self, producer: Any, produce: Callable[..., object] | None = None) -> None:
        self._producer = producer
        self.produce = produce or producer.produce
        self.poll, self.flush = producer.poll, producer.flush

    def purge(self) -> None:
        """Drops what is queued and was not sent yet."""
        self._producer.purge(in_queue=True, in_flight=False)


@contextmanager
def ground(
    *,
    home: Path,
    cache: Path,
    folder: Path,
    say: Callable[[str], None],
    on_run: Callable[[str, int, int], None],
) -> Iterator[ExperimentCluster]:
    """Starts brokers, topics and steering for the experiment, and warms them up."""
    with (
        LocalCluster(
            "burato",
            home=home,
            cache=cache,
            say=say,
            brokers=BROKERS,
            properties=BROKER_PROPERTIES,
        ) as cluster,
        prepared(cluster, folder) as place,
    ):
        place.warm_up(on_run)
        yield place


@contextmanager
def prepared(cluster: LocalCluster, folder: Path) -> Iterator[ExperimentCluster]:
    """Creates topics and starts steering on a running cluster of three brokers."""
    folder.mkdir(parents=True, exist_ok=True)
    kafka = Cluster(cluster.bootstrap_servers)
    with kafka.admin() as admin:
        for topic, replicas in {**PLACEMENT, FOREIGN_TOPIC: ((SLOWED,),)}.items():
            admin.create_topic(
                TopicSpec(
                    name=topic,
                    partitions=len(replicas),
                    replication=len(replicas[0]),
                    assignment=dict(enumerate(replicas)),
                    settings=dict(_KEPT),
                )
            )
    weights = LiveWeights()
    place = ExperimentCluster(cluster=cluster, kafka=kafka, weights=weights, folder=folder)
    try:
        with place.running("steer", "steer", "--execute"), WeightsReader(kafka, weights):
            yield place
    finally:
        with kafka.admin() as admin:
            for topic in (*PLACEMENT, FOREIGN_TOPIC):
                admin.delete_topic(topic)
