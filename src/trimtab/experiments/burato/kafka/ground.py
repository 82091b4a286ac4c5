"""Where runs take place: three local brokers, the topics, a steering service, and the worlds.

Promise  The steering service runs beside every run, whoever chooses, so that nobody has the machine
         to himself. A world is entered before its runs and left after them; broker and foreign load
         are as before then. Nothing outlives the block.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import structlog
from confluent_kafka import Producer

from trimtab.apply.kafka.routed_producer import RoutedProducer
from trimtab.apply.kafka.weights_reader import WeightsReader
from trimtab.apply.outstanding import Outstanding
from trimtab.client_properties import ClientProperties
from trimtab.experiments.burato.design import (
    BROKERS,
    FOREIGN_MB_S,
    LIBRDKAFKA,
    OURS,
    PLACEMENT,
    PRODUCER,
    SLOWED,
    SLOWED_PERIOD_S,
    SLOWED_SHARE,
    BrokerRun,
    Cell,
    Kind,
    Policy,
    Setting,
    World,
)
from trimtab.experiments.burato.kafka.driver import open_loop, saturate
from trimtab.measure.kafka.admin import TopicSpec, connect
from trimtab.plan.routing.live_weights import LiveWeights
from trimtab.plan.routing.partitioner import RoutingOptions, nothing_queued
from trimtab.plan.routing.registry import partitioner_of
from trimtab.processes import ahead_of_others
from trimtab.testing.local_cluster import LocalCluster
from trimtab.testing.slowed import slowed

log = structlog.get_logger()

FOREIGN_TOPIC = "foreign"
_FOREIGN_BYTES = 10_000
_SETTLED_WITHIN_S = 20.0
_FOREIGN_WAIT_S = 4.0
_WARM_UP_S = 4.0
_SHED = 0.2
_BY_QUEUE = ("adaptive", "rack-aware")
_KEPT: Mapping[str, str] = {
    # Runs write gigabytes that nobody reads.
    "retention.bytes": str(128 * 2**20),
    "segment.bytes": str(32 * 2**20),
    "file.delete.delay.ms": "1000",
}
BROKER_PROPERTIES: Mapping[str, str] = {"log.retention.check.interval.ms": "5000"}


@dataclass(slots=True)
class Ground:
    """A cluster with the experiment's topics; `weights` is what steering says of its brokers."""

    cluster: LocalCluster
    bootstrap_server: str
    weights: LiveWeights
    folder: Path

    # ------------------------------------------------------------ worlds

    @contextmanager
    def world(self, world: World) -> Iterator[None]:
        """The brokers as a world has them, once weights have settled."""
        match world:
            case World.EVEN:
                self._settle(lambda: min(self._steered().values(), default=0.0) >= 1.0)
                yield
            case World.SLOWED:
                with slowed(
                    self.cluster, broker=SLOWED, share=SLOWED_SHARE, period_s=SLOWED_PERIOD_S
                ):
                    self._settle(lambda: self._steered().get(SLOWED, 1.0) <= _SHED)
                    yield
            case World.FOREIGN:
                with self._foreign_load():
                    time.sleep(_FOREIGN_WAIT_S)
                    yield

    def _steered(self) -> Mapping[int, float]:
        return self.weights()

    def _settle(self, settled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SETTLED_WITHIN_S
        while not settled():
            if time.monotonic() > deadline:
                log.warning("weights_did_not_settle", weights=dict(self._steered()))
                return
            time.sleep(0.1)

    @contextmanager
    def _foreign_load(self) -> Iterator[None]:
        """Somebody else's records for the broker."""
        words = ["load", "keyless", "--topic", FOREIGN_TOPIC, "--acks", "1", "--duration", "24h"]
        words += ["--value-bytes", str(_FOREIGN_BYTES)]
        words += ["--rate", f"{FOREIGN_MB_S * 2**20 / _FOREIGN_BYTES:.0f}"]
        with self._beside(*words, log_name="foreign.log"):
            yield

    @contextmanager
    def _beside(self, *words: str, log_name: str) -> Iterator[None]:
        """One of our own programs beside the runs."""
        with (self.folder / log_name).open("ab") as said, _program(self, words, said):
            yield

    # ------------------------------------------------------------ runs

    def run(self, run: BrokerRun) -> dict[str, Any]:
        """Sends one run's records and says what became of them."""
        setting = run.cell.setting
        leaders = {p: replicas[0] for p, replicas in enumerate(PLACEMENT[setting.topic])}
        with self._sender(run) as sender, ahead_of_others():
            if run.cell.kind is Kind.SATURATING:
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
                    seed=run.repetition,
                    leaders=leaders,
                )
        return {**figures, "weights": {str(b): w for b, w in self.weights().items()}}

    def warm_up(self, on_run: Callable[[str, int, int], None]) -> None:
        """Sends to every topic what nobody judges: cold brokers are slow, whoever chooses."""
        for topic in PLACEMENT:
            on_run(f"warm-up {topic}", 0, 0)
            for acks in ("1", "all"):
                cell = Cell(setting=Setting(topic=topic, acks=acks), policy=Policy(OURS))
                self.run(BrokerRun(cell=cell, repetition=0, duration_s=_WARM_UP_S))

    @contextmanager
    def _sender(self, run: BrokerRun) -> Iterator[Any]:
        acks = run.cell.setting.acks
        config = {**PRODUCER, "acks": acks, "enable.idempotence": acks == "all"}
        policy = run.cell.policy
        if policy.name == LIBRDKAFKA:
            yield _Sending(Producer({**config, "bootstrap.servers": self.bootstrap_server}))
            return
        batch_bytes = PRODUCER["batch.size"]
        queues = Outstanding(batch_bytes=batch_bytes) if policy.name in _BY_QUEUE else None
        options = RoutingOptions(
            granularity=policy.granularity,
            sticky_bytes=batch_bytes,
            linger_s=PRODUCER["linger.ms"] / 1000,
            weights=self.weights,
            queues=nothing_queued if queues is None else queues.queues,
            rack="a",
        )
        with RoutedProducer.connect(
            self.bootstrap_server,
            ClientProperties.none(),
            partitioner_of(policy.name, options),
            config=config,
            outstanding=queues,
            wait_s=0,
        ) as routed:
            yield _Sending(routed.producer, routed.produce)


class _Sending:
    """A client, with or without our choice before it."""

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
) -> Iterator[Ground]:
    """Brokers, topics and steering, just for this, and warm."""
    with (
        LocalCluster(
            "burato",
            home=home,
            cache=cache,
            say=say,
            brokers=BROKERS,
            properties=BROKER_PROPERTIES,
            enduring=True,
        ) as cluster,
        prepared(cluster, folder) as place,
    ):
        place.warm_up(on_run)
        yield place


@contextmanager
def prepared(cluster: LocalCluster, folder: Path) -> Iterator[Ground]:
    """Topics and steering on a cluster of three brokers that runs already."""
    folder.mkdir(parents=True, exist_ok=True)
    server = cluster.bootstrap_servers
    with connect(server, ClientProperties.none()) as admin:
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
    place = Ground(cluster=cluster, bootstrap_server=server, weights=weights, folder=folder)
    reader = WeightsReader(server, weights)
    with place._beside("steer", "--execute", log_name="steer.log"), reader:
        yield place


@contextmanager
def _program(place: Ground, words: tuple[str, ...], said: IO[bytes]) -> Iterator[None]:
    child = subprocess.Popen(  # noqa: S603 - our own program
        [
            *(sys.executable, "-m", "trimtab.cli.main", *words),
            *("--bootstrap-server", place.bootstrap_server),
        ],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
