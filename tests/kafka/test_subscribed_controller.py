"""The controller of a subscribed group on real brokers, while pods come, go and are replaced."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import pytest

from tests.kafka.group_members import Members
from tests.kafka.streams import wait_until
from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.kafka.leadership import GroupConfig, persisted_state
from trimtab.apply.consumers.kafka.subscribed_controller import SubscribedController
from trimtab.apply.consumers.policy import verdict
from trimtab.errors import PlanOutdated
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.model.assignment import Assignment
from trimtab.model.control import Action, Decision, PartitionRate, TopicRates
from trimtab.model.journal import PlanState
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.plan import described
from trimtab.plan.registry import planner_of
from trimtab.services.apply import ApplyOptions, carry_out, journal_of, undoing
from trimtab.services.groups import present_group

PARTITIONS = 6
SOON_S = 180.0


@dataclass
class Pods:
    """A Deployment whose pods come when the test says so."""

    there: set[str] = field(default_factory=set)
    asked_for: list[int] = field(default_factory=list)

    def running(self) -> Mapping[int, str]:
        return dict(enumerate(sorted(self.there)))

    def names(self) -> Collection[str]:
        return frozenset(self.there)

    def exit_reasons(self) -> Mapping[int, str]:
        return {}

    def create(self, consumers: Collection[int]) -> None:
        self.asked_for.append(len(set(consumers)))

    def remove(self, idle: Collection[int]) -> None: ...

    def kill(self, consumer: int) -> None: ...

    def close(self) -> None: ...


class World:
    """A controller in a thread, fed with loads that are always fresh."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.topic, self.pods = topic, Pods()
        self.loads = [60.0] * PARTITIONS
        self.looks = 0
        self.decisions: list[Decision] = []
        self.config = GroupConfig(
            group=topic,
            topics=(topic,),
            cluster=Cluster(
                cluster.bootstrap_servers, topics=OwnTopics(f"s{uuid.uuid4().hex[:8]}.")
            ),
            look_every_s=0.05,
        )
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.listen = f"127.0.0.1:{free.getsockname()[1]}"
        self.controller = SubscribedController(
            self.config,
            self.pods,
            self.judge,
            self.listen,
            cooldown_s=3600.0,
            on_decision=self.decisions.append,
        )

    def judge(self, view: GroupView, _: NewestRates, ts: int) -> GroupVerdict | None:
        self.looks += 1
        rate = {
            n: PartitionRate(
                bytes_s=load, records_s=load, end_offset=0, lag={}, complete=True, stale=False
            )
            for n, load in enumerate(self.loads)
        }
        known = NewestRates().updated(TopicRates(topic=self.topic, ts=ts, partitions=rate))
        aim = DecisionGoals(
            group=self.topic,
            planner=planner_of(Layer.CONSUMERS, "mwf"),
            unit=Unit.BYTES_S,
            capacity=130.0,
            interval_s=0.05,
        )
        return verdict(view, known, aim, ts=ts)

    @property
    def version(self) -> int:
        plan = self.controller.plan
        return -1 if plan is None else plan.version

    def look(self, times: int = 20) -> None:
        until = self.looks + times
        wait_until(lambda: self.looks >= until, within_s=SOON_S, what=f"{times} looks")

    @contextmanager
    def led(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self.controller.run, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: self.version > 0, within_s=SOON_S, what="a plan")
            yield
        finally:
            stop.set()
            thread.join(SOON_S)
            assert not thread.is_alive()


@pytest.fixture
def world(cluster: LocalCluster) -> World:
    topic = f"subscribed-{uuid.uuid4().hex[:8]}"
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        admin.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=3))
    return World(cluster, topic)


def test_pods_on_their_way_replaced_and_renumbered_cause_no_rebalance(
    cluster: LocalCluster, world: World
) -> None:
    #  pods   a …………… a b c …………… a c …… a c d …… (loads shift)
    #  plan   version 1 throughout: 0, 1 and 2 read two partitions each
    world.pods.there = {"a"}
    group = Members(cluster, world.topic, f"http://{world.listen}")
    try:
        with world.led():
            group.join()
            wait_until(group.share_everything, within_s=SOON_S, what="the only member")
            world.look()
            assert (world.version, set(world.pods.asked_for)) == (1, {3})
            assert [d.action for d in world.decisions].count(Action.SCALE_UP) == 1

            world.pods.there = {"a", "b", "c"}
            group.join(2)
            wait_until(
                lambda: sorted(len(owned) for owned in group.owned) == [2, 2, 2],
                within_s=SOON_S,
                what="the plan",
            )
            world.look()
            world.pods.there = {"a", "c"}
            world.look()
            world.pods.there = {"a", "c", "d"}
            world.look()
            assert world.version == 1
            assert group.versions == {1}
            kept = persisted_state(world.config)
            assert kept is not None
            assert kept.members == {"a": 0, "c": 2, "d": 1}

            world.loads = [120.0, 120.0, 10.0, 10.0, 10.0, 10.0]
            wait_until(
                lambda: any("cooldown lasts" in d.reason for d in world.decisions),
                within_s=SOON_S,
                what="a decision that waits",
            )
            assert world.version == 1

        follower = World(cluster, world.topic)
        follower.config = follower.controller._config = world.config
        follower.pods.there = {"d", "a", "c"}
        with follower.led():
            follower.look()
        kept = persisted_state(world.config)
        assert kept is not None
        assert (kept.epoch, kept.members) == (1, {"a": 0, "c": 2, "d": 1})
    finally:
        group.stop()


def test_a_plan_that_is_ordered_reaches_the_members_and_is_held(
    cluster: LocalCluster, world: World
) -> None:
    world.pods.there = {"a", "b", "c"}
    group = Members(cluster, world.topic, f"http://{world.listen}")
    kafka = world.config.cluster
    try:
        with world.led():
            group.join(3)
            wait_until(
                lambda: sorted(len(owned) for owned in group.owned) == [2, 2, 2],
                within_s=SOON_S,
                what="the first plan",
            )
            now = present_group(kafka, world.topic, frozenset({world.topic}))
            first = min(now.partitions)
            owners = dict(now.assignment)
            other = next(p for p in sorted(owners) if owners[p] != owners[first])
            owners[first], owners[other] = owners[other], owners[first]
            plan = described(
                Assignment(owners),
                *(dict.fromkeys(now.partitions, 60.0), now.assignment, GroupLimits(capacity=130.0)),
                planner="mwf",
                made_ts=1,
                group=world.topic,
            )
            stale = replace(plan, snapshot="0" * 12)
            wanted = {
                tuple(sorted(p.partition for p, c in owners.items() if c == consumer))
                for consumer in set(owners.values())
            }

            ended = carry_out(plan, kafka, ApplyOptions(hold_s=120.0))

            assert (ended.state, world.version) == (PlanState.DONE, 2)
            wait_until(lambda: set(group.owned) == wanted, within_s=SOON_S, what="the new shares")
            with pytest.raises(PlanOutdated):
                carry_out(stale, kafka, ApplyOptions())

            back = undoing(plan, kafka)
            assert carry_out(back, kafka, ApplyOptions(), undoes=plan).state is PlanState.DONE
            before = present_group(kafka, world.topic, frozenset({world.topic})).assignment
            assert before == now.assignment
            entry = journal_of(kafka, plan)
            assert entry is not None
            assert entry.state is PlanState.ROLLED_BACK
    finally:
        group.stop()
