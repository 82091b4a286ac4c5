from trimtab.evaluate.rscore import moved_load, rscore
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

A, B, C, D = (TopicPartition("t", n) for n in range(4))


def test_only_partitions_that_changed_their_consumer_count():
    before, after = Assignment({A: 0, B: 0, C: 1}), Assignment({A: 0, B: 1, C: 0})
    assert moved_load(before, after, {A: 1, B: 20, C: 300}) == 320


def test_arrivals_and_departures_cost_nothing():
    before, after = Assignment({A: 0, B: 0}), Assignment({A: 0, C: 1})
    assert moved_load(before, after, {A: 10, C: 20}) == 0


def test_the_first_assignment_of_a_group_costs_nothing():
    assert rscore(Assignment(), Assignment({A: 0, B: 1}), {A: 10, B: 20}, capacity=100) == 0


def test_an_empty_partition_moves_for_nothing():
    assert rscore(Assignment({D: 0}), Assignment({D: 1}), {D: 0}, capacity=100) == 0
