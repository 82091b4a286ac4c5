"""One turn after another of the controller of a subscribed group, without brokers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.apply.consumers.assignments import AssignmentRequest, GroupMember, GroupPlan
from trimtab.apply.consumers.controller_state import (
    ControllerRules,
    GroupVerdict,
    GroupView,
    Persist,
    PlanOrdered,
    WriteJournal,
)
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.apply.consumers.kafka.subscribed_controller import SubscribedController
from trimtab.apply.consumers.kafka.subscribed_members import SubscribedMembers
from trimtab.apply.consumers.kafka.subscribed_orders import SubscribedOrders
from trimtab.apply.consumers.plan_orders import InheritedOrders, by_smallest_partition, entry_of
from trimtab.apply.consumers.policy import verdict
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision, PartitionRate, TopicRates
from trimtab.model.journal import PlanState
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import Layer
from trimtab.model.plan_codec import plan_id
from trimtab.plan.consumers.plan import described
from trimtab.plan.registry import planner_of

P = [TopicPartition("orders", n) for n in range(6)]


@dataclass
class Pods:
    """A Deployment; `removed` and `asked_for` are what was wanted of it."""

    there: set[str] = field(default_factory=set)
    asked_for: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    fails: int = 0
    words: dict[int, str] = field(default_factory=dict)

    def running(self) -> Mapping[int, str]:
        return dict(enumerate(sorted(self.there)))

    def names(self) -> Collection[str]:
        return frozenset(self.there)

    def exit_reasons(self) -> Mapping[int, str]:
        return self.words

    def create(self, consumers: Collection[int]) -> None:
        self.asked_for.append(len(set(consumers)))
        if self.fails:
            self.fails -= 1
            raise ApplyError("Kubernetes did not answer.")

    def remove(self, idle: Collection[int]) -> None:
        self.removed += idle

    def kill(self, consumer: int) -> None: ...

    def close(self) -> None: ...


def joined(*names: str) -> AssignmentRequest:
    """What the leader of these members asks, who have nothing yet."""
    members = tuple(GroupMember(member_id=n, client_id=n) for n in names)
    return AssignmentRequest(group="g", generation=1, members=members, partitions=tuple(P))


class World:
    """A controller that leads, and decides when `turn` is called."""

    def __init__(self, *pods: str, start_timeout_s: float = 60.0) -> None:
        self.pods = Pods(set(pods))
        self.said: list[Persist | WriteJournal] = []
        self.decisions: list[Decision] = []
        config = GroupConfig(
            group="g",
            topics=("orders",),
            cluster=Cluster("nowhere"),
            rules=ControllerRules(start_timeout_s=start_timeout_s),
        )
        self.controller = SubscribedController(config, self.pods, self.judge, "127.0.0.1:0")
        self.threads = ThreadPoolExecutor(1)
        admin: Any = SimpleNamespace(topics=lambda _: [SimpleNamespace(name=p) for p in P])
        self.members = SubscribedMembers(config, self.pods, admin, self.threads, {})
        planner = planner_of(Layer.CONSUMERS, "mwf")
        self.aim = DecisionGoals(
            group="g", planner=planner, unit=Unit.BYTES_S, capacity=130.0, interval_s=0.0
        )

    def judge(self, view: GroupView, measured: NewestRates, _: int) -> GroupVerdict | None:
        return verdict(view, measured, self.aim, ts=1_000_000)

    def measure(self, loads: Sequence[float]) -> None:
        rates = {
            n: PartitionRate(
                bytes_s=load, records_s=load, end_offset=0, lag={}, complete=True, stale=False
            )
            for n, load in enumerate(loads)
        }
        heard = TopicRates(topic="orders", ts=1_000_000, partitions=rates)
        self.members.measured = self.members.measured.updated(heard)

    def turn(self) -> Decision | None:
        producer: Any = SimpleNamespace(commit=self.said.extend)
        announcer: Any = SimpleNamespace(announce=lambda d, _=None: self.decisions.append(d))
        told = len(self.decisions)
        self.controller._turn(self.members, producer, announcer)
        self.threads.submit(int).result()  # whoever is let go has been
        return self.decisions[-1] if len(self.decisions) > told else None

    def close(self) -> None:
        self.threads.shutdown()


@pytest.fixture
def world():
    opened = World("a", "b", "c")
    yield opened
    opened.close()


def test_no_member_is_let_go_before_the_rates_are_known(world):
    blind = world.turn()

    assert (blind.action, blind.before, blind.after) == (Action.REFUSE, 3, 3)
    assert "too little is known of orders-0, orders-1, orders-2 and 3 more" in blind.reason
    assert (world.controller.plan, world.pods.removed, world.said) == (None, [], [])

    world.measure([60.0] * len(P))  # three consumers are needed
    world.turn()

    assert len(world.controller.plan.assignment.consumers) == 3
    assert world.pods.removed == []


def test_a_first_consumer_is_started_whether_or_not_rates_are_known(world):
    world.pods.there.clear()

    assert (world.turn().action, world.pods.asked_for) == (Action.SCALE_UP, [1])


def test_members_that_the_load_does_not_need_are_let_go_once_it_is_known(world):
    world.measure([10.0] * len(P))

    assert world.turn().after == 1
    assert len(world.pods.removed) == 2


def test_a_pod_that_never_comes_is_given_up_and_asked_for_again():
    world = World("a", start_timeout_s=-1.0)  # at the next look it is late
    world.measure([60.0] * len(P))
    try:
        first = world.turn()
        again = world.turn()
    finally:
        world.close()

    assert first is not None
    assert again is not None
    assert (first.before, first.after) == (0, 3)
    assert (again.action, again.before, again.after) == (Action.SCALE_UP, 1, 3)
    assert world.pods.asked_for == [3, 3]


def test_a_plan_that_waits_for_a_consumer_to_end_says_so(world):
    world.measure([10.0] * len(P))
    world.turn()
    world.members._leaving.add(1)  # it finishes what it has in hand
    world.measure([60.0] * len(P))

    waits = world.turn()

    assert (waits.action, waits.after, waits.plan) == (Action.NONE, waits.before, None)
    assert waits.reason.endswith("; consumer 1 has not ended yet")


def test_consumers_that_could_not_be_asked_for_are_not_counted_on(world):
    world.pods.there, world.pods.fails = {"a"}, 1
    world.measure([60.0] * len(P))

    failed = world.turn()
    assert (failed.action, failed.before, failed.after) == (Action.NONE, 0, 0)
    assert "could not be started: Kubernetes did not answer." in failed.reason
    assert world.controller.plan is None  # nobody is told of a plan for consumers that never come
    again = world.turn()

    assert (again.action, again.after) == (Action.SCALE_UP, 3)
    assert world.pods.asked_for == [3, 3]
    plan = world.controller.plan
    assert plan is not None
    assert len(plan.assignment.consumers) == 3


def test_a_member_that_joins_while_the_plan_is_replaced_is_told_of_the_new_one(world):
    world.pods.there = {"a"}
    world.measure([10.0] * len(P))
    world.turn()
    world.controller._answer(joined("a"))
    world.measure([60.0, 60.0, *[0.0] * (len(P) - 2)])  # two are needed
    start = world.pods.create

    def answers_meanwhile(consumers: Collection[int]) -> None:
        start(consumers)
        world.controller._answer(joined("a", "b"))  # by the plan for one

    world.aim = replace(world.aim, capacity=100.0)
    world.pods.create = answers_meanwhile
    world.turn()
    before = world.controller.plan.version
    world.pods.there = {"a", "b"}
    world.turn()

    assert world.controller.plan.version == before + 1
    world.controller._answer(joined("a", "b"))
    for _ in range(3):
        world.turn()
    assert world.controller.plan.version == before + 1


def test_a_plan_that_stays_keeps_its_version_whoever_asks(world):
    world.measure([60.0] * len(P))
    world.turn()
    for names in ("a", "ab", "abc", "abcd", "bc"):
        world.controller._answer(joined(*names))
        world.turn()

    assert world.controller.plan.version == 1


def test_a_plan_that_members_have_yet_to_ask_for_keeps_its_version(world):
    world.measure([10.0] * len(P))
    world.turn()
    world.controller._answer(joined("a", "b", "c"))
    world.measure([60.0] * len(P))
    world.turn()
    version = world.controller.plan.version
    for _ in range(5):  # the leader takes its time
        world.turn()

    assert (version, world.controller.plan.version) == (2, 2)


def test_a_consumer_that_died_is_started_again_as_soon_as_it_can_be(world):
    #  create  ✗ (too early after it died)  ✗  ✓
    world.pods.there = {"a"}
    world.measure([10.0] * len(P))
    world.turn()
    world.pods.there, world.pods.asked_for, world.pods.fails = set(), [], 2
    for _ in range(6):
        world.turn()

    assert world.pods.asked_for == [1, 1, 1]
    assert world.controller.plan.version == 1


def test_a_decision_names_the_consumer_it_waits_for_and_its_last_words(world):
    world.pods.there, world.pods.words = {"a"}, {1: "error: There is no handler shop:book."}
    world.measure([60.0, 60.0, *[0.0] * (len(P) - 2)])
    world.aim = replace(world.aim, capacity=100.0, max_quiet_s=0.0)
    world.turn()

    waits = world.turn()

    assert waits.reason.endswith(
        "; waiting for consumer 1 (error: There is no handler shop:book.) to join"
    )


# ---------------------------------------------------------------- plans that are ordered


def an_order(world: World, after: dict[int, int], **more: Any) -> Any:
    """A plan made from what the brokers know: members are numbered by their smallest partition."""
    plan_now: Any = world.controller.plan
    held = plan_now.assignment
    numbers = {c: n for n, c in by_smallest_partition(held, ["orders"]).items()}
    before = Assignment({p: numbers[c] for p, c in held.items()})
    plan = described(
        Assignment({P[n]: c for n, c in after.items()}),
        *(dict.fromkeys(P, 60.0), before, GroupLimits(capacity=130.0)),
        planner="mwf",
        made_ts=1,
        group="g",
    )
    ordered: dict[str, Any] = {"until": math.inf, "hold_s": 300.0, "ts": 1}
    return PlanOrdered(0.0, plan_id(plan), plan, **{**ordered, **more})


def entries(world: World) -> list[tuple[PlanState, str]]:
    return [(e.entry.state, e.entry.why) for e in world.said if isinstance(e, WriteJournal)]


def members_own(world: World, *shares: set[int]) -> None:
    """What the brokers know of the members."""
    members = tuple(SimpleNamespace(partitions=frozenset(P[n] for n in share)) for share in shares)
    admin: Any = world.members._admin
    admin.groups = lambda _: [SimpleNamespace(members=members)]


@pytest.fixture
def settled(world):
    """Two partitions for each of three members; a, b and c have answered."""
    world.measure([60.0] * len(P))
    world.turn()
    world.controller._answer(joined("a", "b", "c"))
    world.members._awaited.clear()
    members_own(world, {0, 1}, {2, 3}, {4, 5})
    return world


def test_an_ordered_plan_is_the_group_s_next_version_and_done_when_members_follow(settled):
    version = settled.controller.plan.version
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})

    settled.controller._orders.fetched.put(order)
    decision = settled.turn()

    assert settled.controller.plan.version == version + 1
    assert (decision.action, decision.plan) == (Action.REASSIGN, order.plan_id)
    assert entries(settled) == [(PlanState.RUNNING, "")]
    settled.turn()
    assert entries(settled) == [(PlanState.RUNNING, "")], "members read as before"
    shares: dict[int, set[int]] = {}
    for partition, consumer in settled.controller.plan.assignment.items():
        shares.setdefault(consumer, set()).add(partition.partition)
    members_own(settled, *shares.values())
    settled.turn()
    assert [state for state, _ in entries(settled)] == [PlanState.RUNNING, PlanState.DONE]
    assert settled.controller._orders.hold().left_s > 290


def test_a_plan_that_does_not_fit_is_refused_and_no_version_rises(settled):
    version = settled.controller.plan.version
    order = an_order(settled, {n: n // 2 for n in range(6)})
    stale = replace(order, plan=replace(order.plan, snapshot="0" * 12))

    settled.controller._orders.fetched.put(stale)
    settled.turn()

    [(state, why)] = entries(settled)
    assert state is PlanState.FAILED
    assert "was made for snapshot 000000000000" in why
    assert settled.controller.plan.version == version
    assert settled.decisions[-1].action is Action.REFUSE


def test_a_second_order_waits_for_nobody_and_is_refused(settled):
    first = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})
    second = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 0})
    settled.controller._orders.fetched.put(first)
    settled.turn()

    settled.controller._orders.fetched.put(second)
    settled.turn()

    assert entries(settled)[-1] == (PlanState.FAILED, "another plan is being carried out")


def test_a_plan_that_the_controller_before_had_begun_is_finished_by_the_next(settled):
    order = an_order(settled, {n: n // 2 for n in range(6)})
    running = entry_of(order, PlanState.RUNNING)

    settled.controller._orders = SubscribedOrders.taken_over(
        InheritedOrders((order.plan, running), held_s=60.0)
    )
    settled.turn()

    assert [state for state, _ in entries(settled)] == [PlanState.DONE]


def test_an_order_that_is_repeated_leaves_the_journal_as_it_was(settled):
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})
    settled.controller._orders.fetched.put(order)
    settled.turn()

    settled.controller._orders.fetched.put(order)  # a second `apply` wrote `made` over `running`
    settled.turn()

    assert entries(settled) == [(PlanState.RUNNING, "")] * 2
    assert settled.controller._orders.execution is not None


def test_an_order_that_has_expired_is_not_started(settled):
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2}, until=0.0)

    settled.controller._orders.fetched.put(order)
    settled.turn()

    assert entries(settled) == [(PlanState.FAILED, "the group was not settled in time")]


def test_a_plan_is_not_done_if_another_one_took_its_place_before_the_controller_crashed(settled):
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})
    running = entry_of(order, PlanState.RUNNING)

    settled.controller._orders = SubscribedOrders.taken_over(InheritedOrders((order.plan, running)))
    settled.turn()

    [(state, why)] = entries(settled)
    assert state is PlanState.FAILED
    assert "got other owners" in why


def test_a_decision_that_replaces_a_plan_is_written_together_with_the_plan_s_end(settled):
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})
    settled.controller._orders.fetched.put(order)
    settled.turn()
    transactions: list[Any] = []
    settled.said = SimpleNamespace(extend=transactions.append)

    settled.measure([130.0] * len(P))
    settled.turn()

    [both] = [t for t in transactions if any(isinstance(e, WriteJournal) for e in t)]
    assert [type(effect) for effect in both] == [Persist, WriteJournal]
    assert both[1].entry.state is PlanState.FAILED


def test_a_transaction_that_fails_at_the_end_of_a_plan_ends_the_lead(settled):
    order = an_order(settled, {n: n // 2 for n in range(6)})
    running = entry_of(order, PlanState.RUNNING)
    settled.controller._orders = SubscribedOrders.taken_over(InheritedOrders((order.plan, running)))

    def fails(_: object) -> None:
        raise BrokerUnavailable("A transaction failed.")

    settled.said = SimpleNamespace(extend=fails)

    with pytest.raises(BrokerUnavailable):
        settled.turn()


def test_a_plan_whose_consumers_cannot_be_started_is_not_left_to_the_next_controller(settled):
    before = settled.controller.plan
    order = an_order(settled, {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 3})
    settled.pods.fails = 1

    settled.controller._orders.fetched.put(order)
    settled.turn()

    assert entries(settled)[-1][0] is PlanState.FAILED
    kept = [effect.state for effect in settled.said if isinstance(effect, Persist)]
    assert (kept[-1].epoch, kept[-1].assignment) == (before.version, before.assignment)


def test_a_rollback_that_is_done_ends_the_journal_of_the_plan_that_it_undoes(settled):
    order = an_order(settled, {n: n // 2 for n in range(6)})
    back = replace(order.plan, params={**order.plan.params, "rollback_of": "7f3a9c01d2e4"})
    running = entry_of(replace(order, plan=back), PlanState.RUNNING)

    settled.controller._orders = SubscribedOrders.taken_over(InheritedOrders((back, running)))
    settled.turn()

    written = [e.entry for e in settled.said if isinstance(e, WriteJournal)]
    assert [(e.plan, e.state) for e in written] == [
        (order.plan_id, PlanState.DONE),
        ("7f3a9c01d2e4", PlanState.ROLLED_BACK),
    ]


def test_a_plan_for_some_topics_counts_the_members_that_read_the_others():
    world = World("a", "b")
    orders, refund = P[:2], TopicPartition("refunds", 0)
    admin: Any = world.members._admin
    admin.topics = lambda _: [SimpleNamespace(name=p) for p in (*orders, refund)]
    config = world.controller._config
    world.controller._config = replace(config, rules=replace(config.rules, max_consumers=2))
    held = Assignment({orders[0]: 0, orders[1]: 0, refund: 1})
    world.controller._plan = GroupPlan(version=1, assignment=held)
    plan = described(
        Assignment({orders[0]: 0, orders[1]: 1}),
        *(dict.fromkeys(orders, 60.0), held.only(dict.fromkeys(orders)), GroupLimits(capacity=60)),
        planner="mwf",
        made_ts=1,
        group="g",
    )

    world.controller._orders.fetched.put(PlanOrdered(0.0, plan_id(plan), plan))
    world.turn()
    world.close()

    assert entries(world) == [
        (PlanState.FAILED, "it needs 3 consumers, but --max-consumers is 2"),
    ]


def test_a_decision_that_cannot_be_carried_out_leaves_the_ordered_plan_in_progress(settled):
    order = an_order(settled, {0: 0, 1: 1, 2: 1, 3: 0, 4: 2, 5: 2})
    settled.controller._orders.fetched.put(order)
    settled.turn()
    served = settled.controller.plan
    settled.measure([130.0] * 6)  # more consumers are needed, and none can be started
    settled.pods.fails = 1

    settled.turn()

    assert settled.controller.plan == served
    assert settled.controller._orders.execution is not None
    assert PlanState.FAILED not in [state for state, _ in entries(settled)]
