from dataclasses import replace
from typing import Any

import pytest

from trimtab.errors import ConfigError, ThinData
from trimtab.measure.group_state import GroupSnapshot
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep, Measurement, PartitionLoad, Source, Unit
from trimtab.plan.consumers.situation import (
    cautions,
    in_group,
    situation_of_file,
    situation_of_measurement,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def measured(name, bytes_s=1.0, records_s=2.0, complete=True):
    return PartitionLoad(
        topic=name.topic,
        partition=name.partition,
        bytes_s=bytes_s,
        records_s=records_s,
        source=Source.LOG_DIRS,
        complete=complete,
    )


def measurement(*partitions):
    return Measurement(
        cluster=None, from_ts=0, to_ts=1, window_s=1, rejects=0, partitions=partitions
    )


FILE = Loads(
    capacity=100,
    steps=(LoadStep(loads={A0: 1, A1: 2, B0: 3}),),
    assignment=Assignment({A0: 4, TopicPartition("a", 9): 5}),
    capacities={4: 50},
)


def test_a_loads_file_says_loads_owners_and_capacities():
    situation = situation_of_file(FILE)
    assert situation.loads == {A0: 1, A1: 2, B0: 3}
    assert situation.current == Assignment({A0: 4})
    assert (situation.limits.capacity, situation.limits.of(4)) == (100, 50)


def test_topics_and_capacity_may_be_asked_for():
    situation = situation_of_file(FILE, topics=frozenset({"b"}), capacity=7)
    assert situation.loads == {B0: 3}
    assert situation.current == Assignment()
    assert situation.limits.capacity == 7


def test_a_topic_without_loads_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match='topic "c"') as raised:
        situation_of_file(FILE, topics=frozenset({"a", "c"}))
    assert raised.value.hint == "The file has a, b."


def test_another_unit_than_the_files_is_refused():
    with pytest.raises(ConfigError, match="uses bytes/s, not records/s"):
        situation_of_file(FILE, unit=Unit.RECORDS_S)


@pytest.mark.parametrize("capacity", [0, -1, float("nan"), float("inf")])
def test_a_capacity_that_is_not_positive_is_a_usage_error(capacity):
    with pytest.raises(ConfigError, match="positive"):
        situation_of_file(FILE, capacity=capacity)


def test_of_several_steps_one_must_be_named():
    file = replace(FILE, steps=(*FILE.steps, LoadStep(loads={A0: 9})))
    assert situation_of_file(file, step=1).loads == {A0: 9}
    with pytest.raises(ConfigError, match="2 step") as raised:
        situation_of_file(file)
    assert raised.value.hint == "Give --step with a number from 0 to 1."
    with pytest.raises(ConfigError, match="there is no step 2"):
        situation_of_file(file, step=2)


def test_a_measurement_needs_a_capacity():
    with pytest.raises(ConfigError, match="only for a live group: --group is missing"):
        situation_of_measurement(measurement(measured(A0)))


def behind(name, committed_s, lag):
    load = measured(name, bytes_s=15_000.0, records_s=150.0)
    return replace(load, lag={"g": lag}, committed_s={"g": committed_s})


def test_without_a_capacity_that_of_consumers_with_a_backlog_is_taken_and_a_sixth_left_free():
    live = GroupSnapshot(frozenset({A0, A1, B0}), Assignment({A0: 0, A1: 1, B0: 2}))
    loads = (behind(A0, 120.0, 9000), behind(A1, 120.0, 9000), behind(B0, 150.0, 30))
    m = replace(measurement(*loads), to_ts=60_000_000)

    found = situation_of_measurement(m, group="g", live=live, unit=Unit.RECORDS_S)
    in_bytes = situation_of_measurement(m, group="g", live=live)

    assert found.limits.capacity == pytest.approx(100.0)
    assert "2 of 3 consumers were behind" in (found.remark or "")
    assert in_bytes.limits.capacity == pytest.approx(10_000.0)
    assert situation_of_measurement(m, group="g", live=live, capacity=7).limits.capacity == 7


def test_a_group_that_keeps_up_does_not_show_its_capacity():
    live = GroupSnapshot(frozenset({A0}), Assignment({A0: 0}))
    m = replace(measurement(behind(A0, 150.0, 30)), to_ts=60_000_000)
    with pytest.raises(ConfigError, match="none had a backlog of 10 s"):
        situation_of_measurement(m, group="g", live=live)


def test_a_measurement_is_taken_in_the_unit_asked_for():
    m = measurement(measured(A0, bytes_s=None, records_s=5.0))
    assert situation_of_measurement(m, capacity=9, unit=Unit.RECORDS_S).loads == {A0: 5.0}


def test_partitions_of_unknown_load_are_refused_by_name():
    m = measurement(measured(A0), measured(A1, bytes_s=None, complete=False))
    with pytest.raises(ThinData, match="load of a-1 is unknown") as raised:
        situation_of_measurement(m, capacity=9)
    assert raised.value.exit_code == 3


def warned(m: Measurement, *, age_s: float = 0.0, **asked: Any) -> list[str]:
    situation = situation_of_measurement(m, capacity=9)
    now_ts = m.to_ts + round(age_s * 1_000_000)
    return list(cautions(situation, m, now_ts=now_ts, max_age_s=900, **asked))


def test_incomplete_rates_are_taken_and_warned_of_by_name():
    m = measurement(measured(A0), measured(A1, complete=False))
    (said,) = warned(m)
    assert said.startswith("the rate of a-1 is incomplete")
    assert warned(m, incomplete=False) == []


def test_old_loads_and_loads_of_nothing_are_warned_of():
    m = measurement(measured(A0), measured(A1))
    nothing = measurement(measured(A0, bytes_s=0.0), measured(A1, bytes_s=0.0))
    idle = measurement(measured(A0, bytes_s=0.0), measured(A1))
    assert warned(m, age_s=900) == []
    assert warned(m, age_s=7200) == ["the loads were measured 2 h ago, longer than 15 min"]
    assert warned(m, age_s=-30) == []  # clocks differ a little
    assert warned(m, age_s=-7200) == [
        "the measurement is dated 2 h in the future: check the clocks"
    ]
    assert [said.partition(":")[0] for said in warned(nothing)] == ["all loads are 0"]
    assert warned(idle) == []
    zeros = situation_of_file(replace(FILE, steps=(LoadStep(loads={A0: 0}),)))
    assert len(list(cautions(zeros, None, now_ts=0, max_age_s=900))) == 1


def test_what_is_unknown_of_other_topics_does_not_matter():
    m = measurement(measured(A0), measured(B0, bytes_s=None))
    asked = situation_of_measurement(m, capacity=9, topics=frozenset({"a"}))
    assert asked.loads == {A0: 1.0}


def test_many_faults_are_named_in_part():
    m = measurement(*(measured(TopicPartition("a", n), bytes_s=None) for n in range(9)))
    with pytest.raises(ThinData, match="a-3, a-4 and 4 more"):
        situation_of_measurement(m, capacity=9)


def test_the_live_group_says_who_owns_what_and_what_still_exists():
    situation = situation_of_file(FILE)
    live = GroupSnapshot(frozenset({A0, A1}), Assignment({A0: 0, A1: 1}))
    joined = in_group(situation, live)
    assert joined.loads == {A0: 1, A1: 2}
    assert joined.current == live.assignment


def test_a_live_partition_without_a_load_is_refused():
    live = GroupSnapshot(frozenset({A0, TopicPartition("a", 2)}), Assignment())
    with pytest.raises(ThinData, match="load of a-2 is unknown"):
        in_group(situation_of_file(FILE), live)
