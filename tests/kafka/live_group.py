"""A live group on real brokers and real processes, to be hurt and then judged.

Why      A fault test is worth what its judges are worth: after every fault the group must heal and
         drain, and what it left in topics is audited.
Promise  Records are numbered per key and remembered once they are acknowledged. Rates are published
         by a thread, so that a test says how loaded a partition is, and no Spark is needed.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as TheirPartition

from tests.kafka.judges import Said, falls, intervals, overlaps
from tests.kafka.streams import wait_until
from trimtab.apply.consumers.backends.processes import ProcessBackend
from trimtab.errors import TrimtabError
from trimtab.evaluate.order import Commit, RecordPosition, ViolationKind, audit, findings
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics, ensure
from trimtab.local.cluster import LocalCluster
from trimtab.model.codec import dumps
from trimtab.model.control import (
    ControlMessage,
    Decision,
    GroupState,
    Hello,
    PlanOrder,
    ReadingStopped,
    Receipt,
    Start,
    Stop,
)
from trimtab.model.control_codec import (
    control_from,
    decision_from,
    group_state_from,
    receipt_from,
    topic_rates_from,
)
from trimtab.model.json_reader import parse
from trimtab.model.rate_parts import RateParts
from trimtab.observe.clock import TimedOut

WITHIN_S = 240.0
"""Generous: on a busy machine a process may take ten seconds until it speaks."""

CAPACITY = 100.0
LOW, HIGH = 10.0, 60.0
"""Four partitions of LOW fit on one consumer, no two of HIGH do."""

_KEYS = 12
_PUBLISH_EVERY_S = 0.5
_DEAD_AFTER_S = 15.0


# ---------------------------------------------------------------- processes


class Run:
    """A `trimtab run` of its own."""

    def __init__(self, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def events(self) -> list[str]:
        """The names of what it has logged."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                event = json.loads(line)
                found += [str(event["event"])] if "event" in event else []
        return found

    def says(self, event: str, *, times: int = 1) -> None:
        """Waits until it has logged this."""
        wait_until(
            lambda: self.events().count(event) >= times, within_s=WITHIN_S, what=f"{event} ({self})"
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> int:
        """Asks it to end, and returns its exit code."""
        if self.is_alive:
            self.resume()
            self._process.terminate()
        return self._process.wait(WITHIN_S)

    def __repr__(self) -> str:
        return f"{self.log}: {self.log.read_text(errors='replace')[-2000:]}"


# ---------------------------------------------------------------- the group


@dataclass(repr=False)
class LiveGroup:
    """A data topic, its load, its rates and its processes; everything lies under one prefix."""

    cluster: LocalCluster
    admin: KafkaAdmin
    home: Path
    partitions: int = 4
    capacity: float | None = CAPACITY
    consume: str = "--service-time 4ms --wait 100ms --verbose"
    own: OwnTopics = field(default_factory=lambda: OwnTopics(f"f{uuid.uuid4().hex[:8]}."))

    def __post_init__(self) -> None:
        self.bootstrap = self.cluster.bootstrap_servers
        self.group = f"live-{self.own.prefix[:-1]}"
        self.topic = f"{self.own.prefix}orders"
        self.folder = self.home / "groups" / self.group
        self.admin.create_topic(
            TopicSpec(
                name=self.topic,
                partitions=self.partitions,
                replication=3,
                settings={"min.insync.replicas": "2"},
            )
        )
        ensure(self.admin, [t for t in self.own.all if t.name == self.own.rates])
        self.processes = ProcessBackend(lambda _: (), self.folder)
        self.measuring = ProcessBackend(lambda _: (), self.folder / "measure", kind="measuring")
        self.runs: list[Run] = []
        self.loads: dict[int, float] = {}
        self.ask(LOW)
        self.clock_stands_at: int | None = None
        self._acknowledged: set[RecordPosition] = set()
        self._numbers: Counter[bytes] = Counter()
        self._since: dict[int, int] = {}
        self._over = threading.Event()
        self._load = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._publish_rates, self._send_on)
        ]
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._sending = threading.Lock()
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------ what comes in

    def send(self, count: int) -> None:
        """Sends so many records to each partition; those acknowledged are remembered."""
        with self._sending:
            self._send(count)

    def _send(self, count: int) -> None:
        for _ in range(count):
            for partition in range(self.partitions):
                self._produce(partition)
            self._producer.poll(0)
        self._producer.flush(60)

    def _produce(self, partition: int) -> None:
        total = self._numbers.total()
        key = b"p%d-k%d" % (partition, total // self.partitions % _KEYS)
        self._numbers[key] += 1
        headers: list[tuple[str, str | bytes | None]] = [
            ("tt-seq", struct.pack(">q", self._numbers[key])),
            ("tt-ts", struct.pack(">q", time.time_ns() // 1000)),
        ]
        self._producer.produce(
            self.topic, b"v", key, partition, on_delivery=self._landed, headers=headers
        )

    def grow(self, partitions: int) -> None:
        """Adds partitions, and sends to them from now on."""
        total = self.partitions + partitions
        self.admin.add_partitions(self.topic, total)

        def is_known() -> bool:
            known = self._producer.list_topics(self.topic, timeout=30).topics[self.topic]
            return len(known.partitions) == total

        wait_until(self._quietly(is_known), what="the new partitions")
        self.partitions = total

    def _landed(self, error: object, message: Any) -> None:
        if error is None:
            self._acknowledged.add(
                RecordPosition(self.topic, message.partition(), message.offset())
            )

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Records keep coming while the block runs."""
        self._load.set()
        try:
            yield
        finally:
            self._load.clear()
            with self._sending:  # what was begun is acknowledged
                pass

    def _send_on(self) -> None:
        while not self._over.wait(0.1):
            with self._sending:
                if self._load.is_set():
                    self._send(2)

    # ------------------------------------------------------------ what is measured

    def ask(self, *loads: float) -> None:
        """Says how loaded partitions are: one value for all, or one for each."""
        given = loads if len(loads) > 1 else loads * self.partitions
        self.loads = dict(enumerate(given))

    def _publish_rates(self) -> None:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group}
        producer = Producer({"bootstrap.servers": self.bootstrap})
        with closing(Consumer(config)) as looking:
            while not self._over.wait(_PUBLISH_EVERY_S):
                with suppress(KafkaException):
                    producer.produce(self.own.rates, self._rates(looking), self.topic.encode())
                    producer.poll(0)
        producer.flush(10)

    def _rates(self, looking: Consumer) -> bytes:
        now = self.clock_stands_at or time.time_ns() // 1000
        ends, done = self.ends(looking), self.committed(looking)
        partitions = {
            str(n): {
                "bytes_s": 1000 * load,
                "records_s": load,
                "end_offset": ends[n],
                "lag": {self.group: ends[n] - done.get(n, 0)},
                "source": "records",
                "complete": True,
                "stale": False,
            }
            for n, load in self.loads.items()
            if n in ends
        }
        span = {"ts": now, "window_start": now - 1_000_000, "window_end": now}
        return dumps({"v": 1, **span, "topic": self.topic, "partitions": partitions}).encode()

    def ends(self, looking: Consumer | None = None) -> dict[int, int]:
        """The end of each partition."""
        with self._looking(looking) as at:
            places = [TheirPartition(self.topic, n) for n in range(self.partitions)]
            return {p.partition: at.get_watermark_offsets(p, timeout=30)[1] for p in places}

    def committed(self, looking: Consumer | None = None) -> dict[int, int]:
        """What the group has committed."""
        with self._looking(looking) as at:
            places = [TheirPartition(self.topic, n) for n in range(self.partitions)]
            found = at.committed(places, timeout=30)
            return {p.partition: p.offset for p in found if p.offset >= 0}

    @contextmanager
    def _looking(self, given: Consumer | None) -> Iterator[Consumer]:
        if given is not None:
            yield given
            return
        with closing(
            Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        ) as own:
            yield own

    # ------------------------------------------------------------ processes

    def argv(self, *flags: str) -> list[str]:
        """A command that controls this group by what it is asked for, and quickly."""
        return [
            *(sys.executable, "-m", "trimtab.cli.main", "run", "--verbose"),
            *("--bootstrap-server", self.bootstrap, "--group", self.group, "--topic", self.topic),
            *("--planner", "mwf", "--unit", "records/s"),
            *(() if self.capacity is None else ("--capacity", f"{self.capacity:g}")),
            *("--interval", "500ms", "--max-quiet", "2s", "--no-measure", *flags),
        ]

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "TRIMTAB_TOPIC_PREFIX": self.own.prefix,
            "TRIMTAB_HOME": str(self.home),
            "TRIMTAB_MEASURE__STALE_AFTER_S": "5",
            "TRIMTAB_SPARK__CONF": json.dumps({"spark.sql.shuffle.partitions": "2"}),
        }

    def run(self, *flags: str) -> Run:
        """Starts a controller that acts."""
        dead_after = [] if "group" in flags else ["--dead-after", f"{_DEAD_AFTER_S:g}s"]
        more = ["--execute", "--consume", self.consume, *dead_after, *flags]
        return self.watch_only(*more)

    def watch_only(self, *flags: str) -> Run:
        """Starts one that decides and does nothing."""
        log = self.home / f"run-{len(self.runs)}.log"
        self.runs.append(Run(self.argv(*flags), self.env, log))
        return self.runs[-1]

    def consumers(self) -> dict[int, int]:
        """The consumers that live, and their pids."""
        return {i: int(name.split()[0]) for i, name in self.processes.running().items()}

    def signal(self, consumer: int, number: signal.Signals) -> None:
        os.kill(self.consumers()[consumer], number)

    def close(self) -> None:
        """Ends every process that was started here."""
        self._load.clear()
        self._over.set()
        for run in self.runs:
            if run.is_alive:
                run.kill()
        for processes in (self.processes, self.measuring):
            for number in processes.running():
                processes.kill(number)
        for thread in self._threads:
            thread.join(30)

    # ------------------------------------------------------------ what topics hold

    def records(
        self, topic: str, partitions: int, *, committed: bool = True
    ) -> Iterator[tuple[int, int, bytes | None, bytes]]:
        """All that is in a topic now: partition, offset, key, value."""
        isolation = "read_committed" if committed else "read_uncommitted"
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{self.group}-judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
        with closing(Consumer(config)) as reader:
            places = [TheirPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)]
            reader.assign(places)
            ended: set[int | None] = set()
            deadline = time.monotonic() + WITHIN_S
            while len(ended) < partitions:
                assert time.monotonic() < deadline, f"{topic} did not end"
                for message in reader.consume(500, 0.1):
                    if message.error() is not None:
                        ended.add(message.partition())
                    elif (value := message.value()) is not None:
                        place = message.partition() or 0, message.offset() or 0
                        yield (*place, message.key(), value)

    def said(self, *, consumers: int = 9) -> list[Said]:
        """All commands and reports of the control topic, those of aborted transactions left out."""
        topic = self.own.control(self.group)
        return sorted(said_from(p, o, v) for p, o, _, v in self.records(topic, consumers))

    def states(self) -> list[GroupState]:
        """All states of the group that were written down."""
        topic = self.own.group(self.group)
        if not self.admin.topics([topic]):
            return []
        return [
            group_state_from(parse(value, origin=topic))
            for _, _, key, value in self.records(topic, 1)
            if key == b"state"
        ]

    def decisions(self) -> list[Decision]:
        topic = self.own.decisions
        return [decision_from(parse(v, origin=topic)) for *_, v in self.records(topic, 1)]

    def measured_ts(self) -> int:
        """How new the newest rates are."""
        topic = self.own.rates
        read = (topic_rates_from(parse(v, origin=topic)) for *_, v in self.records(topic, 1))
        whole = filter(None, map(RateParts().joined, read))
        return max((rates.ts for rates in whole), default=0)

    def receipts(self) -> list[Receipt]:
        """Those of records sent since `mark`."""
        topic = self.own.receipts
        found = [receipt_from(parse(v, origin=topic)) for *_, v in self.records(topic, 4)]
        return [r for r in found if r.offset >= self._since.get(r.partition, 0)]

    # ------------------------------------------------------------ states to wait for

    def mark(self) -> None:
        """From here on receipts count."""
        self._since = self.ends()
        self._acknowledged = set()

    def is_drained(self) -> bool:
        """Whether all that was sent is committed."""
        ends, done = self.ends(), self.committed()
        return all(done.get(n, 0) >= end for n, end in ends.items())

    def drain(self) -> None:
        self._wait(self.is_drained, "the end")

    def settle(self, consumers: int, *, above: int = 0) -> GroupState:
        """Waits until so many consumers read everything, by what is written down and alive."""
        found: list[GroupState] = []

        def is_settled() -> bool:
            found[:] = self.states()[-1:]
            return (
                bool(found)
                and found[0].clean
                and found[0].epoch > above
                and len(found[0].assignment) == self.partitions
                and len(set(found[0].assignment.values())) == consumers
                and sorted(set(found[0].assignment.values())) == sorted(self.consumers())
            )

        self._wait(is_settled, f"{consumers} consumers that read everything")
        return found[0]

    def _wait(self, question: Callable[[], bool], what: str) -> None:
        try:
            wait_until(self._quietly(question), within_s=WITHIN_S, what=what)
        except TimedOut as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    @staticmethod
    def _quietly(question: Callable[[], bool]) -> Callable[[], bool]:
        """Brokers that do not answer are asked again."""

        def ask() -> bool:
            try:
                return question()
            except (KafkaException, TrimtabError):
                return False

        return ask

    # ------------------------------------------------------------ judgement

    @property
    def sent(self) -> Mapping[bytes, int]:
        """How many records of each key were sent."""
        return dict(self._numbers)

    def judge(self, *, directed: bool = True, no_repeats: bool = False) -> None:
        """Everything acknowledged was processed, in order, by one owner at a time."""
        assert self._acknowledged, "nothing was sent, so nothing is proven"
        self.drain()
        receipts = self.receipts()
        said = self.said() if directed else []
        commits = [
            Commit(p.topic, p.partition, s.ts, offset)
            for s in said
            if isinstance(s.what, ReadingStopped)
            for p, offset in s.what.committed.items()
            if offset is not None
        ]
        broken = audit(receipts, expected=self._acknowledged, commits=commits)
        worst = [v for v in broken if no_repeats or v.kind is not ViolationKind.REPEAT]
        assert not findings(broken, no_repeats=no_repeats), worst[:5]
        reports = [s for s in said if s.partition == 0 and not isinstance(s.what, PlanOrder)]
        assert not overlaps(intervals(reports, receipts, self._living(reports)))
        for partition in {s.partition for s in said} - {0}:
            commands = [s for s in said if s.partition == partition]
            epochs = [s.what.epoch for s in sorted(commands, key=lambda s: s.offset)]  # type: ignore[union-attr]
            assert not falls(epochs)
        if directed:
            assert not falls(s.epoch for s in self.states())

    def _living(self, reports: Iterable[Said]) -> set[str]:
        """The processes that live: the last that said hello under an index that has one."""
        last: dict[int, str] = {}
        for said in sorted(reports, key=lambda s: s.offset):
            if isinstance(said.what, Hello):
                last[said.what.consumer] = said.what.incarnation
        return {last[i] for i in self.consumers() if i in last}

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """What is written to control and state from now on, as soon as it is."""
        with closing(Watch(self)) as watching:
            yield watching

    def story(self) -> str:
        """What a failed test has to tell."""
        lines = [f"{self.loads=} {self.consumers()=} since {self._since}"]
        with suppress(KafkaException, TrimtabError, AssertionError):
            lines += [f"{self.ends()=} {self.committed()=}", *map(str, self.states()[-3:])]
        lines += [f"{run}" for run in self.runs[-2:]]
        for log in sorted(self.folder.glob("consumer-*.log")):
            lines += [f"{log}: {log.read_text(errors='replace')[-1500:]}"]
        return "\n".join(lines)


def said_from(partition: int, offset: int, value: bytes) -> Said:
    node = parse(value, origin="control")
    return Said(partition, offset, node.need("ts").integer(), control_from(node))


class Watch:
    """Reads along without waiting for a transaction's end: what a crash may catch half done."""

    def __init__(self, group: LiveGroup, *, consumers: int = 9) -> None:
        self._state = group.own.group(group.group)
        self._reader = Consumer(
            {
                "bootstrap.servers": group.bootstrap,
                "group.id": f"{group.group}-watch",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 10,
            }
        )
        places = [TheirPartition(group.own.control(group.group), n) for n in range(consumers)]
        places.append(TheirPartition(self._state, 0))
        for place in places:
            place.offset = self._reader.get_watermark_offsets(place, timeout=30)[1]
        self._reader.assign(places)

    def sees(self, is_it: Callable[[ControlMessage | GroupState], bool]) -> Said | GroupState:
        """Waits for a record, and returns it."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            for message in self._reader.consume(1, 0.05):
                value = message.value()
                if message.error() is not None or not value:
                    continue
                if message.topic() != self._state:
                    said = said_from(message.partition() or 0, message.offset() or 0, value)
                    if is_it(said.what):
                        return said
                elif message.key() == b"state":
                    state = group_state_from(parse(value, origin=self._state))
                    if is_it(state):
                        return state
        raise AssertionError("what was watched for did not come")

    def sees_command(self, kind: type[Start] | type[Stop]) -> int:
        """Waits for a command, and returns the consumer that it is for."""
        found = self.sees(lambda what: isinstance(what, kind))
        assert isinstance(found, Said)
        return found.partition - 1

    def close(self) -> None:
        self._reader.close()


@contextmanager
def live_group(cluster: LocalCluster, home: Path, **more: Any) -> Iterator[LiveGroup]:
    """A group whose processes end with the block."""
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        group = LiveGroup(cluster, admin, home, **more)
        try:
            yield group
        finally:
            group.close()
