import os
import subprocess
import sys

import pytest

from trimtab.errors import PlanningError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import Cost, Layer, Reason
from trimtab.model.plan_codec import plan_to
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import PlannerKind
from trimtab.plan.registry import PLANNERS

A, B, C, D = (TopicPartition("orders", n) for n in range(4))


def planned(loads, current, limits=None, **options):
    limits = GroupLimits(capacity=100) if limits is None else limits
    return plan_consumers(
        loads, Assignment(current), limits, **{"planner": "mwf", "made_ts": 1, **options}
    )


def reasons(plan):
    return {m.name: (m.reason, dict(m.numbers)) for m in plan.moves}


def test_the_example_of_the_contract():
    loads = {A: 863461, B: 1236539, C: 900000}
    plan = planned(loads, {A: 0, B: 0, C: 1}, GroupLimits(capacity=2000000), group="g")
    written = plan_to(plan)
    assert written["moves"] == [
        {
            "topic": "orders",
            "partition": 0,
            "from": 0,
            "to": 1,
            "load": 863461,
            "reason": "overload",
            "numbers": {"load_from": 2100000, "capacity": 2000000},
        }
    ]
    assert written["assignment"] == {"orders": {"0": 1, "1": 0, "2": 1}}
    assert written["before"] == {"consumers": 2, "max_load": 2100000}
    assert written["after"] == {"consumers": 2, "max_load": 1763461}
    assert (written["bound"], written["bound_moved_load"], written["gap"]) == (2, 100000, 0.0)
    assert written["cost"] == {
        "moves": 1,
        "moved_load": 863461,
        "rscore": 0.4317305,
        "orphan_load": 0,
    }
    assert written["inverse"] == [{"topic": "orders", "partition": 0, "from": 1, "to": 0}]
    assert written["scope"] == {"group": "g", "topics": ["orders"]}
    assert (written["unplaced"], written["params"]) == ([], {"capacity": 2000000})


@pytest.mark.parametrize("load", [8.0, 1e305])
def test_a_capacity_that_makes_loads_infinite_is_refused(load):
    with pytest.raises(PlanningError, match="too large for capacity 1e-310"):
        planned({A: load}, {A: 0}, GroupLimits(capacity=1e-310))


def test_arrivals_are_listed_and_cost_nothing():
    plan = planned({A: 60, B: 30}, {A: 0})
    assert reasons(plan) == {B: (Reason.ARRIVAL, {"load_to": 90, "capacity": 100})}
    assert plan.cost == Cost(moves=0, moved_load=0, rscore=0, orphan_load=0)
    assert plan.inverse == ()


def test_what_a_dead_consumer_had_is_an_orphan_and_reported_apart():
    plan = planned({A: 60, B: 30}, {A: 0, B: 1}, dead=frozenset({1}))
    assert reasons(plan) == {B: (Reason.ORPHAN, {"load_to": 90, "capacity": 100})}
    assert plan.cost == Cost(moves=0, moved_load=0, rscore=0, orphan_load=30)
    assert plan.before.consumers == 1
    assert plan.params["dead"] == [1]


def test_a_consumer_that_is_closed_gives_the_reason_consolidate():
    plan = planned({A: 70, B: 20}, {A: 0, B: 1})
    numbers = {"load_from": 20, "consumers_before": 2, "consumers_after": 1}
    assert reasons(plan) == {B: (Reason.CONSOLIDATE, numbers)}


def test_a_move_that_no_overload_or_closing_explains_is_a_repack():
    # 5 and 15 leave 1, which stays open for 30.
    plan = planned({A: 80, B: 30, C: 15, D: 5}, {A: 0, B: 1, C: 1, D: 1})
    numbers = {"load_from": 50, "load_to": 80, "capacity": 100}
    assert reasons(plan) == {C: (Reason.REPACK, numbers), D: (Reason.REPACK, numbers)}


def test_departed_partitions_are_dropped_and_are_no_moves():
    plan = planned({A: 60}, {A: 0, B: 1})
    assert plan.moves == ()
    assert plan.before.consumers == 1


