"""What consumers that report nothing are said to be able to handle."""

from __future__ import annotations

import pytest

from trimtab.measure.learned_capacity import (
    CommitProgress,
    CommitSample,
    commit_speed,
    learned,
    learned_from,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Measurement, PartitionLoad, Source, Unit

P = [TopicPartition("orders", n) for n in range(3)]


def test_only_consumers_that_are_behind_all_the_time_show_their_capacity():
    #  consumer 0: two partitions, falls behind · 1: keeps up · 2: drains a backlog and is done
    progress = {
        P[0]: CommitProgress(arrived_s=120.0, committed_s=80.0, lag=5000, record_bytes=10.0),
        P[1]: CommitProgress(arrived_s=30.0, committed_s=20.0, lag=4000, record_bytes=100.0),
        P[2]: CommitProgress(arrived_s=50.0, committed_s=50.0, lag=60),
    }
    found = learned(progress, Assignment({P[0]: 0, P[1]: 0, P[2]: 1}), span_s=60.0)
    assert found.records_s == {0: 100.0}
    assert found.of(Unit.BYTES_S) == {0: 80.0 * 10 + 20.0 * 100}

    drained = {P[0]: CommitProgress(arrived_s=10.0, committed_s=60.0, lag=20)}
    assert not learned(drained, Assignment({P[0]: 0}), span_s=60.0).records_s


def test_a_backlog_that_came_up_only_now_says_nothing():
    late = {P[0]: CommitProgress(arrived_s=150.0, committed_s=100.0, lag=3000)}
    assert learned(late, Assignment({P[0]: 0}), span_s=30.0).records_s == {0: 100.0}
    assert not learned(late, Assignment({P[0]: 0}), span_s=60.0).records_s


@pytest.mark.parametrize(
    ("committed_s", "span_s"),
    [(0.0, 60.0), (100.0, 10.0)],
    ids=["one that hangs", "a span too short for its commits"],
)
def test_what_proves_nothing_is_left_out(committed_s, span_s):
    behind = {P[0]: CommitProgress(arrived_s=0.0, committed_s=committed_s, lag=90_000)}
    assert not learned(behind, Assignment({P[0]: 0}), span_s=span_s).records_s


def test_a_consumer_of_which_not_all_is_known_is_left_out():
    behind = {P[0]: CommitProgress(arrived_s=150.0, committed_s=100.0, lag=90_000)}
    assert not learned(behind, Assignment({P[0]: 0, P[1]: 0}), span_s=60.0).records_s


def test_a_measurement_shows_it_too():
    def load(number: int, committed_s: float | None) -> PartitionLoad:
        return PartitionLoad(
            topic="orders",
            partition=number,
            bytes_s=15_000.0,
            records_s=150.0,
            source=Source.LOG_DIRS,
            lag={"g": 9000},
            committed_s={"g": committed_s},
        )

    measured = Measurement(
        cluster=None,
        from_ts=0,
        to_ts=60_000_000,
        window_s=30.0,
        rejects=0,
        partitions=(load(0, 100.0), load(1, None)),
    )
    found = learned_from(measured, "g", Assignment({P[0]: 0, P[1]: 1}))
    assert (found.records_s, found.bytes_s) == ({0: 100.0}, {0: 10_000.0})
    assert not learned_from(measured, "other", Assignment({P[0]: 0})).records_s


def test_a_lag_that_was_low_between_the_ends_is_no_backlog():
    # A consumer that keeps up and commits once a minute: its lag is low right after a commit.
    seldom = CommitProgress(arrived_s=100.0, committed_s=100.0, lag=3000, least_lag=80)
    assert not learned({P[0]: seldom}, Assignment({P[0]: 0}), span_s=300.0).records_s
    behind = CommitProgress(arrived_s=100.0, committed_s=100.0, lag=9000, least_lag=4000)
    assert learned({P[0]: behind}, Assignment({P[0]: 0}), span_s=300.0).records_s == {0: 100.0}


def look(second: int, committed: int, end: int | None = 9000) -> CommitSample:
    return CommitSample(second * 1_000_000, end, committed)


@pytest.mark.parametrize(
    ("looks", "speed"),
    [
        ([look(0, 0), look(10, 500), look(60, 1000), look(110, 1500)], (10.0, 7500)),
        ([look(0, 0, 0), look(60, 0, 0)], (0.0, 0)),
        ([look(0, 8000), look(40, 9000), look(50, 9000)], (20.0, 0)),
        ([look(0, 5, None), look(10, 5, None)], (0.0, None)),
        ([look(0, 0), look(29, 500), look(30, 500)], None),
        ([look(0, 100), look(10, 0), look(20, 500)], None),
        ([look(0, 100)], None),
        ([], None),
    ],
    ids=[
        "from commit to commit",
        "idle",
        "one commit that leaves nothing",
        "ends that are not known",
        "one commit that leaves a backlog",
        "a reset",
        "one look",
        "no look",
    ],
)
def test_the_speed_of_commits(looks, speed):
    assert commit_speed(looks) == speed
