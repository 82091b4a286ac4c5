"""SQF: what is counted, and what happens when brokers come and go."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import CountUnit, RoutingOptions
from trimtab.plan.records.shortest_queue import MOST, ShortestQueue

ALL = {"t": {0: 1, 1: 2, 2: 3}}
WITHOUT_3 = {"t": {0: 1, 1: 2, 2: -1}}


def brokers(sqf, records, snapshot, *, size=100, topic="t"):
    """Who was chosen, record by record."""
    leader = snapshot.topic(topic).leader
    return [leader[sqf.partition(topic, None, size, snapshot)] for _ in range(records)]


def longest_run(chosen):
    return max(len(list(run)) for _, run in groupby(chosen))


def sqf_at_zero(**options):
    return ShortestQueue(RoutingOptions(start=0, **options))


def test_bytes_are_counted():
    sqf, seen = sqf_at_zero(), LeaderSnapshot({"t": {0: 1, 1: 2}})

    chosen = [brokers(sqf, 1, seen, size=size)[0] for size in (300, 100, 100, 100, 50)]

    assert chosen == [1, 2, 2, 2, 1]


@pytest.mark.parametrize("options", [{"counted": CountUnit.RECORDS}, {"faithful": True}])
def test_records_are_counted_when_wanted(options):
    sqf, seen = sqf_at_zero(**options), LeaderSnapshot({"t": {0: 1, 1: 2}})

    assert [brokers(sqf, 1, seen, size=size)[0] for size in (300, 1, 1, 1)] == [1, 2, 1, 2]


def test_records_without_a_byte_go_round():
    seen = LeaderSnapshot(ALL)

    assert Counter(brokers(sqf_at_zero(), 30, seen, size=0)) == {1: 10, 2: 10, 3: 10}


def test_of_equal_brokers_the_lowest_id_is_first():
    seen = LeaderSnapshot({"t": {0: 1001, 1: 42, 2: 7}})

    assert brokers(sqf_at_zero(), 4, seen) == [7, 42, 1001, 7]


def test_a_broker_that_returns_is_not_flooded():
    sqf = sqf_at_zero()
    brokers(sqf, 300, LeaderSnapshot(ALL))
    brokers(sqf, 5000, LeaderSnapshot(WITHOUT_3))

    after = brokers(sqf, 60, LeaderSnapshot(ALL))

    assert longest_run(after) <= 2 * 3
    assert Counter(after) == {1: 20, 2: 20, 3: 20}


def test_a_quiet_topic_that_never_saw_the_broker_go_does_not_flood_it():
    # Records of "quiet" come before and after; only "t" is written while broker 3 is away.
    quiet = {"quiet": {0: 1, 1: 2, 2: 3}}
    sqf = sqf_at_zero()
    brokers(sqf, 3, LeaderSnapshot(ALL | quiet), topic="quiet")
    away = LeaderSnapshot(WITHOUT_3 | {"quiet": {0: 1, 1: 2, 2: -1}})
    brokers(sqf, 5000, away)

    after = brokers(sqf, 60, LeaderSnapshot(ALL | quiet), topic="quiet")

    assert longest_run(after) <= 2 * 3


def test_the_return_is_noticed_when_the_first_record_is_for_another_topic():
    other = {"other": {0: 1, 1: 2}}
    sqf = sqf_at_zero()
    brokers(sqf, 3, LeaderSnapshot(ALL | other))
    brokers(sqf, 5000, LeaderSnapshot(WITHOUT_3 | other))
    back = LeaderSnapshot(ALL | other)
    brokers(sqf, 2, back, topic="other")

    assert longest_run(brokers(sqf, 60, back)) <= 2 * 3


def test_a_broker_that_came_back_for_another_topic_first_is_not_flooded():
    # An only replica leads again at once; the leaders of t move back minutes later.
    alone = {"alone": {0: 3}}
    sqf = sqf_at_zero()
    brokers(sqf, 3, LeaderSnapshot(ALL | alone))
    brokers(sqf, 100, LeaderSnapshot(WITHOUT_3 | {"alone": {0: -1}}))
    brokers(sqf, 5000, LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2}} | alone))

    assert longest_run(brokers(sqf, 60, LeaderSnapshot(ALL | alone))) <= 2 * 3


def test_a_new_broker_enters_at_the_smallest_value_of_those_that_stayed():
    sqf = sqf_at_zero()
    brokers(sqf, 1000, LeaderSnapshot({"t": {0: 1, 1: 2}}))

    after = brokers(sqf, 8, LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3, 3: 4}}))

    assert after == [1, 2, 3, 4, 1, 2, 3, 4]


BUSY, QUIET = {"A": {0: 1, 1: 2}}, {"C": {0: 3, 1: 4}}


def busy_and_quiet(**options):
    """Brokers 1 and 2 have been given 5,000 records each, 3 and 4 fifty."""
    sqf = sqf_at_zero(counted=CountUnit.RECORDS, **options)
    before = LeaderSnapshot(BUSY | QUIET)
    brokers(sqf, 10_000, before, topic="A")
    brokers(sqf, 100, before, topic="C")
    return sqf


@pytest.mark.parametrize("first", ["A", "C"])
def test_a_leader_that_moves_to_a_quiet_broker_turns_no_other_topic_away_from_it(first):
    sqf = busy_and_quiet()
    after = LeaderSnapshot({"A": {0: 1, 1: 3}} | QUIET)
    brokers(sqf, 1, after, topic=first)

    by_turns = [[brokers(sqf, 1, after, topic=t)[0] for t in ("A", "C")] for _ in range(600)]

    to_a, to_c = zip(*by_turns, strict=True)
    assert longest_run(to_a) <= 2 * 2
    assert longest_run(to_c) <= 2 * 2


def test_as_published_a_leader_that_moves_to_a_quiet_broker_brings_all_it_missed():
    sqf = busy_and_quiet(faithful=True)
    after = LeaderSnapshot({"A": {0: 1, 1: 3}} | QUIET)

    assert longest_run(brokers(sqf, 6000, after, topic="A")) == 5000 - 50


@pytest.mark.parametrize("topic", ["A", "C"])
def test_a_new_broker_enters_at_the_smallest_value_of_all_that_lead(topic):
    sqf = busy_and_quiet()
    joined = LeaderSnapshot({"A": {0: 1, 1: 2, 2: 5}} | QUIET)

    (chosen,) = brokers(sqf, 1, joined, topic=topic)

    given = sqf._clusters[""].used[5] - (chosen == 5)
    assert given == min(sqf._clusters[""].used[b] - (chosen == b) for b in (1, 2, 3, 4))


def test_after_a_total_outage_all_begin_alike():
    sqf = sqf_at_zero()
    brokers(sqf, 5000, LeaderSnapshot(WITHOUT_3))
    brokers(sqf, 10, LeaderSnapshot({"t": {0: -1, 1: -1, 2: -1}}))

    assert brokers(sqf, 6, LeaderSnapshot(ALL)) == [1, 2, 3, 1, 2, 3]


def test_producers_with_metadata_of_different_age_do_not_make_a_broker_come_and_go():
    # One producer has heard that 3 is back, the other has not; they take turns.
    sqf = sqf_at_zero()
    stale, fresh = LeaderSnapshot(WITHOUT_3), LeaderSnapshot(ALL)

    chosen = Counter(
        broker for _ in range(300) for s in (stale, fresh) for broker in brokers(sqf, 1, s)
    )

    assert chosen == {1: 200, 2: 200, 3: 200}


def test_an_older_view_may_name_brokers_that_nobody_leads_with_any_more():
    sqf = sqf_at_zero()
    old, new = LeaderSnapshot(ALL), LeaderSnapshot({"t": {0: -1, 1: -1, 2: -1}})

    brokers(sqf, 1, new)

    assert brokers(sqf, 4, old) == [1, 2, 3, 1]


@pytest.mark.parametrize("faithful", [False, True])
def test_numbers_past_the_limit_change_nothing(faithful):
    sqf, small = sqf_at_zero(faithful=faithful), sqf_at_zero(faithful=faithful)
    seen = LeaderSnapshot(ALL)
    sizes = [3, 1, 1, 2, 5, 1, 1, 4, 1, 1, 1, 2] * 3

    chosen = [brokers(sqf, 1, seen, size=size * (MOST // 4))[0] for size in sizes]

    assert chosen == [brokers(small, 1, seen, size=size)[0] for size in sizes]
    assert max(sqf._clusters[""].used.values()) <= 2 * MOST
