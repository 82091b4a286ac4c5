"""The primitives that every fit shares, each by itself."""

import random

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import Bins, Rule, bigger_first

every_rule = pytest.mark.parametrize("rule", Rule)
T = [TopicPartition("t", n) for n in range(6)]
C100 = GroupLimits(capacity=100)


def bins_of(rule, sizes, *, previous=None, limits=C100):
    loads = dict(zip(T, sizes, strict=False))
    return Bins(loads, Assignment(previous or {}), limits, rule)


@every_rule
def test_before_anybody_is_open_nobody_is_chosen(rule):
    assert bins_of(rule, (1,)).choose(0) is None


@pytest.mark.parametrize(
    ("rule", "chosen"), [(Rule.NEXT, 5), (Rule.FIRST, 2), (Rule.BEST, 7), (Rule.WORST, 3)]
)
def test_each_rule_prefers_another_consumer(rule, chosen):
    # Opened in this order: 7 with 60, 3 with 30, 2 with 50, 5 with 40; a 40 fits everywhere.
    bins = bins_of(rule, (60, 30, 50, 40), previous=dict(zip(T, (7, 3, 2, 5), strict=False)))
    for partition, consumer in zip(T, (7, 3, 2, 5), strict=False):
        bins.add(partition, consumer)
    assert bins.choose(40) == chosen


@pytest.mark.parametrize(
    ("rule", "chosen"), [(Rule.NEXT, None), (Rule.FIRST, 3), (Rule.BEST, 3), (Rule.WORST, 3)]
)
def test_a_consumer_without_room_is_passed_over(rule, chosen):
    bins = bins_of(rule, (60, 30, 50), previous=dict(zip(T, (7, 3, 2), strict=False)))
    for partition, consumer in zip(T, (7, 3, 2), strict=False):
        bins.add(partition, consumer)
    assert bins.choose(70) == chosen
    assert bins.choose(71) is None


@every_rule
def test_what_nobody_can_carry_fits_an_empty_consumer_only(rule):
    bins = bins_of(rule, (130, 0))
    assert bins.fits(0, 130)
    bins.add(T[0], 0)
    assert not bins.fits(0, 0)
    assert bins.choose(0) is None


@every_rule
def test_an_empty_partition_makes_a_consumer_open(rule):
    bins = bins_of(rule, (0, 100))
    bins.place(T[0])
    assert bins.choose(100) == 0


@every_rule
def test_a_new_consumer_is_named_after_the_past_or_takes_the_lowest_free_index(rule):
    bins = bins_of(rule, (60, 60, 60, 60), previous={T[0]: 1, T[1]: 1, T[2]: 3})
    for partition in T[:4]:
        bins.place(partition)
    assert [bins.assignment()[p] for p in T[:4]] == [1, 0, 3, 2]


@pytest.mark.parametrize("rule", [Rule.FIRST, Rule.BEST, Rule.WORST])
def test_what_is_left_counts_where_capacities_differ(rule):
    limits = GroupLimits(capacity=100, capacities={0: 300, 2: 50})
    bins = bins_of(
        rule, (220, 10, 40), previous=dict(zip(T, (0, 1, 2), strict=False)), limits=limits
    )
    for partition, consumer in zip(T, (0, 1, 2), strict=False):
        bins.add(partition, consumer)
    # Left: 80, 90 and 10.
    assert bins.choose(5) == {Rule.FIRST: 0, Rule.BEST: 2, Rule.WORST: 1}[rule]
    assert bins.choose(85) == 1


def test_first_fit_finds_the_lowest_index_whatever_has_been_opened_between():
    rng = random.Random(2)
    partitions = [TopicPartition("t", n) for n in range(300)]
    loads = {p: rng.randrange(60) for p in partitions}
    bins = Bins(loads, Assignment(), C100, Rule.FIRST)
    filled: dict[int, int] = {}
    for partition in partitions:
        room = [c for c in sorted(filled) if filled[c] + loads[partition] <= 100]
        expected = room[0] if room else len(filled)
        bins.place(partition)
        filled[expected] = filled.get(expected, 0) + loads[partition]
        assert bins.assignment()[partition] == expected


def test_the_biggest_come_first_and_equals_in_order():
    loads = {T[2]: 5, T[0]: 5, T[1]: 9}
    assert bigger_first(loads, loads) == [T[1], T[0], T[2]]
