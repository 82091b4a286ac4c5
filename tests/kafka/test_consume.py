"""Directed consumers on real brokers: obedience, commits, crashes, dead letters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition
from kafka import KafkaProducer

from tests.kafka.streams import wait_until
from trimtab.apply.consumers.kafka.consumer import ConsumerConfig, DirectedConsumer, GroupConsumer
from trimtab.apply.consumers.work import Limits
from trimtab.apply.totals import Totals
from trimtab.errors import ApplyError, ConfigError
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.retry import Retry
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import (
    Command,
    Hello,
    MemberRate,
    Rate,
    ReadingStarted,
    Start,
    StateQuery,
    StateReport,
    Stop,
)
from trimtab.model.control_codec import control_from, control_to, receipt_from
from trimtab.model.json_reader import parse
from trimtab.model.record import Record

WITHIN_S = 180.0


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@dataclass
class Stage:
    """A data topic of two partitions, a group of its own, and a stand-in for the controller."""

    bootstrap: str
    admin: KafkaAdmin
    folder: Path
    own: OwnTopics = field(default_factory=lambda: OwnTopics(f"c{uuid.uuid4().hex[:8]}."))
    group: str = field(default_factory=lambda: f"pay-{uuid.uuid4().hex[:8]}")
    seq: int = 0

    def __post_init__(self) -> None:
        self.topic = f"{self.own.prefix}orders"
        self.control = self.own.control(self.group)
        self.p0, self.p1 = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)
        self.admin.create_topic(TopicSpec(name=self.topic, partitions=2, replication=3))
        self.admin.create_topic(TopicSpec(name=self.control, partitions=3, replication=3))
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        self.commander = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.control}
        )
        self.commander.init_transactions()
        self.reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "audit"})

    def config(self, **more: Any) -> ConsumerConfig:
        defaults: dict[str, Any] = {
            "group": self.group,
            "topics": (self.topic,),
            "cluster": Cluster(self.bootstrap, topics=self.own),
            "index": 0,
            "limits": Limits(batch_bytes=100_000, wait_s=0.1),
            "rate_every_s": 0.5,
        }
        return ConsumerConfig(**{**defaults, **more})

    def send(self, partition: int, count: int, **more: Any) -> None:
        """Data, all acknowledged when this returns."""
        for n in range(count):
            self.producer.produce(self.topic, b"v%d" % n, b"k", partition, **more)
        assert self.producer.flush(30) == 0

    def command(self, command: Command, *, to: int = 0, abort: bool = False) -> None:
        """A command in a transaction, as the controller sends it."""
        value = dumps(control_to(command, ts=1)).encode()
        self.commander.begin_transaction()
        self.commander.produce(self.control, value, partition=to + 1)
        if abort:
            assert self.commander.flush(10) == 0
            self.commander.abort_transaction(10)
        else:
            self.commander.commit_transaction(10)

    def start(self, *partitions: TopicPartition, to: int = 0) -> Start:
        self.seq += 1
        command = Start(epoch=1, seq=self.seq, partitions=partitions)
        self.command(command, to=to)
        return command

    def stop(self, *partitions: TopicPartition) -> Stop:
        self.seq += 1
        command = Stop(epoch=1, seq=self.seq, partitions=partitions)
        self.command(command)
        return command

    def reports(self, kind: type | None = None) -> list[Any]:
        """All that consumers have said to the controller."""
        said = [
            control_from(parse(v.decode(), origin="control")) for v in self.all_of(self.control)
        ]
        return [report for report in said if kind is None or isinstance(report, kind)]

    def all_of(self, topic: str, partition: int = 0) -> list[bytes]:
        return [message.value() for message in self.messages(topic, partition)]

    def messages(self, topic: str, partition: int = 0) -> list[Any]:
        begin, end = self.reader.get_watermark_offsets(TheirPartition(topic, partition), timeout=30)
        found: list[Any] = []
        self.reader.assign([TheirPartition(topic, partition, begin)])
        while not found or found[-1].offset() < end - 1:
            if begin == end:
                break
            message = self.reader.poll(30)
            assert message is not None
            assert message.error() is None
            found.append(message)
        return found

    def answered(self, command: Start | Stop) -> Any:
        """Waits for the answer to a command."""
        found: list[Any] = []

        def there() -> bool:
            found[:] = [r for r in self.reports() if getattr(r, "seq", None) == command.seq]
            return bool(found)

        wait_until(there, within_s=WITHIN_S, what=f"an answer to {command}")
        return found[0]

    def committed(self) -> dict[TopicPartition, int]:
        return self.admin.committed([self.group])[self.group]

    def receipts(self) -> list[Any]:
        values = [v for p in range(4) for v in self.all_of(self.own.receipts, p)]
        return [receipt_from(parse(v.decode(), origin="receipts")) for v in values]

    def process(self, *flags: str) -> subprocess.Popen[str]:
        """`trimtab consume` as a process of its own."""
        arguments = ["consume", "--bootstrap-server", self.bootstrap, "--group", self.group]
        arguments += ["--topic", self.topic, "--index", "0", "--wait", "200ms", "--json", *flags]
        return subprocess.Popen(
            [sys.executable, "-m", "trimtab.cli.main", *arguments],
            env={**os.environ, "TRIMTAB_TOPIC_PREFIX": self.own.prefix},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self.reader.close()
        for p in self.admin.topics():
            if p.topic.startswith(self.own.prefix) and p.partition == 0:
                self.admin.delete_topic(p.topic)


@pytest.fixture
def stage(cluster: LocalCluster, admin: KafkaAdmin, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(cluster.bootstrap_servers, admin, tmp_path)
    yield made
    made.close()


C = TypeVar("C", DirectedConsumer, GroupConsumer)


class Running(Generic[C]):
    """A consumer in a thread, and what became of it."""

    def __init__(self, consumer: C) -> None:
        self.consumer: C = consumer
        self.totals: Totals | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.totals = self.consumer.run()
        except Exception as error:
            self.error = error


def running(config: ConsumerConfig) -> AbstractContextManager[Running[DirectedConsumer]]:
    """A directed consumer that is ended with the block."""
    return ended_with_the_block(DirectedConsumer(config))


@contextmanager
def ended_with_the_block(consumer: C) -> Iterator[Running[C]]:
    under_way = Running(consumer)
    thread = threading.Thread(target=under_way.run)
    thread.start()
    try:
        yield under_way
    finally:
        under_way.consumer.stop.set()
        thread.join(WITHIN_S)
        assert not thread.is_alive()


def greeted(stage: Stage, consumers: int = 1) -> Callable[[], bool]:
    return lambda: len(stage.reports(Hello)) == consumers


def test_a_consumer_reads_what_it_is_told_to_and_nothing_else(stage):
    seen: list[Record] = []
    stage.send(0, 50, headers={"tt-seq": (7).to_bytes(8, "big"), "tt-ts": (9).to_bytes(8, "big")})
    stage.send(1, 30)
    old = Start(epoch=1, seq=999, partitions=(stage.p1,))
    stage.command(old)  # meant for a process that was here before

    with running(stage.config(handler=seen.append, run="r1")) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.command(Start(epoch=9, seq=1, partitions=(stage.p1,)), abort=True)
        assert isinstance(stage.answered(stage.start(stage.p0)), ReadingStarted)
        wait_until(lambda: stage.committed() == {stage.p0: 50}, within_s=WITHIN_S)
        assert {r.partition for r in seen} == {0}

        stage.answered(stage.start(stage.p1))
        wait_until(lambda: len(seen) == 80, within_s=WITHIN_S, what="the other partition")
        stopped = stage.answered(stage.stop(stage.p1))
        assert stopped.committed == {stage.p1: 30}
        stage.send(1, 5)
        stage.send(0, 5)
        wait_until(lambda: stage.committed().get(stage.p0) == 55, within_s=WITHIN_S)
        assert len(seen) == 85

        stage.command(StateQuery(epoch=2, query_id="q"))
        wait_until(lambda: stage.reports(StateReport), within_s=WITHIN_S, what="the state")
        wait_until(lambda: stage.reports(Rate), within_s=WITHIN_S, what="a sign of life")

    assert under_way.error is None
    assert under_way.totals is not None
    assert (under_way.totals.records, under_way.totals.dead_letters) == (85, 0)
    assert {r.incarnation for r in stage.reports()} == {under_way.consumer.incarnation}
    assert stage.reports(StateReport)[0].partitions == (stage.p0,)
    assert [r.offset for r in seen if r.partition == 0] == list(range(55))
    receipts = stage.receipts()
    assert Counter((r.partition, r.offset) for r in receipts) == Counter(
        [(0, n) for n in range(55)] + [(1, n) for n in range(30)]
    )
    first = next(r for r in receipts if (r.partition, r.offset) == (0, 0))
    assert (first.run, first.group, first.seq, first.event_ts) == ("r1", stage.group, 7, 9)
    assert first.started_ts <= first.finished_ts


def test_members_of_a_subscribed_group_report_their_capacity_under_their_member_id(stage):
    pause = threading.Event()
    own = OwnTopics(f"{stage.own.prefix}later.")  # no controller has been there yet
    config = stage.config(
        index=None,
        handler=lambda _: pause.wait(0.005) and None,
        receipts=False,
        cluster=Cluster(stage.bootstrap, topics=own),
    )
    stage.send(0, 5000)
    member = GroupConsumer(config, controller_url="http://127.0.0.1:1")
    with ended_with_the_block(member) as under_way:
        wait_until(lambda: stage.committed().get(stage.p0), within_s=WITHIN_S, what="a member")
        stage.control = own.control(stage.group)
        stage.admin.create_topic(TopicSpec(name=stage.control, partitions=3, replication=3))

        def told() -> list[MemberRate]:
            return [r for r in stage.reports(MemberRate) if r.max_records_s]

        wait_until(told, within_s=WITHIN_S, what="a capacity")
        (known,) = stage.admin.groups([stage.group])[0].members
        report = told()[0]

    assert (report.member, report.incarnation) == (known.member_id, member.incarnation)
    assert (report.max_records_s or 0) < 200
    assert under_way.error is None


def test_the_next_owner_goes_on_where_the_last_one_stopped(stage):
    seen: list[tuple[str, int]] = []
    slow = threading.Event()

    def first(record: Record) -> None:
        slow.wait(0.02)
        seen.append(("first", record.offset))

    def second(record: Record) -> None:
        seen.append(("second", record.offset))

    stage.send(0, 300)
    with (
        running(stage.config(handler=first)),
        running(stage.config(handler=second, index=1)),
    ):
        wait_until(greeted(stage, 2), within_s=WITHIN_S, what="both")
        stage.start(stage.p0)
        wait_until(lambda: len(seen) > 20, within_s=WITHIN_S)
        committed = stage.answered(stage.stop(stage.p0)).committed[stage.p0]
        assert committed == len(seen) < 300
        stage.start(stage.p0, to=1)
        wait_until(lambda: len(seen) >= 300, within_s=WITHIN_S)
    assert seen == [("first" if n < committed else "second", n) for n in range(300)]


def test_transactions_leave_no_lag_and_nothing_is_committed_before_it_is_written(stage):
    sender = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": stage.topic})
    sender.init_transactions()
    for n in range(3):
        sender.begin_transaction()
        sender.produce(stage.topic, b"%d" % n, partition=0)
        sender.commit_transaction(10)
    mended = threading.Event()
    written: list[int] = []
    tried = threading.Event()

    class Broken:
        def write(self, table: str, records: Any) -> None:
            tried.set()
            if not mended.is_set():
                raise OSError("disk full")
            written.extend(r.offset for r in records)

        def forget(self, partitions: Any) -> None: ...

    with running(stage.config(sink=Broken(), receipts=False)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.answered(stage.start(stage.p0))
        assert tried.wait(WITHIN_S)
        assert stage.committed() == {}
        mended.set()
        wait_until(lambda: stage.committed() == {stage.p0: 6}, within_s=WITHIN_S)
    assert written == [0, 2, 4]
    assert under_way.error is None


def rows(lake: Path, topic: str) -> list[int]:
    files = (lake / topic).rglob("[0-9]*.parquet")
    return sorted(n for f in files for n in pq.read_table(f)["offset"].to_pylist())


def test_a_consumer_killed_in_the_middle_of_its_work_loses_and_repeats_nothing(stage):
    #  0 … 199 committed │ 200 … 399 handled, not all written │ 400 in hand │ … 999: kill -9
    (stage.folder / "gate_of_a_test.py").write_text(
        "import pathlib, time\n"
        "def handle(record):\n"
        "    while record.offset == 400 and not pathlib.Path('open').exists():\n"
        "        pathlib.Path('waits').touch()\n"
        "        time.sleep(0.02)\n"
    )
    lake = stage.folder / "lake"
    flags = ("--lake", str(lake), "--handler", "gate_of_a_test:handle")
    killed = stage.process(*flags)
    try:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.send(0, 200)
        stage.start(stage.p0)
        wait_until(lambda: stage.committed() == {stage.p0: 200}, within_s=WITHIN_S)
        stage.send(0, 800)
        wait_until((stage.folder / "waits").exists, within_s=WITHIN_S)
    finally:
        killed.kill()
        killed.communicate(timeout=WITHIN_S)
    done = rows(lake, stage.topic)
    assert 200 <= stage.committed()[stage.p0] <= len(done) <= 400

    (stage.folder / "open").touch()
    heir = stage.process(*flags)
    try:
        wait_until(greeted(stage, 2), within_s=WITHIN_S, what="the next hello")
        assert rows(lake, stage.topic) == done, "nothing is read before a start"
        stage.start(stage.p0)
        wait_until(lambda: stage.committed()[stage.p0] == 1000, within_s=WITHIN_S)
        heir.send_signal(signal.SIGTERM)
        out, err = heir.communicate(timeout=WITHIN_S)
    finally:
        heir.kill()
    assert heir.returncode == 0, err
    assert rows(lake, stage.topic) == list(range(1000))
    assert 1000 - len(done) <= json.loads(out)["records"] <= 800
    receipts = {r.offset for r in stage.receipts()}
    assert receipts == set(range(1000)), "every processed record has a receipt"


def test_sigterm_finishes_the_record_in_hand_and_commits_it(stage):
    (stage.folder / "slow_of_a_test.py").write_text(
        "import pathlib, time\n"
        "def handle(record):\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(0.05)\n"
        "    with open('handled', 'a') as out: out.write(f'{record.offset}\\n')\n"
    )
    stage.send(0, 500)
    process = stage.process("--handler", "slow_of_a_test:handle", "--wait", "2s")
    try:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.start(stage.p0)
        wait_until((stage.folder / "begun").exists, within_s=WITHIN_S)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    handled = (stage.folder / "handled").read_text().split()
    assert 1 <= len(handled) < 500
    assert stage.committed() == {stage.p0: len(handled)}
    assert json.loads(out)["records"] == len(handled)


def test_a_record_that_cannot_be_handled_is_kept_as_it_was_among_the_dead(stage):
    def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no such account")

    stage.send(0, 3, headers={"shop": b"x"}, timestamp=12345)
    retry = Retry(attempts=2, first_s=0.0, most_s=0.0)
    with running(stage.config(handler=handle, retry=retry)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.start(stage.p0)
        wait_until(lambda: stage.committed() == {stage.p0: 3}, within_s=WITHIN_S)
    dead = [m for p in range(2) for m in stage.messages(f"{stage.topic}.dead", p)]
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in dead] == [(b"k", b"v1", 12345)]
    assert dict(dead[0].headers()) == {
        "shop": b"x",
        "tt-error": b"ValueError: no such account",
        "tt-topic": stage.topic.encode(),
        "tt-partition": b"0",
        "tt-offset": b"1",
    }
    assert under_way.totals is not None
    assert under_way.totals.dead_letters == 1


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def send_with_a_header_that_is_not_text(stage: Stage) -> None:
    class Bytes(str):
        def encode(self, *_: object, **__: object) -> bytes:
            return b"not\xfftext"

    producer = KafkaProducer(bootstrap_servers=stage.bootstrap)
    producer.send(stage.topic, b"v", b"k", partition=0, headers=[(Bytes("name"), b"x")]).get(30)
    producer.close()


def test_whatever_a_handler_raises_ends_among_the_dead_and_blocks_nobody(stage):
    raised = {
        1: ValueError("bad \udcff text"),
        2: Mute(),
        3: ValueError("ä" * 3_000_000),
        4: SystemExit(0),
        5: GeneratorExit(),
        6: ValueError("as large as the topic takes"),
        8: ValueError("a header whose name is not UTF-8"),
    }

    def handle(record: Record) -> None:
        if record.offset in raised:
            raise raised[record.offset]

    stage.send(0, 1)
    stage.producer.produce(stage.topic, b"", None, 0, headers=[("none", None), ("none", b"\xff")])
    stage.send(0, 4)
    large = os.urandom(999_000)
    stage.producer.produce(stage.topic, large, b"k", 0)
    stage.send(0, 1)
    send_with_a_header_that_is_not_text(stage)
    retry = Retry(attempts=1, first_s=0.0, most_s=0.0)
    with running(stage.config(handler=handle, retry=retry)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.start(stage.p0)
        wait_until(lambda: under_way.error or stage.committed() == {stage.p0: 9}, within_s=WITHIN_S)
    assert under_way.error is None
    dead = {
        int(dict(m.headers())["tt-offset"]): m
        for p in range(2)
        for m in stage.messages(f"{stage.topic}.dead", p)
    }
    told = {offset: dict(m.headers())["tt-error"].decode() for offset, m in dead.items()}
    assert told[1] == "ValueError: bad \\udcff text"
    assert "Mute: (its text cannot be shown" in told[2]
    assert told[3].startswith("ValueError: ääää")
    assert (told[4], told[5]) == ("SystemExit: 0", "GeneratorExit")
    assert dead[1].headers()[:2] == [("none", None), ("none", b"\xff")]
    assert dead[6].value() == large
    assert dead.keys() == raised.keys()
    assert {r.offset for r in stage.receipts()} == set(range(9))


def test_a_dead_letter_too_large_for_its_topic_goes_without_its_value(stage):
    stage.admin.create_topic(
        TopicSpec(
            name=f"{stage.topic}.dead",
            partitions=1,
            replication=3,
            settings={"max.message.bytes": "2000"},
        )
    )

    def handle(record: Record) -> None:
        raise ValueError("no such account")

    sizes = (500, 500, 500, 500, 500, 500, 50_000)  # a batch of the small ones is too large, too
    for size in sizes:
        stage.producer.produce(stage.topic, os.urandom(size), b"k", 0, headers={"shop": b"x"})
    stage.producer.produce(stage.topic, b"v", os.urandom(5000), 0)
    assert stage.producer.flush(30) == 0
    retry = Retry(attempts=1, first_s=0.0, most_s=0.0)
    with running(stage.config(handler=handle, retry=retry)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.start(stage.p0)
        wait_until(lambda: stage.committed() == {stage.p0: 8}, within_s=WITHIN_S)
    assert under_way.error is None
    dead = {int(dict(m.headers())["tt-offset"]): m for m in stage.messages(f"{stage.topic}.dead")}
    assert dead.keys() == set(range(8))
    for offset in range(6):
        assert len(dead[offset].value()) == 500
    assert dead[6].value() is None
    assert dict(dead[6].headers())["tt-omitted"] == b"value"
    assert dict(dead[6].headers())["shop"] == b"x"
    assert (dead[7].key(), dead[7].value()) == (None, None)
    assert dict(dead[7].headers())["tt-omitted"] == b"key, value, headers"


def test_a_group_that_somebody_subscribes_under_is_refused_at_start_and_later(stage):
    subscriber = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})

    with running(stage.config(handler=lambda _: None)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.answered(stage.start(stage.p0))
        subscriber.subscribe([stage.topic])
        wait_until(lambda: subscriber.poll(0.1) or subscriber.assignment(), within_s=WITHIN_S)
        stage.send(0, 1)
        wait_until(lambda: under_way.error, within_s=WITHIN_S, what="the refusal")
    assert isinstance(under_way.error, ApplyError)
    assert "the group has subscribed members" in str(under_way.error)

    with pytest.raises(ConfigError, match="1 subscribed member"):
        DirectedConsumer(stage.config(handler=lambda _: None)).run()
    subscriber.close()


def test_a_deleted_topic_is_let_go_and_the_consumer_lives_on(stage):
    other = f"{stage.topic}-other"
    gone = TopicPartition(other, 0)
    stage.admin.create_topic(TopicSpec(name=other, partitions=1, replication=3))
    with running(stage.config(handler=lambda _: None)) as under_way:
        wait_until(greeted(stage), within_s=WITHIN_S, what="hello")
        stage.answered(stage.start(stage.p0, gone))
        stage.admin.delete_topic(other)
        wait_until(
            lambda: under_way.consumer.owned == {stage.p0}, within_s=WITHIN_S, what="letting go"
        )
        stage.send(0, 3)
        wait_until(lambda: stage.committed().get(stage.p0) == 3, within_s=WITHIN_S)
    assert under_way.error is None
