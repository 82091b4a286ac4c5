"""Worked examples of Landau et al., and of their algorithms carried out by hand."""

from trimtab.evaluate.rscore import rscore
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT

PLANNERS = {planner.name: planner for planner in (*ANY_FIT, *MODIFIED_ANY_FIT)}
P = [TopicPartition("t", n) for n in range(7)]
C100 = GroupLimits(capacity=100)


def test_three_moved_partitions_of_100_bytes_per_second_have_an_rscore_of_3():
    """Section IV-A: "3 partitions being rebalanced … capacity is 100 bytes/s, then Rscore = 3"."""
    before = Assignment({P[0]: 0, P[1]: 1, P[2]: 2, P[3]: 3})
    after = Assignment({P[0]: 1, P[1]: 2, P[2]: 0, P[3]: 3})
    assert rscore(before, after, dict.fromkeys(P[:4], 100), capacity=100) == 3


def test_best_fit_decreasing_with_sticky_names():
    """Eq. 14: a new bin takes the previous index of its first item, else the lowest free one.

    In order of size: 70 opens 2 (its own); 60 opens 0 (its own, not open); 50 was on 2, which is
    open: the lowest free is 1; 40 goes to 0 (60, the fullest with room); 30 to 2 (70); 25 to 1.
    """
    loads = dict(zip(P, (60, 70, 50, 40, 30, 25), strict=False))
    before = Assignment(dict(zip(P, (0, 2, 2, 1, 1, 0), strict=False)))
    after = PLANNERS["bfd"](loads, before, C100)
    assert [after[p] for p in sorted(after)] == [0, 2, 1, 0, 2, 1]
    assert rscore(before, after, loads, capacity=100) == (50 + 40 + 30 + 25) / 100


def test_modified_worst_fit_through_all_three_phases():
    """Algorithm 1.

    Consumers by load: 0 has 80 + 30 = 110, 2 has 55 + 20 = 75, 1 has 15; 10 is an arrival.
    0: nobody is open; 80 stays, 30 does not fit and is homeless.
    2: 20 goes to 0 (100), 55 fits nowhere: 2 reopens with it.
    1: 15 goes to 2 (70); 1 is not reopened.
    The homeless, biggest first: 30 goes to 2 (100); 10 fits nowhere and opens 1, the lowest free.
    """
    loads = dict(zip(P, (80, 30, 55, 20, 15, 10), strict=False))
    before = Assignment(dict(zip(P, (0, 0, 2, 2, 1), strict=False)))
    after = PLANNERS["mwf"](loads, before, C100)
    assert [after[p] for p in sorted(after)] == [0, 2, 2, 0, 2, 1]
    assert rscore(before, after, loads, capacity=100) == (30 + 20 + 15) / 100


def test_modified_worst_fit_moves_less_than_best_fit_decreasing_where_little_has_changed():
    """What the algorithm is for, section VI-E, on one step of a small stream."""
    before = Assignment(dict(zip(P, (0, 0, 1, 1, 2, 2, 2), strict=True)))
    loads = dict(zip(P, (61, 35, 58, 36, 52, 20, 12), strict=True))
    moved = {
        name: rscore(before, planner(loads, before, C100), loads, capacity=100)
        for name, planner in PLANNERS.items()
    }
    assert moved["mwf"] == 0
    assert moved["bfd"] == (35 + 36) / 100
