import pytest

from trimtab.apply.freshness import Difference, PlanChange, check_fresh, differences
from trimtab.errors import PlanOutdated
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.model.plan_codec import plan_id
from trimtab.plan.consumers.plan import plan_consumers

A, B, C, D = (TopicPartition("orders", n) for n in range(4))
LOADS = {A: 60, B: 50, C: 10}
NOW = {A: 0, B: 0}


def plan(loads=None, current=None, dead=frozenset()):
    return plan_consumers(
        LOADS if loads is None else loads,
        Assignment(NOW if current is None else current),
        GroupLimits(capacity=100),
        planner="mwf",
        made_ts=1,
        dead=dead,
    )


def test_a_plan_is_fresh_while_partitions_and_owners_are_as_it_found_them():
    check_fresh(plan(), LOADS, Assignment(NOW))
    assert differences(plan(), LOADS, Assignment(NOW)) == ()


def test_owners_of_other_topics_do_not_matter():
    check_fresh(plan(), LOADS, Assignment({**NOW, TopicPartition("other", 0): 5}))


@pytest.mark.parametrize(
    ("partitions", "owners", "difference"),
    [
        ([A, B, C], {A: 0, B: 1}, Difference(B, PlanChange.OTHER_OWNER)),
        ([A, B, C], {A: 0}, Difference(B, PlanChange.NO_OWNER)),
        ([A, B, C], {A: 0, B: 0, C: 0}, Difference(C, PlanChange.OWNER)),
        ([A, B, C, D], {A: 0, B: 0}, Difference(D, PlanChange.APPEARED)),
        ([A, B], {A: 0, B: 0}, Difference(C, PlanChange.VANISHED)),
    ],
)
def test_a_changed_world_makes_it_stale_and_is_named(partitions, owners, difference):
    made = plan()
    assert differences(made, partitions, Assignment(owners)) == (difference,)
    with pytest.raises(PlanOutdated) as raised:
        check_fresh(made, partitions, Assignment(owners))
    assert raised.value.exit_code == 5
    assert str(difference) in raised.value.message


def test_the_message_says_what_happened_to_what_and_what_to_do():
    made = plan()
    with pytest.raises(PlanOutdated) as raised:
        check_fresh(made, LOADS, Assignment({A: 0, B: 1}))
    start = f"Plan {plan_id(made)} was made for snapshot {made.snapshot}, the group is at "
    assert raised.value.message.startswith(start)
    assert raised.value.message.endswith(": orders-1 has another owner.")
    assert raised.value.hint == 'Run "trimtab plan consumers" again.'


def test_many_differences_are_named_in_part():
    many = plan({TopicPartition("orders", n): 1 for n in range(5)}, {})
    with pytest.raises(PlanOutdated, match="orders-2 was deleted, and 2 more"):
        check_fresh(many, [], Assignment())


def test_a_plan_with_a_dead_consumer_is_fresh_while_its_partitions_are_still_there():
    made = plan(current={A: 0, B: 1}, dead=frozenset({1}))
    check_fresh(made, LOADS, Assignment({A: 0, B: 1}))
    assert differences(made, LOADS, Assignment({A: 0, B: 1})) == ()


def test_an_orphan_that_somebody_took_makes_the_plan_stale():
    made = plan(current={A: 0, B: 1}, dead=frozenset({1}))
    with pytest.raises(PlanOutdated, match="orders-1 has another owner"):
        check_fresh(made, LOADS, Assignment({A: 0, B: 0}))
