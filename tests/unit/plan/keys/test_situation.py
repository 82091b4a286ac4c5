"""A measurement as counts, and warnings about counts."""

import pytest

from tests.unit.plan.keys.windows import window
from trimtab.errors import ConfigError, ThinData
from trimtab.measure.counters import Count
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad, Source
from trimtab.model.murmur2 import home
from trimtab.plan.keys.planner import KeyOptions
from trimtab.plan.keys.situation import (
    cautions,
    cautions_of_measurement,
    counts_of_measurement,
    measured_topic,
)


def partition(number, records_s=100.0, topic="orders", complete=True):
    return PartitionLoad(
        topic=topic,
        partition=number,
        bytes_s=1.0,
        records_s=records_s,
        source=Source.EVENTS,
        complete=complete,
    )


def heavy(key, lower, share, at, upper=None, topic="orders"):
    return KeyLoad(
        topic=topic,
        key=key,
        lower=lower,
        upper=lower if upper is None else upper,
        share=share,
        partition_home=at,
    )


def measurement(partitions, keys=()):
    return Measurement(
        cluster=None,
        from_ts=0,
        to_ts=60_000_000,
        window_s=30.0,
        rejects=0,
        partitions=tuple(partitions),
        keys=tuple(keys),
    )


def test_the_window_is_the_time_in_which_the_counted_records_come_at_the_measured_rates():
    measured = measurement(
        [partition(0, 150.0), partition(1, 50.0)],
        [heavy(b"a", 400, 0.1, 0, upper=410), heavy(b"b", 100, 0.025, 1)],
    )

    counts = counts_of_measurement(measured, "orders")

    assert counts.window_s == 20  # 400 / 0.1 = 4000 records at 200 a second
    assert counts.partition_totals == (3000, 1000)
    assert [(k.key, k.count, k.upper, k.partition, k.routed) for k in counts.keys] == [
        (b"a", 400, 410, 0, False),
        (b"b", 100, 100, 1, False),
    ]
    assert counts.threshold == 100  # all measured keys are hot


def test_a_total_is_never_below_the_sum_of_its_keys():
    measured = measurement([partition(0, 1.0), partition(1, 199.0)], [heavy(b"a", 400, 0.1, 0)])

    assert counts_of_measurement(measured, "orders").partition_totals == (400, 3980)


def test_only_keys_of_the_topic_count_and_an_unknown_home_is_computed():
    measured = measurement(
        [partition(0), partition(1), partition(0, topic="pay")],
        [heavy(b"a", 400, 0.1, None), heavy(b"z", 9, 0.5, 0, topic="pay")],
    )

    (key,) = counts_of_measurement(measured, "orders").keys

    assert (key.key, key.partition) == (b"a", home(b"a", 2))


def test_without_heavy_keys_the_window_is_that_of_the_rates_and_nothing_is_hot():
    counts = counts_of_measurement(measurement([partition(0), partition(1)]), "orders")

    assert (counts.window_s, counts.partition_totals) == (30, (3000, 3000))
    assert list(cautions(counts, KeyOptions())) == ["no hot keys are listed: nothing can move"]


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([partition(0), partition(2)], "The load of orders-1 is not in the measurement"),
        ([partition(0), partition(1, None)], "The load of orders-1 is unknown"),
    ],
)
def test_partitions_without_a_rate_are_refused(partitions, message):
    with pytest.raises(ThinData, match=message):
        counts_of_measurement(measurement(partitions), "orders")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([heavy(b"a", 40, 0.1, 0), heavy(b"a", 40, 0.1, 0)], 'key "a" is listed twice'),
        ([heavy(b"a", 40, 0.1, 0, upper=12)], "upper bound 12, below its count of 40"),
        ([heavy(b"a", 1, 4.0, 0)], "window_s must be positive"),
    ],
)
def test_keys_that_contradict_themselves_are_refused(keys, message):
    measured = measurement([partition(0), partition(1)], keys)

    with pytest.raises(ConfigError, match=message):
        counts_of_measurement(measured, "orders")


def test_a_key_that_may_have_no_records_says_nothing_about_the_window():
    measured = measurement([partition(0), partition(1)], [heavy(b"a", 0, 0.1, 0, upper=9)])

    assert counts_of_measurement(measured, "orders").window_s == 30


def test_heavy_keys_of_a_topic_without_rates_are_not_planned_for():
    lost = measurement([], [heavy(b"a", 4, 0.1, 0)])
    other = measurement([partition(0, topic="pay")], [heavy(b"a", 4, 0.1, 0)])

    with pytest.raises(ConfigError, match="has 0 topics"):
        measured_topic(lost, None)
    assert measured_topic(other, None) == "pay"


def test_a_home_beyond_the_partitions_is_refused():
    measured = measurement([partition(0), partition(1)], [heavy(b"a", 4, 0.1, 7)])

    with pytest.raises(ConfigError, match="home partition 7, but the topic has 2"):
        counts_of_measurement(measured, "orders")


def test_the_topic_must_be_named_if_there_are_several_with_heavy_keys():
    both = measurement(
        [partition(0), partition(0, topic="pay")],
        [heavy(b"a", 4, 0.1, 0), heavy(b"a", 4, 0.1, 0, topic="pay")],
    )
    one = measurement([partition(0), partition(0, topic="pay")], [heavy(b"a", 4, 0.1, 0)])

    assert measured_topic(both, "pay") == "pay"
    assert measured_topic(one, None) == "orders"
    with pytest.raises(ConfigError, match="has 2 topics") as raised:
        measured_topic(both, None)
    assert raised.value.hint == "Choose one with --topic: orders, pay."
    with pytest.raises(ConfigError, match='no load of topic "x"'):
        measured_topic(both, "x")


def test_an_old_or_incomplete_measurement_is_warned_of():
    measured = measurement([partition(0, complete=False), partition(1)])

    told = list(cautions_of_measurement(measured, "orders", now_ts=7260_000_000, max_age_s=900))

    assert told[0] == "the loads were measured 2 h ago, longer than 15 min"
    assert told[1].startswith("the rate of orders-0 is incomplete")


def test_keys_with_more_records_than_the_rate_of_their_partition_are_warned_of():
    keys = [heavy(b"a", 400, 0.1, 0)]
    apart = measurement([partition(0, 1.0), partition(1, 199.0)], keys)
    near = measurement([partition(0, 19.0), partition(1, 181.0)], keys)

    told = list(cautions_of_measurement(apart, "orders", now_ts=60_000_000, max_age_s=900))

    assert told == [
        "the heavy keys of orders-0 have 400 records, but at its rate it gets 20 in the same time: "
        "rates and keys are not of the same load"
    ]
    assert not list(cautions_of_measurement(near, "orders", now_ts=60_000_000, max_age_s=900))


def test_a_threshold_below_that_of_the_counts_may_miss_keys():
    counts = window({b"a": (30, 0)}, (60, 10), threshold=20)

    told = list(cautions(counts, KeyOptions(threshold=Count(5))))

    assert told == [
        "the counts list keys from 20 records on: keys between 5 and 20 records may be missing"
    ]
    assert list(cautions(window({}, (0, 0)), KeyOptions())) == [
        "there are no records in the window: no key is hot"
    ]
