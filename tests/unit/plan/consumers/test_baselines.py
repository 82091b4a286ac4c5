"""What a group has without a planner, on examples small enough to deal by hand."""

import math

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.baselines import BASELINES, KeptPartitions
from trimtab.plan.consumers.planner import PackingContext, PlannerKind

DEALS = {planner.name: planner for planner in BASELINES}
kafka_range, round_robin, sticky, lag_based, keda_lag = (
    DEALS[name]
    for name in ("kafka-range", "kafka-round-robin", "kafka-sticky", "lag-based", "keda-lag")
)
every_rival = pytest.mark.parametrize("rival", BASELINES, ids=lambda rival: rival.name)
C100 = GroupLimits(capacity=100)
T = [TopicPartition("t", n) for n in range(8)]


def ones(number):
    return dict.fromkeys(T[:number], 1)


def owners(*consumers):
    return Assignment({p: c for p, c in zip(T, consumers, strict=False) if c is not None})


def members(number):
    return PackingContext(members=number)


def lags(*of_partitions, **more):
    return PackingContext(lags=dict(zip(T, of_partitions, strict=False)), **more)


def test_range_deals_contiguous_runs_and_the_first_members_get_one_more():
    after = kafka_range(ones(7), Assignment(), C100, members(3))
    assert after == owners(0, 0, 0, 1, 1, 2, 2)


def test_range_begins_again_with_every_topic():
    two = [TopicPartition(topic, n) for topic in ("a", "b") for n in range(3)]
    after = kafka_range(dict.fromkeys(two, 1), Assignment(), C100, members(2))
    assert [after[p] for p in two] == [0, 0, 1, 0, 0, 1]


def test_range_leaves_members_idle_when_no_topic_has_enough_partitions():
    assert kafka_range(ones(2), Assignment(), C100, members(5)) == owners(0, 1)


def test_round_robin_goes_on_across_topics():
    two = [TopicPartition(topic, n) for topic in ("a", "b") for n in range(3)]
    after = round_robin(dict.fromkeys(two, 1), Assignment(), C100, members(2))
    assert [after[p] for p in two] == [0, 1, 0, 1, 0, 1]


def test_sticky_changes_nothing_where_numbers_are_equal():
    before = owners(1, 0, 1, 0, 2)
    assert sticky(ones(5), before, C100) == before


def test_sticky_gives_a_new_member_only_what_equal_numbers_ask_for():
    # 4 + 4 become 3 + 3 + 2: each gives its highest one away.
    before = owners(0, 0, 0, 0, 1, 1, 1, 1)
    assert sticky(ones(8), before, C100, members(3)) == owners(0, 0, 0, 2, 1, 1, 1, 2)


def test_sticky_may_keep_the_highest_instead():
    before = owners(0, 0, 0, 0, 1, 1, 1, 1)
    after = sticky.with_options(sticky_keeps=KeptPartitions.HIGHEST)(
        ones(8), before, C100, members(3)
    )
    assert after == owners(2, 0, 0, 0, 2, 1, 1, 1)


def test_sticky_lets_those_have_one_more_who_can_keep_it():
    # Seven among three: one has 3. Member 2 owns four, so it keeps three and the others get two.
    before = owners(0, 1, 1, 2, 2, 2, 2)
    assert sticky(ones(7), before, C100) == owners(0, 1, 1, 2, 2, 2, 0)


def test_sticky_deals_arrivals_to_the_fewest_and_of_equals_to_the_lowest():
    before = owners(0, 0, 1, None, None, None)
    assert sticky(ones(6), before, C100) == owners(0, 0, 1, 1, 0, 1)


def test_what_a_leaving_member_had_is_dealt_anew():
    before = owners(0, 1, 2, 2)
    assert sticky(ones(4), before, C100, members(2)) == owners(0, 1, 0, 1)


def test_the_greatest_lag_goes_first_to_the_fewest_partitions_then_to_the_least_lag():
    # 90 → 0, 50 → 1; each has one: 40 → 1 (50 < 90), 10 → 0; 5 → 1 (90 < 100).
    after = lag_based(ones(5), Assignment(), C100, lags(10, 90, 5, 50, 40, members=2))
    assert after == owners(0, 0, 1, 1, 1)


