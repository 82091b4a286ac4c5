"""The shipped manifests, started as processes on real brokers: they scale a skewed group by load.

The chart is rendered with its defaults and what every user must give: brokers, topic, group and
capacity. Shorter windows of measuring are set so that the test is quick. One release measures for
both modes, as the values allow; monitor and Spark are those of the manifests. It is one test, since
its two halves share a Spark that takes long to start.
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition

from tests.docs.helm_subset import Documents, chart
from tests.kafka.pods import Namespace, Pod
from tests.kafka.streams import wait_until
from trimtab.apply.consumers.kafka.control_channel import TO_CONTROLLER
from trimtab.apply.consumers.kafka.leadership import GroupConfig, persisted_state
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.model.control import MemberRate, Rate
from trimtab.model.control_codec import control_from
from trimtab.model.json_reader import parse
from trimtab.observe.clock import TimedOut

WITHIN_S = 300.0
CAPACITY = 100
QUIET = (20.0, 5.0, 5.0, 5.0)
"""One consumer carries it."""
SKEWED = (60.0, 75.0, 10.0, 10.0)
"""One partition has half of it all, and no consumer carries the two hot ones together.

The first is moved to consumer 1, and has most of the load when it is quiet again: a pod is freed
only if its partition then goes back to consumer 0.
"""

HANDLER = '''
import time

def handle(record):
    """Five times as quick as the capacity that the test names."""
    time.sleep(0.002)
'''


@dataclass
class Shop:
    """A topic under load, and a namespace that measures it."""

    cluster: LocalCluster
    namespace: Namespace
    topic: str
    prefix: str
    release: str
    load: tuple[float, ...] = QUIET
    _over: threading.Event = field(default_factory=threading.Event)

    def values(self, **more: Any) -> dict[str, Any]:
        """What a user gives, and quicker measuring."""
        settings = {
            "TRIMTAB_BOOTSTRAP_SERVER": self.cluster.bootstrap_servers,
            "TRIMTAB_TOPIC_PREFIX": self.prefix,
            "TRIMTAB_MEASURE__WINDOW_S": "5",
        }
        given = {"topics": [self.topic], "capacity": CAPACITY, "settings": settings}
        return given | {"group": f"{self.topic}-directed"} | more

    def render(self, release: str, **more: Any) -> Documents:
        return chart(self.values(**more), release=release, namespace=self.namespace.name)

    def send(self) -> None:
        """Sends what `load` says, until the end."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 20})
        owed = [0.0] * len(self.load)
        before = time.monotonic()
        while not self._over.wait(0.05):
            now = time.monotonic()
            for partition, rate in enumerate(self.load):
                owed[partition] += rate * (now - before)
                while owed[partition] >= 1:
                    producer.produce(self.topic, b"v" * 100, partition=partition)
                    owed[partition] -= 1
            before = now
            producer.poll(0)
        producer.flush(30)

    @contextmanager
    def under_load(self) -> Iterator[None]:
        thread = threading.Thread(target=self.send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(60)

    # ------------------------------------------------------------ what came of it

    def lag(self, group: str) -> int:
        """Records that the group has yet to read."""
        config = {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": group}
        with closing(Consumer(config)) as looking:
            places = [TheirPartition(self.topic, n) for n in range(len(self.load))]
            done = looking.committed(places, timeout=10)
            ends = [looking.get_watermark_offsets(p, timeout=10)[1] for p in places]
            return sum(end - max(p.offset, 0) for end, p in zip(ends, done, strict=True))

    def plan(self, group: str) -> dict[int, set[int]]:
        """Which partitions each consumer reads, as the controller has written it down."""
        config = GroupConfig(
            group=group,
            topics=(self.topic,),
            cluster=Cluster(self.cluster.bootstrap_servers, topics=OwnTopics(self.prefix)),
        )
        found = persisted_state(config, missing_ok=True)
        shares: dict[int, set[int]] = {}
        for partition, consumer in found.assignment.items() if found else ():
            shares.setdefault(consumer, set()).add(partition.partition)
        return shares

    def is_level(self, group: str, *, one: bool) -> bool:
        """Whether every partition is given to a consumer that can carry all of its own."""
        shares = self.plan(group)
        loads = [sum(self.load[n] for n in share) for share in shares.values()]
        whole = sum(map(len, shares.values())) == len(self.load)
        return whole and (len(shares) == 1) is one and max(loads) <= CAPACITY

    def has_pods(self, group: str, workload: str) -> bool:
        """Whether there are as many pods as consumers in the plan, more than one."""
        return len(self.namespace.of(workload)) == len(self.plan(group)) > 1

    def is_drained(self, group: str) -> bool:
        """Whether no more is left to be read than comes in a second."""
        return self.lag(group) < sum(self.load)

    def reports_capacity(self, group: str, kind: type[Rate] | type[MemberRate]) -> bool:
        """Whether a consumer of the group has told the controller how much it can carry."""
        place = TheirPartition(OwnTopics(self.prefix).control(group), TO_CONTROLLER, 0)
        config = {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "reports"}
        with closing(Consumer(config | {"enable.partition.eof": True})) as reader:
            reader.assign([place])
            while (message := reader.poll(10)) is not None and message.error() is None:
                said = control_from(parse(message.value() or b"", origin="control"))
                if isinstance(said, kind) and said.max_records_s:
                    return True
        return False

    def comes(self, is_so: Callable[[], object], what: str) -> None:
        try:
            wait_until(is_so, within_s=WITHIN_S, what=what)
        except TimedOut as error:
            raise AssertionError(f"{error}\n{self.namespace.story()}") from None


@pytest.fixture(scope="module")
def shop(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A skewed topic, measured by the pods of the manifests."""
    name = uuid.uuid4().hex[:6]
    code = tmp_path_factory.mktemp("code")
    (code / "shop").mkdir()
    (code / "shop" / "orders.py").write_text(HANDLER)
    namespace = Namespace("trimtab", tmp_path_factory.mktemp("pods") / "logs", code=code)
    opened = Shop(cluster, namespace, f"orders-{name}", f"k{name}.", f"m{name}")
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        admin.create_topic(TopicSpec(name=opened.topic, partitions=len(QUIET), replication=3))
    with namespace.running(), opened.under_load():
        other = {"groups": [f"{opened.topic}-group"]}
        namespace.apply(opened.render(opened.release, measure=other))
        yield opened


def metric(pod: Pod, name: str, **labels: str) -> float | None:
    """The value of one series that a pod shows on its own address."""
    try:
        with urlopen(f"http://{pod.address}:9100/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:  # not yet
        return None
    for line in lines:
        if line.startswith(f"{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def test_the_manifests_watch_by_default_and_scale_a_skewed_group_by_load_in_both_modes(
    shop: Shop,
) -> None:
    #  load          quiet ─────────────────────────▶ skewed ──────────▶ quiet
    #  controllers   watch ──▶ d: 2, g: 2 ──▶ leader of g killed, the other leads
    #  consumers     none ───▶ one each ────────────▶ more of each ────▶ one each
    watches(shop)
    scales(shop)


def watches(shop: Shop) -> None:
    """By default the controller decides from what is measured and changes nothing."""
    namespace, release = shop.namespace, shop.release
    shop.comes(lambda: namespace.of(f"{release}-controller"), "the controller")
    [watching] = namespace.of(f"{release}-controller")
    [monitor], [measure] = (namespace.of(f"{release}-{n}") for n in ("monitor", "measure"))

    hot = {"topic": shop.topic, "partition": "0"}
    rate = "records_per_second"
    shop.comes(lambda: metric(measure, f"trimtab_measure_partition_{rate}", **hot), "a rate")
    shop.comes(lambda: metric(watching, f"trimtab_controller_partition_{rate}", **hot), "a rate")
    shop.comes(lambda: "→" in watching.text(), "a decision")

    assert metric(monitor, "trimtab_monitor_partition_end_offset", **hot)
    assert metric(monitor, "kafka_topic_partition_current_offset", **hot)
    assert set(namespace.workloads) == {
        f"{release}-{name}" for name in ("monitor", "measure", "controller")
    }
    assert shop.plan(f"{shop.topic}-directed") == {}


def scales(shop: Shop) -> None:
    """With execute both modes follow the load, also when the leading controller is killed."""
    namespace = shop.namespace
    token = {"token": base64.b64encode(b"s3cret").decode()}
    measured = {"execute": True, "measure": {"enabled": False}}
    directed, group = f"{shop.topic}-directed", f"{shop.topic}-group"
    objects = shop.render("d", **measured)
    objects |= shop.render("g", mode="group", group=group, **measured)
    objects["Secret", "g-controller-token"]["data"] = token

    namespace.apply(objects)
    for name in (directed, group):
        shop.comes(partial(shop.is_level, name, one=True), f"one consumer of {name}")
    shop.comes(lambda: namespace.counts("d-consumers", "g-consumers") == [1, 1], "one pod each")
    [monitor] = namespace.of(f"{shop.release}-monitor")
    lag = partial(metric, monitor, "kafka_consumergroup_lag", consumergroup=group, topic=shop.topic)
    shop.comes(lambda: lag() is not None, "the lag of a group")

    shop.comes(lambda: len(namespace.of("g-controller")) == 2, "two controllers")
    [first] = leading(namespace.of("g-controller"))
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"http://{first.address}:8765/version", timeout=30)
    first.kill()

    shop.load = SKEWED
    for name in (directed, group):
        shop.comes(partial(shop.is_level, name, one=False), f"more consumers of {name}")
    shop.comes(lambda: follows(shop, group), "an assignment by the plan")
    [second] = leading(namespace.of("g-controller"))
    assert second is not first
    for name, workload in ((directed, "d-consumers"), (group, "g-consumers")):
        shop.comes(partial(shop.is_drained, name), f"the end of the backlog of {name}")
        shop.comes(partial(shop.has_pods, name, workload), f"a pod for each consumer of {name}")
    shop.comes(partial(shop.reports_capacity, directed, Rate), "a report of a directed consumer")
    shop.comes(partial(shop.reports_capacity, group, MemberRate), "a report of a member")

    shop.load = QUIET
    shop.comes(lambda: namespace.counts("d-consumers", "g-consumers") == [1, 1], "fewer consumers")
    shop.comes(
        lambda: shop.is_level(directed, one=True) and follows(shop, group), "one consumer again"
    )
    restarted = [pod.name for pod in namespace.pods.values() if pod.restarts]
    assert restarted == [], namespace.story()
    assert not any("401" in pod.text() for pod in namespace.of("g-consumers"))


def leading(controllers: list[Pod]) -> list[Pod]:
    """The controllers that answer where the group's leader asks."""
    found = []
    for pod in controllers:
        try:
            urlopen(f"http://{pod.address}:8765/ready", timeout=2).close()
        except OSError:
            continue
        found.append(pod)
    return found


def follows(shop: Shop, group: str) -> bool:
    """Whether the brokers know the members and shares of the plan."""
    with Cluster(shop.cluster.bootstrap_servers).admin() as admin:
        members = [m for g in admin.groups([group]) for m in g.members]
    shares = sorted(sorted(p.partition for p in m.partitions) for m in members if m.partitions)
    return shares == sorted(sorted(share) for share in shop.plan(group).values())
