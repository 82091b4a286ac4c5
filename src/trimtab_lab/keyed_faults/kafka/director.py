"""A scripted controller of a directed group: it gives partitions, takes them, and errs on purpose.

Why      A real controller waits before it calls a consumer dead, and ends it. This one declares
         consumers dead when the campaign says so, also those that live, and moves partitions often.
Promise  It asks a living consumer to stop and waits for its answer before another one starts. Of a
         consumer that was declared dead it waits for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from confluent_kafka import OFFSET_BEGINNING, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import ensure
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import (
    Command,
    ControlMessage,
    Hello,
    ReadingStarted,
    ReadingStopped,
    Start,
    Stop,
)
from trimtab.model.control_codec import control_from, control_to
from trimtab.model.json_reader import parse
from trimtab.observe.clock import wall_clock_us

_EPOCH = 1
_TURN_S = 0.1


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer process."""

    index: int
    incarnation: str


class Director:
    """Directs the consumers of one topic from a thread of its own.

    `move_every_s` is how often it moves a partition for no reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        partitions: int,
        *,
        seed: int,
        move_every_s: float = 3.0,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._control = cluster.topics.control(group)
        with cluster.admin() as admin:
            ensure(admin, cluster.topics.of_group(group))
        self._producer = cluster.producer(f"{group}-director", {"linger.ms": 0})
        self._reader = cluster.consumer(
            f"{group}-director",
            {"group.id": f"{group}-director", "enable.auto.commit": False},
        )
        self._reader.assign([TheirPartition(self._control, 0, OFFSET_BEGINNING)])
        self._random = Random(f"{seed}/director")
        self._move_every_s = move_every_s
        self._moved_at = time.monotonic()
        self._lock = threading.Lock()
        self._living: dict[int, str] = {}
        self._buried: set[str] = set()
        self._owners: dict[int, Holder] = {}
        self._readers: dict[int, Holder] = {}
        self._wanted: dict[int, int] = {}
        self._stopping: set[int] = set()
        self._seq = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begins to direct."""
        self._thread.start()

    def stop(self) -> None:
        """Gives no more commands."""
        self._over.set()
        self._thread.join(60)
        self._reader.close()

    def owners(self) -> dict[int, int]:
        """The consumer of each partition that has one, by its index."""
        with self._lock:
            return {p: holder.index for p, holder in self._owners.items() if self._lives(holder)}

    def living(self) -> frozenset[int]:
        """The consumers that have said hello and were not declared dead."""
        with self._lock:
            return frozenset(self._living)

    def declare_dead(self, index: int) -> None:
        """The consumer's process counts as dead: others get its partitions at once."""
        with self._lock:
            incarnation = self._living.pop(index, None)
            if incarnation is not None:
                self._buried.add(incarnation)

    def all_read(self) -> bool:
        """Whether every partition has an owner that has said that it reads it."""
        with self._lock:
            return all(
                (holder := self._owners.get(partition)) is not None
                and self._lives(holder)  # else another one is about to get the partition
                and self._readers.get(partition) == holder
                for partition in range(self._partitions)
            )

    def keep_still(self) -> None:
        """Moves no more partitions without a reason."""
        self._move_every_s = float("inf")

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                for report in self._reports():
                    self._take(report)
                with self._lock:
                    commands = list(self._commands())
                for index, command in commands:
                    self._send(index, command)
        except BaseException as error:
            self.failure = error
            raise

    def _reports(self) -> Iterator[ControlMessage]:
        try:
            messages = self._reader.consume(100, _TURN_S)
        except KafkaException:
            return
        for message in messages:
            if message.error() is None:
                yield control_from(parse((message.value() or b"").decode(), origin="control"))

    def _take(self, report: ControlMessage) -> None:
        with self._lock:
            match report:
                case Hello():
                    if report.incarnation not in self._buried:
                        self._living[report.consumer] = report.incarnation
                case ReadingStarted():
                    holder = Holder(report.consumer, report.incarnation)
                    self._readers |= {p.partition: holder for p in report.partitions}
                case ReadingStopped():
                    holder = Holder(report.consumer, report.incarnation)
                    for partition in report.partitions:
                        if self._owners.get(partition.partition) == holder:
                            del self._owners[partition.partition]
                            self._stopping.discard(partition.partition)
                case _:
                    pass

    def _lives(self, holder: Holder) -> bool:
        return self._living.get(holder.index) == holder.incarnation

    def _commands(self) -> Iterator[tuple[int, Command]]:
        """What is to be said now; the lock is held."""
        if not self._living:
            return
        self._choose()
        for partition in range(self._partitions):
            holder = self._owners.get(partition)
            wanted = self._wanted[partition]
            if holder is not None and self._lives(holder):
                if holder.index != wanted and partition not in self._stopping:
                    self._stopping.add(partition)
                    yield (
                        holder.index,
                        Stop(
                            epoch=_EPOCH,
                            seq=self._next(),
                            partitions=(TopicPartition(self._topic, partition),),
                            incarnation=holder.incarnation,
                        ),
                    )
                continue
            self._stopping.discard(partition)
            new = Holder(wanted, self._living[wanted])
            self._owners[partition] = new
            yield (
                wanted,
                Start(
                    epoch=_EPOCH,
                    seq=self._next(),
                    partitions=(TopicPartition(self._topic, partition),),
                    incarnation=new.incarnation,
                ),
            )

    def _choose(self) -> None:
        """Who shall have each partition: spread evenly, and now and then another one."""
        living = sorted(self._living)
        for partition in range(self._partitions):
            if self._wanted.get(partition) not in self._living:
                held = {n: list(self._wanted.values()).count(n) for n in living}
                self._wanted[partition] = min(living, key=lambda n: (held[n], n))
        idle = [n for n in living if n not in self._wanted.values()]
        due = time.monotonic() - self._moved_at > self._move_every_s
        if due or idle:
            self._moved_at = time.monotonic()
            target = idle[0] if idle else self._random.choice(living)
            self._wanted[self._random.randrange(self._partitions)] = target

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _send(self, index: int, command: Command) -> None:
        value = dumps(control_to(command, ts=wall_clock_us())).encode()
        self._producer.produce(self._control, value, partition=index + 1)
        self._producer.flush(30)
