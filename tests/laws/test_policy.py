"""Laws of the controller's judgement, for every planner in the registry.

An overload that can be relieved is never answered with nothing, and consumers that are kept idle
never make a group move.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.laws.group_world import World
from tests.laws.policy_cases import (
    ALL,
    CAPACITY,
    CONSUMERS,
    DEALING,
    LOADED,
    NOW,
    QUICK,
    SLA_S,
    P,
    aim_of,
    helpable,
    measured,
    seen,
)
from trimtab.apply.consumers.controller_state import (
    ControllerRules,
    GroupVerdict,
    GroupView,
    Policy,
)
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates, urgent
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import Unit
from trimtab.plan.consumers.planner import PlannerKind


def each(names: list[str]) -> Iterator[str]:
    for name in names:
        note(f"planner: {name}")
        yield name


def check_answer(
    found: GroupVerdict | None, view: GroupView, loads: list[float], aim: DecisionGoals
) -> None:
    """A plan that relieves, or a wait that is named; a rule that ignores loads says so."""
    assert found is not None
    reason = found.decision.reason
    if found.target is not None:
        assert set(found.target) == view.partitions
        if aim.planner.kind is not PlannerKind.DEALS:
            assert not helpable(found.target, loads), reason
        return
    waits = "cooldown" in reason
    ignores = aim.planner.kind is PlannerKind.DEALS and "choose a packing planner" in reason
    assert waits or (ignores and found.decision.action is Action.REFUSE), reason


loads_of = st.one_of(
    st.just(0),
    st.integers(1, 60),
    st.integers(40, 100),
    st.sampled_from([1, 50, 99, 100, 101]),
    st.integers(101, 400),
)
lags_of = st.one_of(st.just(0), st.integers(1, 200), st.sampled_from([600, 20_000]))


class Drawn(NamedTuple):
    """A group: its loads, who reads what, how far it is behind, and what it is held to."""

    loads: list[float]
    view: GroupView
    lags: list[int]
    sla_s: float | None

    def aim(self, planner: str, **more: Any) -> DecisionGoals:
        """What is wanted of the group: with an SLA loads are records, and lags are heard."""
        if self.sla_s is not None:
            more = {"sla_s": self.sla_s, "unit": Unit.RECORDS_S} | more
        return aim_of(planner, **more)

    def weights(self, aim: DecisionGoals) -> list[float]:
        """What a planner packs: arrivals, and with an SLA what must be caught up with, too."""
        if not aim.urgent or aim.sla_s is None:
            return self.loads
        pairs = zip(self.loads, self.lags, strict=True)
        return [urgent(load, lag, sla_s=aim.sla_s) for load, lag in pairs]


@st.composite
def groups(draw: st.DrawFn, most: int = 8) -> Drawn:
    """Groups with idle and oversize partitions, orphans, idle consumers, within a cooldown.

    Half of them are held to an SLA, with partitions that are behind.
    """
    partitions = draw(st.lists(st.tuples(loads_of, st.integers(0, 3)), min_size=2, max_size=most))
    unread = draw(st.sampled_from([None, None, None, 0]))
    owners: list[int | None] = [c for _, c in partitions]
    if unread is not None:
        owners[unread] = None
    view = seen(
        owners,
        idle=draw(st.integers(0, 2)),
        since_scaling_s=draw(st.sampled_from([1.0, math.inf])),
        quiet_s=draw(st.sampled_from([0.0, 60.0])),
    )
    lags = draw(
        st.lists(lags_of, min_size=len(partitions), max_size=len(partitions))
        if (sla_s := draw(st.sampled_from([None, None, 1.0, SLA_S]))) is not None
        else st.just([0] * len(partitions))
    )
    return Drawn([float(load) for load, _ in partitions], view, lags, sla_s)


def check_law(group: Drawn, names: list[str]) -> None:
    loads, view, lags, _ = group
    for name in each(names):
        for most in (None, len(loads)):
            aim = group.aim(name, cooldown_s=30.0, most=most)
            weights = group.weights(aim)
            if helpable(view.assignment, weights):
                found = verdict(view, measured(loads, lags=lags), aim, ts=NOW)
                check_answer(found, view, weights, aim)


@settings(deadline=None, max_examples=120)
@given(group=groups())
def test_an_overload_that_can_be_relieved_is_answered_by_a_plan_or_a_named_wait(group):
    check_law(group, QUICK)


@settings(deadline=None, max_examples=15)
@given(group=groups(most=5))
def test_the_exact_planner_answers_an_overload_too(group):
    check_law(group, ["exact"])


@settings(deadline=None, max_examples=60)
@given(
    tenths=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 2)), min_size=2, max_size=8),
)
def test_sums_that_are_rounded_are_no_overload_of_their_own(tenths):
    """Where a plan is not a relief any more, there is no overload to speak of either."""
    loads = [tenth * 0.1 for tenth, _ in tenths]
    view = seen([c for _, c in tenths])
    for name in each([n for n in QUICK if CONSUMERS[n].kind is PlannerKind.PACKS]):
        found = verdict(view, measured(loads), aim_of(name), ts=NOW)
        if found is None or found.target is None:
            continue
        after = seen([found.target[P[n]] for n in range(len(loads))])
        again = verdict(after, measured(loads), aim_of(name), ts=NOW)
        assert again is None, again


@settings(deadline=None, max_examples=80)
@given(group=groups(), budget=st.integers(1, 3))
def test_a_budget_too_small_for_a_cure_still_relieves(group, budget):
    loads, view = group.loads, group.view
    before = helpable(view.assignment, loads)
    if not before:
        return
    aim = aim_of("trim", options={"max_moves": budget})
    found = verdict(view, measured(loads), aim, ts=NOW)
    assert found is not None
    assert found.target is not None, found.decision.reason
    assert set(found.target) == view.partitions
    assert len(moved(view.assignment, found.target)) <= budget
    excess = [
        sum(
            max(0.0, load - CAPACITY)
            for load in a.loads(dict(zip(P, loads, strict=False))).values()
        )
        for a in (view.assignment, found.target)
    ]
    assert view.orphans or excess[1] < excess[0]


@pytest.mark.parametrize("planner", LOADED)
def test_one_hot_partition_does_not_block_the_relief_of_others(planner):
    loads = [150.0, 60.0, 55.0]
    found = verdict(seen([0, 1, 1]), measured(loads), aim_of(planner), ts=NOW)

    assert found is not None
    assert found.decision.action is Action.SCALE_UP
    assert (found.decision.before, found.decision.after) == (2, 3)
    assert "orders-0 alone needs 1.5 consumers: split its keys or raise capacity" in (
        found.decision.reason
    )


@pytest.mark.parametrize("planner", LOADED)
@pytest.mark.parametrize(
    ("loads", "owners", "most"),
    [
        ([150.0, 60.0, 60.0, 60.0, 10.0], [0, 1, 1, 1, 2], 3),
        ([300.0, 90.0, 80.0, 70.0, 0.0], [0, 1, 1, 1, 2], 3),
        ([150.0, 40.0, 40.0, 40.0, 40.0, 1.0], [0, 1, 1, 1, 1, 2], 3),
    ],
)
def test_at_the_maximum_a_hot_partition_does_not_block_the_others_either(
    planner, loads, owners, most
):
    found = verdict(seen(owners), measured(loads), aim_of(planner, most=most), ts=NOW)

    assert found is not None
    assert found.target is not None, found.decision.reason
    assert len(found.target.consumers) <= most
    carried = found.target.loads(dict(zip(P, loads, strict=False)))
    assert sorted(carried.values())[-2] < sum(loads[1:-1])


@pytest.mark.parametrize("planner", LOADED)
def test_what_cannot_be_relieved_moves_nothing_however_the_others_drift(planner):
    """A lone hot partition is above its capacity for ever, which is no reason to move others."""
    rng = random.Random(3)
    view = seen([0, 1, 1, 2, 2])
    for _ in range(40):
        loads = [150.0, *(rng.uniform(40, 50) for _ in range(4))]
        found = verdict(view, measured(loads), aim_of(planner), ts=NOW)
        assert found is None or found.target is None, found


# ------------------------------------------------------------ idle consumers, in a closed loop


@dataclass
class Drifting:
    """A group whose loads drift without harm, decided on as `run` does."""

    world: World
    aim: DecisionGoals
    partitions: int
    seed: int = 7

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.moves = 0

    def policy(self, loads: list[float]) -> Policy:
        ts = round(self.world.now * 1_000_000)
        known = measured(loads, ts=ts)
        return lambda view: verdict(view, known, self.aim, ts=ts)

    def run(self, seconds: int) -> Counter[str]:
        """How often each action was decided, with the moves that came of it."""
        begun, before = len(self.world.decisions), self.world.owners
        for _ in range(seconds):
            loads = [self.rng.uniform(20, 24) for _ in range(self.partitions)]
            self.world.turn(self.policy(loads))
            after = self.world.owners
            self.moves += len(moved(before, after))
            before = after
        return Counter(str(d.action) for d in self.world.decisions[begun:])


def settled(planner: str, *, spares: int, immovable: frozenset[int] = frozenset()) -> Drifting:
    """Eight partitions of some 22 each, on the two consumers that they need, or on one more."""
    world = World(frozenset(P[:8]), rules=ControllerRules(warm_spares=spares), immovable=immovable)
    group = Drifting(world, aim_of(planner), partitions=8)
    group.run(40)
    group.moves = 0
    return group


@pytest.mark.parametrize("planner", ALL)
def test_warm_spares_change_nothing_in_two_minutes_of_harmless_drift(planner):
    alone, spared = settled(planner, spares=0), settled(planner, spares=1)
    spared.world.start(len(spared.world.processes))
    acted = [Counter(g.run(120)) for g in (alone, spared)]

    for actions in acted:
        del actions["none"]
    assert acted[0] == acted[1]
    assert alone.moves == spared.moves
    assert len(spared.world.processes) == len(alone.world.processes) + 1


@pytest.mark.parametrize("planner", ALL)
def test_an_idle_pod_that_cannot_be_removed_changes_nothing_either(planner):
    group = settled(planner, spares=0, immovable=frozenset(range(20)))
    busy = set(group.world.owners.consumers)
    idle = next(c for c in range(20) if c not in busy)
    group.world.start(idle)

    first = group.run(120)

    deals = (
        CONSUMERS[planner].kind is PlannerKind.DEALS
    )  # such a rule deals to whoever is there, once
    assert set(first) <= ({"none", "refuse", "scale_up"} if deals else {"none"})
    assert first["scale_up"] <= deals


@pytest.mark.parametrize("planner", ALL)
def test_an_idle_consumer_that_nobody_asked_for_is_let_go(planner):
    if CONSUMERS[planner].kind is PlannerKind.DEALS:
        return  # such a rule deals to whoever is there
    group = settled(planner, spares=0)
    group.world.start(9)

    acted = group.run(60)

    assert 9 not in group.world.processes
    assert acted["scale_down"] == 0


@pytest.mark.parametrize("planner", LOADED)
@pytest.mark.parametrize("spares", [0, 1])
def test_a_stateful_set_gets_rid_of_an_idle_pod_below_a_busy_one(planner, spares):
    rules = ControllerRules(warm_spares=spares, removes_highest_only=True)
    world = World(frozenset(P[:8]), rules=rules, stateful_set=True)
    group = Drifting(world, aim_of(planner), partitions=8)
    group.run(40)
    busy = world.owners.consumers
    world.start(max(world.processes) + 1)
    world.kill(min(busy), world.running()[min(busy)])
    group.run(30)
    world.start(min(busy))

    group.run(120)

    assert len(world.owners.consumers) == len(busy)
    assert sorted(world.processes) == list(range(len(busy) + spares))


def test_a_stateful_set_gets_rid_of_an_idle_pod_that_a_starting_one_kept():
    rules = ControllerRules(removes_highest_only=True)
    world = World(frozenset(P[:4]), rules=rules, stateful_set=True, slow={2: 40.0})
    group = Drifting(world, aim_of("trim"), partitions=4)
    world.start(0)
    group.run(10)
    world.start(1)
    world.start(2)
    group.run(30)
    assert sorted(world.processes) == [0, 1, 2]

    group.run(60)

    assert sorted(world.processes) == [0]


def test_a_silent_idle_pod_below_a_busy_one_holds_up_no_decision():
    rules = ControllerRules(removes_highest_only=True)
    world = World(frozenset(P[:4]), rules=rules, stateful_set=True)
    group = Drifting(world, aim_of("trim"), partitions=4)
    world.start(1)
    group.run(3)
    world.start(0)
    group.run(2)
    world.thaw(0, frozen=True)

    group.run(10)
    for _ in range(3):
        world.turn(group.policy([60.0, 60.0, 20.0, 20.0]))

    assert world.decisions[-1].action is Action.SCALE_UP


@settings(deadline=None, max_examples=80)
@given(
    group=groups(),
    idle=st.sets(st.integers(0, 9), max_size=4),
    spares=st.integers(0, 2),
    moves=st.sampled_from([None, 0, 1, 3]),
    planner=st.sampled_from(LOADED),
)
def test_a_group_that_shrinks_keeps_its_lowest_consumers_if_the_budget_allows(
    group, idle, spares, moves, planner
):
    consumers = group.view.consumers | idle
    view = replace(
        group.view, consumers=consumers, spares=spares, removes_highest_only=True, quiet_s=60.0
    )
    if planner != "trim":
        moves = None  # the others have no budget
    aim = aim_of(planner, options=None if moves is None else {"max_moves": moves})

    found = verdict(view, measured(group.loads), aim, ts=NOW)
    usual = verdict(replace(view, removes_highest_only=False), measured(group.loads), aim, ts=NOW)

    if found is None or usual is None or found.decision.action is not Action.SCALE_DOWN:
        return
    assert found.target is not None
    assert usual.target is not None
    assert shares(found.target) == shares(usual.target)
    kept = set(found.target.consumers)
    left = sorted(consumers - kept)
    if moves is None:
        assert all(max(kept) < consumer for consumer in left[spares:])
    assert moves is None or len(moved(view.assignment, found.target)) <= moves


def shares(assignment: Assignment) -> set[frozenset[TopicPartition]]:
    """Which partitions are read together, by whichever consumer."""
    found: dict[int, set[TopicPartition]] = {}
    for partition, consumer in assignment.items():
        found.setdefault(consumer, set()).add(partition)
    return {frozenset(share) for share in found.values()}


@pytest.mark.parametrize("planner", LOADED)
def test_a_warm_spare_is_used_before_another_consumer_is_started(planner):
    view = seen([0, 0, 0])
    view = replace(view, consumers=frozenset({0, 7}), spares=1)

    found = verdict(view, measured([60.0, 60.0, 0.0]), aim_of(planner), ts=NOW)

    assert found is not None
    assert found.target is not None
    assert found.target.consumers == (0, 7)
    assert (found.decision.before, found.decision.after) == (1, 2)
    assert found.plan is not None
    assert found.plan.assignment == found.target


@pytest.mark.parametrize("planner", DEALING)
@pytest.mark.parametrize("spares", [1, 2])
def test_a_warm_spare_takes_the_place_of_a_consumer_that_ended(planner, spares):
    world = World(frozenset(P[:6]), rules=ControllerRules(warm_spares=spares))
    group = Drifting(world, aim_of(planner), partitions=6)
    for consumer in range(3):
        world.start(consumer)
    group.run(20)
    for consumer in range(3, 3 + spares):
        world.start(consumer)
    group.run(20)
    assert world.owners.consumers == (0, 1, 2)

    del world.processes[2]
    group.run(20)

    assert world.owners.consumers == (0, 1, 3)
    assert len(world.processes) == 2 + spares


# ------------------------------------------------------------ figures in doubt


@pytest.mark.parametrize("planner", [*LOADED, "lag-based", "keda-lag"])
@pytest.mark.parametrize("age_s", [None, 600])
def test_on_figures_in_doubt_only_what_nobody_reads_is_given_out(planner, age_s):
    """Loads that are not known are no reason to put a whole group on one consumer."""
    known = NewestRates() if age_s is None else measured([1.0] * 8, ts=NOW - age_s * 1_000_000)
    view = seen([0, 0, 1, 1, 2, 2, 3, None])

    found = verdict(view, known, aim_of(planner), ts=NOW)

    assert found is not None
    assert found.target == Assignment({**view.assignment, P[7]: 3})
    assert found.decision.action is Action.REASSIGN
    assert found.decision.reason.startswith("no consumer reads orders-7; ")
    assert found.decision.reason.endswith(", so nothing else is moved")


@pytest.mark.parametrize("planner", LOADED)
def test_a_spare_takes_over_from_one_that_ended_also_on_figures_in_doubt(planner):
    view = seen([0, 0, 1, 1, None, None], lost="consumer 2 ended", ended=1)
    view = replace(view, consumers=frozenset({0, 1, 7}), spares=1)

    found = verdict(view, NewestRates(), aim_of(planner), ts=NOW)

    assert found is not None
    assert found.target == Assignment({**view.assignment, P[4]: 7, P[5]: 7})


def test_partitions_without_a_rate_open_a_consumer_where_old_loads_leave_no_room():
    old = measured([60.0, 60.0, 60.0], ts=NOW - 600_000_000)
    aim = aim_of("trim")

    found = verdict(seen([0, 1, None]), old, aim, ts=NOW)
    capped = verdict(seen([0, 1, None]), old, replace(aim, most=2), ts=NOW)

    assert found is not None
    assert found.target == Assignment(dict(zip(P, (0, 1, 2), strict=False)))
    assert capped is not None
    assert capped.target is not None
    assert capped.target.consumers == (0, 1)


# ------------------------------------------------------------ a budget and a maximum


@settings(deadline=None, max_examples=80)
@given(
    group=groups(),
    moves=st.sampled_from([None, 0, 1, 2]),
    load=st.sampled_from([None, 10.0, 60.0, 200.0]),
    most=st.integers(1, 5),
)
def test_a_budget_of_moves_is_kept_whatever_else_is_wanted(group, moves, load, most):
    loads, view = group.loads, group.view
    options = {"max_moves": moves, "max_moved_load": load}

    found = verdict(view, measured(loads), aim_of("trim", most=most, options=options), ts=NOW)

    if found is None or found.target is None:
        return
    away = moved(view.assignment, found.target)
    assert set(found.target) == view.partitions
    assert moves is None or len(away) <= moves
    assert load is None or sum(loads[p.partition] for p in away) <= load
    assert len(found.target.consumers) <= max(most, len(view.assignment.consumers))


@pytest.mark.parametrize("load", [45.0, 70.0])  # with room, and with overloads
def test_a_maximum_below_what_there_is_is_reached_within_the_budget(load):
    view = seen([0, 0, 1, 1, 2, 2, 3, 3], quiet_s=60.0)
    aim = aim_of("trim", most=2, options={"max_moves": 1})
    for _ in range(20):
        found = verdict(view, measured([load] * 8), aim, ts=NOW)
        assert found is not None
        if found.target is None:
            break
        assert len(moved(view.assignment, found.target)) == 1
        view = seen([found.target[P[n]] for n in range(8)], quiet_s=60.0)

    assert view.assignment.consumers == (0, 1)
    assert sorted(view.assignment.loads(dict.fromkeys(P, 1.0)).values()) == [4, 4]


def test_a_budget_that_allows_no_move_is_named():
    view = seen([0, 0, 0, 1])
    aim = aim_of("trim", most=2, options={"max_moves": 0})

    found = verdict(view, measured([90.0, 90.0, 90.0, 10.0]), aim, ts=NOW)

    assert found is not None
    assert found.target is None
    assert found.decision.reason == (
        "consumer 0 carries 270 bytes/s, above 100; 3 consumers would be needed, but "
        "--max-consumers is 2; no move that --max-moves allows would help"
    )