def test_what_no_consumer_can_carry_is_named_as_oversize():
    (item,) = planned({A: 130, B: 20}, {}).unplaced
    assert (item.topic, item.partition, item.why, item.load) == ("orders", 0, "oversize", 130)


def test_what_only_a_taken_consumer_could_carry_is_named_as_without_room():
    limits = GroupLimits(capacity=100, capacities={3: 200})
    (item,) = planned({A: 150, B: 140}, {}, limits).unplaced
    assert (item.partition, item.why) == (1, "no_room")


def test_the_parameters_say_what_is_not_the_default():
    limits = GroupLimits(capacity=100.0, capacities={2: 50.0}, unit=Unit.RECORDS_S)
    assert planned({A: 1}, {}, limits).params == {
        "capacity": 100,
        "capacities": {"2": 50},
        "unit": "records/s",
    }


def test_the_gap_is_how_far_the_plan_is_from_the_bound():
    # 40 40 | 30 30 30 | 30, while 40 30 30 | 40 30 30 would do.
    loads = {TopicPartition("t", n): size for n, size in enumerate((40, 40, 30, 30, 30, 30))}
    plan = planned(loads, {})
    assert (plan.after.consumers, plan.bound, plan.gap) == (3, 2, 0.5)


def test_no_partitions_need_no_consumer():
    plan = planned({}, {})
    assert (plan.bound, plan.gap, plan.after.consumers, plan.after.max_load) == (0, 0.0, 0, 0)


def test_the_input_is_what_it_was():
    loads, current = {A: 60, B: 50}, {A: 0, B: 0}
    planned(loads, current)
    assert loads == {A: 60, B: 50}
    assert current == {A: 0, B: 0}


PROGRAM = """
import random
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.plan_codec import plan_id
from trimtab.model.load import GroupLimits
from trimtab.model.plan import Layer
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.any_fit import SortOrder
from trimtab.plan.consumers.planner import PlannerKind
from trimtab.plan.registry import PLANNERS, configured

rng = random.Random(3)
names = {TopicPartition(topic, n) for topic in ("a", "b", "c") for n in range(40)}
loads = {p: rng.randrange(60) for p in sorted(names)}
loads = {p: loads[p] for p in names}  # in the order of the set, which follows the hash seed
current = Assignment({p: rng.randrange(30) for p in sorted(names) if p.partition % 7})
limits = GroupLimits(capacity=100)
lags = {p: 3 * loads[p] % 50 for p in names}
told = {"order": SortOrder.SHUFFLE, "lags": lags, "sla_s": 5, "lag_threshold": 100}
all_loads, few_loads = loads, {p: load for p, load in loads.items() if p.partition < 4}
for name, planner in sorted(PLANNERS[Layer.CONSUMERS].items()):
    loads = few_loads if name == "exact" else all_loads  # it takes its time
    (planner,), context = configured([planner], told, optional=told)
    after = planner(loads, current.without(frozenset({3, 4})), limits, context)
    print(name, [after[p] for p in sorted(after)], end=" ")
    if planner.kind is not PlannerKind.LATENCY:
        dead = frozenset({3, 4})
        plan = plan_consumers(loads, current, limits, planner=name, made_ts=1, dead=dead)
        print(plan_id(plan), end="")
    print()
"""


def test_plans_do_not_depend_on_the_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    (only,) = outputs
    assert len(only.splitlines()) == len(PLANNERS[Layer.CONSUMERS])


@pytest.mark.parametrize(
    "name", [n for n, p in PLANNERS[Layer.CONSUMERS].items() if p.kind is not PlannerKind.LATENCY]
)
def test_planning_again_with_unchanged_loads_ends_without_moves_for_a_lone_consumer(name):
    first = planned({A: 60, B: 30}, {}, planner=name)
    again = planned({A: 60, B: 30}, dict(first.assignment), planner=name)
    assert again.moves == ()
