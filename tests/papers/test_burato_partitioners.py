"""Burato, chapters 2 and 6: the partitioners on small topics, record by record.

The uneven topic U has partition 0 on broker 1, partitions 1 and 2 on broker 2. The prototype of
Fig. 6.4 has A with one partition on broker 1 and two on 2, B with one on 2 and one on 3.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby

import pytest

from trimtab.model.cluster import TopicPartition
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import CountUnit, RoutingOptions
from trimtab.plan.records.ratios import ratios
from trimtab.plan.records.registry import partitioner_of

U = LeaderSnapshot({"U": {0: 1, 1: 2, 2: 2}})
U_WITHOUT_1 = LeaderSnapshot({"U": {0: -1, 1: 2, 2: 2}})
U_OFFLINE = LeaderSnapshot({"U": {0: -1, 1: -1, 2: -1}})
FIG_6_4 = LeaderSnapshot({"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}})
AT_ZERO = RoutingOptions(start=0, counted=CountUnit.RECORDS)
ROUND_ROBIN = ["default", "improved"]
BY_BROKER = ["node", "sqf", "weighted-node"]


def choices(partitioner, snapshot, records, topic="U"):
    return [partitioner.partition(topic, None, 100, snapshot) for _ in range(records)]


@pytest.mark.parametrize("name", ROUND_ROBIN)
def test_default_goes_round_the_partitions(name):
    """Sections 2.2 and 6.2.1."""
    assert choices(partitioner_of(name, AT_ZERO), U, 6) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", BY_BROKER)
def test_node_and_sqf_go_round_the_brokers_then_inside_them(name):
    """Sections 6.2.2 and 6.2.3: brokers 1, 2, 1, 2, 1, 2; of one topic alone SQF is Node."""
    assert choices(partitioner_of(name, AT_ZERO), U, 6) == [0, 1, 0, 2, 0, 1]


@pytest.mark.parametrize("name", ROUND_ROBIN + BY_BROKER)
def test_a_partition_without_a_leader_is_left_out(name):
    assert choices(partitioner_of(name, AT_ZERO), U_WITHOUT_1, 4) == [1, 2, 1, 2]


@pytest.mark.parametrize("name", ROUND_ROBIN + BY_BROKER)
def test_when_nobody_leads_anything_all_partitions_take_their_turn(name):
    assert choices(partitioner_of(name, AT_ZERO), U_OFFLINE, 6) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", ROUND_ROBIN)
@pytest.mark.parametrize("start", [2147483645, 2147483645 - 2**32])
def test_at_the_wrap_of_a_java_int_the_rotation_jumps_once(name, start):
    """2³¹−1 is followed by −2³¹, whose sign bit is cleared."""
    partitioner = partitioner_of(name, RoutingOptions(start=start))

    assert choices(partitioner, U, 6) == [2, 0, 1, 0, 1, 2]


def test_node_gives_the_uneven_topic_a_half_and_two_quarters():
    """The thesis is silent about it: balanced brokers, unbalanced partitions; Default reverses."""
    given = {name: Counter(choices(partitioner_of(name), U, 1200)) for name in ("node", "default")}
    shares = {name: [Fraction(count[p], 1200) for p in range(3)] for name, count in given.items()}
    told = {
        name: ratios({TopicPartition("U", p): n for p, n in count.items()}, U)
        for name, count in given.items()
    }

    assert shares["node"] == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    assert shares["default"] == [Fraction(1, 3)] * 3
    assert (told["node"].brokers, told["node"].partitions) == (1, 3 / 2)
    assert told["default"].brokers == pytest.approx(4 / 3)
    assert told["default"].partitions == 1


def test_one_sqf_instance_for_two_topics_evens_out_the_three_brokers():
    """Fig. 6.4, records A, B, A, B, …: two records for each broker in every six."""
    sqf = partitioner_of("sqf", AT_ZERO)
    chosen = [(t, sqf.partition(t, None, 100, FIG_6_4)) for t in "ABABAB" * 2]

    brokers = [FIG_6_4.topic(t).leader[p] for t, p in chosen]
    assert brokers == [1, 2, 1, 3, 2, 3] * 2
    first_six = [("A", 0), ("B", 0), ("A", 0), ("B", 1), ("A", 1), ("B", 1)]
    assert chosen == [*first_six, *first_six[:4], ("A", 2), ("B", 1)]


def test_separate_instances_load_the_common_broker_twice():
    """Fig. 6.4 at equal rates of 6: Node and separate SQF 3, 6, 3; Default 2, 7, 3."""
    loads = {name: Counter[int]() for name in ("node", "sqf", "default")}
    for name, load in loads.items():
        for topic in ("A", "B"):
            of_its_own = partitioner_of(name, AT_ZERO)
            table = FIG_6_4.topic(topic)
            load.update(table.leader[p] for p in choices(of_its_own, FIG_6_4, 6, topic))

    assert loads["node"] == loads["sqf"] == {1: 3, 2: 6, 3: 3}
    assert loads["default"] == {1: 2, 2: 7, 3: 3}


def returned(faithful):
    """The brokers after one was away for 10,000 records, as runs."""
    both = LeaderSnapshot({"t": {0: 1, 1: 2}})
    sqf = partitioner_of("sqf", RoutingOptions(start=0, faithful=faithful))
    choices(sqf, both, 200, "t")
    assert set(choices(sqf, LeaderSnapshot({"t": {0: 1, 1: -1}}), 10_000, "t")) == {0}
    back = LeaderSnapshot({"t": {0: 1, 1: 2}})
    after = choices(sqf, back, 12_000, "t")
    return [(both.topic("t").leader[p], len(list(run))) for p, run in groupby(after)]


def test_sqf_as_published_floods_a_broker_that_returns():
    """It is given exactly the 10,000 records that it missed, in one run."""
    assert returned(faithful=True)[:3] == [(2, 10_000), (1, 1), (2, 1)]


def test_our_sqf_does_not():
    assert max(length for _, length in returned(faithful=False)) == 1
