"""Capacity learned from published rates, as a controller that only watches hears them."""

from __future__ import annotations

from dataclasses import replace

from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.learning import CapacityLearner
from trimtab.measure.learned_capacity import LearnedCapacity
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import PartitionRate, TopicRates

P = [TopicPartition("orders", n) for n in range(2)]
READERS = Assignment({P[0]: 0, P[1]: 1})


def at(second: int, *progress: tuple[float, float], backlog: int = 5000) -> NewestRates:
    """Rates at that second: what arrives, and what is committed, of each partition."""
    rates = {}
    for n, (arrived_s, committed_s) in enumerate(progress):
        end = backlog + round(arrived_s * second)
        rates[n] = PartitionRate(
            bytes_s=10 * arrived_s,
            records_s=arrived_s,
            end_offset=end,
            lag={"g": end - round(committed_s * second)},
            complete=True,
            stale=False,
        )
    return NewestRates().updated(
        TopicRates(topic="orders", ts=second * 1_000_000, partitions=rates)
    )


def last(
    learning: CapacityLearner, seconds: range, *progress: tuple[float, float], backlog: int = 5000
) -> LearnedCapacity:
    return [learning.look(at(s, *progress, backlog=backlog), READERS) for s in seconds][-1]


def test_it_is_learned_from_half_a_minute_of_backlog_and_kept_when_the_readers_change():
    learning = CapacityLearner("g")
    for second in range(0, 15, 5):
        assert not learning.look(at(second, (150, 100), (150, 90)), READERS).records_s
    found = last(learning, range(15, 40, 5), (150, 100), (150, 90))
    assert found.records_s == {0: 100.0, 1: 90.0}
    assert found.bytes_s == {0: 1000.0, 1: 900.0}

    moved = Assignment(dict.fromkeys(P, 0))
    assert learning.look(at(45, (150, 100), (150, 90)), moved) == found


def test_a_group_that_keeps_up_shows_nothing():
    keeping_up = last(CapacityLearner("g"), range(0, 120, 5), (50, 50), (40, 40), backlog=0)
    assert not keeping_up.records_s


def test_committed_offsets_that_go_back_begin_anew():
    learning = CapacityLearner("g")
    learning.look(at(0, (150, 100), (150, 100)), READERS)
    reset = last(learning, range(5, 30, 5), (150, -50), (150, 100))  # of the first, by hand
    assert reset.records_s.keys() == {1}


def commits_every(pause_s: int, seconds: range, *, arrives_s: int, backlog: int) -> LearnedCapacity:
    """One consumer that handles 10 records a second at most, and commits with pauses."""
    learning, found, readers = CapacityLearner("g"), LearnedCapacity({}, {}), Assignment({P[0]: 0})
    for second in seconds:
        end = backlog + arrives_s * second
        handled = min(10 * second, end) if backlog else arrives_s * second
        rate = PartitionRate(
            bytes_s=10.0 * arrives_s,
            records_s=float(arrives_s),
            end_offset=end,
            lag={"g": end - handled * (second // pause_s * pause_s) // max(second, 1)},
            complete=True,
            stale=False,
        )
        heard = TopicRates(topic="orders", ts=second * 1_000_000, partitions={0: rate})
        found = learning.look(NewestRates().updated(heard), readers)
        assert all(speed == 10.0 for speed in found.records_s.values())
    return found


def test_commits_with_long_pauses_show_the_speed_and_not_the_number_of_commits_in_the_span():
    # Looks from second 7 on: 20 s later one commit of 25 s of work has been seen.
    assert commits_every(25, range(7, 100), arrives_s=15, backlog=5000).records_s == {0: 10.0}


def test_a_group_that_keeps_up_and_commits_seldom_shows_nothing():
    # Its lag stands at 400 records before each commit: work that is done already.
    assert not commits_every(40, range(7, 200), arrives_s=10, backlog=0).records_s


def test_what_is_no_longer_said_of_any_partition_is_forgotten():
    learning = CapacityLearner("g", keep_s=60.0)
    learning.look(at(0, (150, 100)), READERS)
    for second in range(5, 500, 5):
        both = at(second, (0, 0), (150, 90)).newest["orders"]
        other = replace(both, partitions={1: both.partitions[1]})
        learning.look(NewestRates().updated(other), READERS)
    assert len(learning._history) <= 14
