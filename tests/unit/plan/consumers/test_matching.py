import random
from itertools import count

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.plan.consumers.matching import matching, named


def parts(*numbers):
    return [TopicPartition("t", n) for n in numbers]


def owned(**by_consumer):
    """c0=[1, 2] puts partitions 1 and 2 on consumer 0."""
    return Assignment(
        {p: int(c[1:]) for c, numbers in by_consumer.items() for p in parts(*numbers)}
    )


def weights(*values):
    return {TopicPartition("t", n): value for n, value in enumerate(values)}


def every_matching(pairs):
    """Each as (worth, what consumers get in their order), by trying everything."""
    consumers = sorted({c for row in pairs.values() for c in row})

    def go_on(at, used, chosen, worth):
        if at == len(consumers):
            yield worth, chosen
            return
        yield from go_on(at + 1, used, (*chosen, None), worth)
        for b in sorted(pairs):
            if b not in used and consumers[at] in pairs[b]:
                more = worth + pairs[b][consumers[at]]
                yield from go_on(at + 1, used | {b}, (*chosen, b), more)

    for worth, chosen in go_on(0, frozenset(), (), 0):
        yield worth, chosen, {b: c for c, b in zip(consumers, chosen, strict=True) if b is not None}


def first_of_the_best(pairs):
    last = 1 + max(pairs, default=0)
    ranked = (
        (-worth, [last if b is None else b for b in chosen], found)
        for worth, chosen, found in every_matching(pairs)
    )
    return min(ranked, key=lambda entry: entry[:2])[2]


@pytest.mark.parametrize("highest", [1, 2, 3, 12])
def test_the_matching_is_the_first_of_the_best_that_trying_everything_finds(highest):
    rng = random.Random(highest)
    for _ in range(150):
        consumers = range(rng.randint(1, 5))
        pairs = {
            b: row
            for b in range(rng.randint(1, 5))
            if (row := {c: rng.randint(1, highest) for c in consumers if rng.random() < 0.6})
        }
        assert matching(pairs) == first_of_the_best(pairs)


def test_a_bin_is_named_after_the_consumer_that_holds_most_of_it():
    bins = [parts(0, 1), parts(2)]
    now = owned(c5=[0], c2=[1, 2])
    assert named(bins, now, weights(10, 3, 4)) == [5, 2]


def test_the_sum_counts_and_not_the_best_single_pair():
    # bin 0 shares 10 with consumer 0 and 9 with consumer 1, bin 1 shares 8 with consumer 0 only
    bins = [parts(0, 1), parts(2)]
    now = owned(c0=[0, 2], c1=[1])
    assert named(bins, now, weights(10, 9, 8)) == [1, 0]


def test_one_heavy_pair_outweighs_two_light_ones():
    bins = [parts(0, 1), parts(2)]
    now = owned(c0=[0, 2], c1=[1])
    assert named(bins, now, weights(10, 3, 4)) == [0, 1]


def test_a_bin_that_shares_nothing_takes_the_lowest_index_that_no_match_has():
    bins = [parts(0), parts(1), parts(2)]
    assert named(bins, owned(c0=[1]), weights(1, 1, 1)) == [1, 0, 2]


def test_a_bin_that_shares_nothing_takes_an_idle_consumer_first():
    bins = [parts(0), parts(1), parts(2)]
    assert named(bins, owned(c7=[1]), weights(1, 1, 1), idle={4, 7}) == [4, 7, 0]


def test_empty_partitions_stay_where_they_are_when_nothing_heavier_speaks_against_it():
    bins = [parts(0), parts(1, 2), parts(3)]
    now = owned(c3=[0], c1=[1], c2=[2, 3])
    assert named(bins, now, weights(0, 0, 0, 5)) == [3, 1, 2]


def test_of_equal_loads_kept_more_partitions_stay():
    bins = [parts(0, 1, 2)]
    now = owned(c0=[0], c1=[1, 2])
    assert named(bins, now, weights(4, 2, 2)) == [1]


def test_of_equal_consumers_the_smaller_index_is_matched():
    assert named([parts(0, 1)], owned(c8=[0], c3=[1]), weights(5, 5)) == [3]


def test_of_equal_bins_the_smaller_number_is_matched():
    assert named([parts(0), parts(1)], owned(c3=[0, 1]), weights(5, 5)) == [3, 0]


def test_departed_partitions_play_no_part():
    now = owned(c0=[7, 8], c1=[0])
    assert named([parts(0)], now, weights(1)) == [1]


def test_there_may_be_no_bins_and_no_consumers():
    assert named([], owned(c0=[1]), {}) == []
    assert named([parts(0), parts(1)], Assignment(), weights(1, 1)) == [0, 1]


def test_sums_of_fractions_are_exact():
    # In floats 0.1 + 0.2 is 0.30000000000000004; the exact sum lies between that and 0.3.
    bins = [parts(0, 1, 2)]
    now = owned(c0=[2], c1=[0, 1])
    assert named(bins, now, weights(0.1, 0.2, 0.3)) == [1]
    assert named(bins, now, weights(0.1, 0.2, 0.30000000000000004)) == [0]


def test_the_names_do_not_depend_on_the_order_of_anything_but_the_bins():
    rng = random.Random(4)
    numbers = range(60)
    bins: list[list[TopicPartition]] = [[] for _ in range(12)]
    for p in parts(*numbers):
        bins[rng.randrange(12)].append(p)
    now = {p: rng.randrange(14) for p in parts(*numbers)}
    loads = {p: rng.randrange(3) for p in parts(*numbers)}
    names = named(bins, Assignment(now), loads)
    for _ in range(5):
        mixed = rng.sample(list(now), len(now))
        again = named(
            [rng.sample(b, len(b)) for b in bins],
            Assignment({p: now[p] for p in mixed}),
            {p: loads[p] for p in mixed},
        )
        assert again == names


def test_thousands_of_bins_get_distinct_names_that_keep_at_least_what_a_greedy_choice_keeps():
    rng = random.Random(2)
    partitions = parts(*range(4000))
    bins = [partitions[i::2000] for i in range(2000)]
    now = Assignment({p: rng.randrange(2000) for p in partitions})
    loads = {p: rng.randrange(1000) for p in partitions}
    names = named(bins, now, loads)

    shared: dict[tuple[int, int], int] = {}
    for b, bin_ in enumerate(bins):
        for p in bin_:
            shared[b, now[p]] = shared.get((b, now[p]), 0) + loads[p]
    greedy, taken_bins, taken = 0, set[int](), set[int]()
    for (b, c), load in sorted(shared.items(), key=lambda entry: -entry[1]):
        if b not in taken_bins and c not in taken:
            greedy += load
            taken_bins.add(b)
            taken.add(c)
    assert len(set(names)) == len(names)
    assert sum(shared.get(pair, 0) for pair in zip(count(), names)) >= greedy
