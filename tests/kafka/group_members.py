"""A plan behind the real assignment service, and members of a group that ask for it."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from threading import Event, Lock, Thread

from confluent_kafka import Producer

from tests.kafka.streams import wait_until
from trimtab.apply.consumers.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupPlan,
    answered,
)
from trimtab.apply.consumers.kafka.group_reader import GroupReader, open_group_reader
from trimtab.apply.consumers.sockets.assignment_service import AssignmentService, ControllerClient
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.timeouts import Timeouts

PARTITIONS = 6
SOON_S = 240.0


class Controller:
    """A plan behind the real service; `decide` may be made to lie."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.plan: GroupPlan | None = None
        self.distort: Callable[[AssignmentAnswer, AssignmentRequest], AssignmentAnswer] = (
            lambda answer, _: answer
        )
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def decide_on(self, version: int, *bins: tuple[int, ...]) -> None:
        owners = {TopicPartition(self.topic, n): c for c, bin_ in enumerate(bins) for n in bin_}
        self.plan = GroupPlan(version=version, assignment=Assignment(owners))

    def answer(self, request: AssignmentRequest) -> AssignmentAnswer | None:
        return None if self.plan is None else self.distort(answered(self.plan, request), request)

    def there(self) -> AssignmentService:
        return AssignmentService(
            self.topic,  # groups of these tests are called as their topics
            self.answer,
            lambda: None if self.plan is None else self.plan.version,
            port=self.port,
        )


class Trace:
    """What all members of a group handled, in the order in which they did."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._offsets: dict[int, list[int]] = defaultdict(list)

    def note(self, partition: int, offset: int) -> None:
        with self._lock:
            self._offsets[partition].append(offset)

    def handled(self) -> dict[int, int]:
        """Records of each partition that were handled at least once."""
        with self._lock:
            return {p: len(set(offsets)) for p, offsets in self._offsets.items()}

    def check_order(self) -> None:
        """First sights ascend without a gap; a repeat goes back, and on from there in order."""
        for partition, offsets in self._offsets.items():
            assert list(dict.fromkeys(offsets)) == list(range(len(set(offsets)))), partition
            assert all(b <= a + 1 for a, b in pairwise(offsets)), partition


class Running:
    """A member that reads, handles and commits in a thread of its own."""

    def __init__(self, reader: GroupReader, trace: Trace) -> None:
        self.reader = reader
        self.blocked_s: list[float] = []
        self._trace = trace
        self._stop = Event()
        self._failed: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def owned(self) -> tuple[int, ...]:
        return tuple(sorted(p.partition for p in self.reader.owned))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                done: dict[TopicPartition, int] = {}
                for record in self.reader.read(0.1):
                    self._trace.note(record.partition, record.offset)
                    done[record.source] = record.offset + 1
                self.reader.commit(done)
                if self.reader.blocked_s not in (0.0, *self.blocked_s):
                    self.blocked_s.append(self.reader.blocked_s)
            self.reader.close()
        except BaseException as error:
            self._failed = error


class Members:
    """The members of one group, all of this process."""

    def __init__(self, cluster: LocalCluster, topic: str, url: str) -> None:
        self._cluster, self._topic, self._url = cluster, topic, url
        self.trace = Trace()
        self.all: list[Running] = []

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            reader = opened(self._cluster, self._topic, self._url, index=len(self.all))
            self.all.append(Running(reader, self.trace))

    def stop(self) -> None:
        for member in self.all:
            member.stop()

    @property
    def owned(self) -> list[tuple[int, ...]]:
        return [member.owned for member in self.all]

    @property
    def fallbacks(self) -> int:
        return sum(member.reader.fallbacks for member in self.all)

    @property
    def versions(self) -> set[int]:
        return {member.reader.version for member in self.all}

    def reach(self, *bins: tuple[int, ...], version: int) -> None:
        """Waits for these shares; which member has which depends on the order of joining."""
        wait_until(
            lambda: sorted(self.owned) == sorted(bins) and self.versions == {version},
            within_s=SOON_S,
            what=f"the assignment {bins}",
        )

    def share_everything(self, of: int = PARTITIONS) -> bool:
        return sorted(n for owned in self.owned for n in owned) == list(range(of))


@contextmanager
def members(cluster: LocalCluster, topic: str, url: str, count: int) -> Iterator[Members]:
    group = Members(cluster, topic, url)
    with ExitStack() as running:
        running.callback(group.stop)
        group.join(count)
        yield group
    blocked = sorted(s for member in group.all for s in member.blocked_s)
    print("blocked:", " ".join(f"{s:.2f}" for s in blocked))  # noqa: T201 - for who looks


def opened(
    cluster: LocalCluster,
    topic: str,
    url: str,
    *,
    index: int = 0,
    revoked: list[frozenset[TopicPartition]] | None = None,
    instance: str | None = None,
    session_s: float = 6.0,
) -> GroupReader:
    return open_group_reader(
        topic,
        [topic],
        Cluster(cluster.bootstrap_servers),
        line=ControllerClient(url),
        client_id=f"c-{index}",
        on_revoked=(revoked if revoked is not None else []).append,
        instance=instance,
        session_s=session_s,
    )


def member_with(
    cluster: LocalCluster,
    topic: str,
    url: str,
    *,
    revoked: list[frozenset[TopicPartition]] | None = None,
    group: str | None = None,
    index: int = 0,
    config: Mapping[str, object],
) -> GroupReader:
    """A member whose client is set up in a way of its own."""
    return GroupReader(
        group or topic,
        [topic],
        ControllerClient(url),
        (revoked if revoked is not None else []).append,
        client_id=f"c-{index}",
        timeouts=Timeouts(),
        config={"bootstrap_servers": cluster.bootstrap_servers, **config},
    )


IMPATIENT = {"max_poll_interval_ms": 1000}  # must read every second, or leaves
WATCHFUL = {"metadata_max_age_ms": 500}  # sees soon that a topic has grown


def produce(cluster: LocalCluster, topic: str, per_partition: int, *, of: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for _ in range(per_partition):
        for partition in range(of):
            producer.produce(topic, b"v", partition=partition)
    assert producer.flush(60) == 0


def everything(per_partition: int, *, of: int = PARTITIONS) -> dict[int, int]:
    return dict.fromkeys(range(of), per_partition)