def test_partitions_of_equal_or_unknown_lag_are_taken_in_order():
    after = lag_based(ones(4), Assignment(), C100, lags(0, 7, members=2))
    assert after == owners(1, 0, 1, 0)


@pytest.mark.parametrize(
    ("lag", "consumers"), [(0, 1), (1, 1), (100, 1), (101, 2), (200, 2), (201, 3), (10**6, 4)]
)
def test_keda_takes_one_consumer_per_threshold_of_lag_and_at_most_one_per_partition(lag, consumers):
    after = keda_lag.with_options(lag_threshold=100)(ones(4), Assignment(), C100, lags(lag))
    assert after.consumers == tuple(range(consumers))


def test_keda_counts_only_the_lag_of_partitions_that_are_there():
    after = keda_lag.with_options(lag_threshold=100)(ones(2), Assignment(), C100, lags(0, 0, 500))
    assert after.consumers == (0,)


def test_keda_deals_as_sticky_does():
    before = owners(3, 3, 3, 5, 5)
    after = keda_lag.with_options(lag_threshold=10)(ones(5), before, C100, lags(30))
    assert after == sticky(ones(5), before, C100, members(3))
    assert after == owners(3, 3, 0, 5, 5)


@every_rival
def test_rivals_know_no_capacity(rival):
    assert rival.kind is PlannerKind.DEALS
    heavy = dict.fromkeys(T[:4], 90)
    assert len(rival(heavy, owners(0, 0, 0, 0), C100).consumers) == 1


@pytest.mark.parametrize(
    "rival", [r for r in BASELINES if "members" in r.uses], ids=lambda r: r.name
)
def test_a_group_without_a_past_has_the_fewest_members_that_could_carry_the_load(rival):
    assert rival(dict.fromkeys(T[:5], 60), Assignment(), C100).consumers == (0, 1, 2, 3, 4)
    assert rival(dict.fromkeys(T[:4], 50), Assignment(), C100).consumers == (0, 1)


@pytest.mark.parametrize(
    "rival", [r for r in BASELINES if "members" in r.uses], ids=lambda r: r.name
)
def test_members_keep_their_indexes_new_ones_take_the_lowest_free_the_highest_leave(rival):
    before = owners(2, 5, 5, 7, 7, 7)
    assert rival(ones(6), before, C100).consumers == (2, 5, 7)
    assert rival(ones(6), before, C100, members(5)).consumers == (0, 1, 2, 5, 7)
    assert rival(ones(6), before, C100, members(2)).consumers == (2, 5)


@pytest.mark.parametrize(
    "rival", [r for r in BASELINES if "members" in r.uses], ids=lambda r: r.name
)
def test_a_consumer_that_had_only_departed_partitions_is_no_member(rival):
    before = Assignment({T[0]: 0, TopicPartition("gone", 0): 1})
    assert rival(ones(4), before, C100).consumers == (0,)


@every_rival
def test_nothing_to_deal_needs_nobody(rival):
    assert rival({}, owners(0, 1), C100) == Assignment()


@every_rival
@pytest.mark.parametrize("load", [-1, math.nan, math.inf])
def test_a_load_nobody_can_reckon_with_is_refused_by_name(rival, load):
    with pytest.raises(ValueError, match="t-0 has load"):
        rival({T[0]: load}, Assignment(), C100)


@pytest.mark.parametrize("rival", [lag_based, keda_lag], ids=lambda r: r.name)
def test_a_lag_below_0_is_refused_by_name(rival):
    with pytest.raises(ValueError, match="t-1 has lag -3"):
        rival(ones(2), Assignment(), C100, lags(0, -3))
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="t-1 has lag"):
            rival(ones(2), Assignment(), C100, lags(0, wrong))


def test_a_group_of_no_members_is_refused():
    with pytest.raises(ValueError, match="number of members must be at least 1"):
        sticky(ones(2), Assignment(), C100, members(0))


def test_a_threshold_of_0_is_refused():
    with pytest.raises(ValueError, match="lag threshold must be at least 1"):
        keda_lag.with_options(lag_threshold=0)


@every_rival
def test_members_beyond_one_for_each_partition_change_nothing_however_many(rival):
    now = owners(None, 9, 9)
    assert rival(ones(3), now, C100, members(10**9)) == rival(ones(3), now, C100, members(20))
