"""The books of a forwarder: what may be committed while records are under way."""

from __future__ import annotations

import pytest

from trimtab.apply.records.forwarding import ForwardProgress
from trimtab.model.cluster import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def under_way(*offsets: int, of: TopicPartition = A) -> ForwardProgress:
    progress = ForwardProgress()
    for offset in offsets:
        progress.taken(of, offset, size=10)
    return progress


def test_nothing_is_safe_past_a_record_that_is_under_way():
    progress = under_way(3, 4, 7)
    progress.acknowledged(A, 7)
    progress.acknowledged(A, 4)
    assert progress.safe() == {}

    progress.acknowledged(A, 3)
    assert progress.safe() == {A: 8}


def test_what_was_told_is_not_told_again_unless_it_did_not_come_through():
    progress = under_way(3)
    progress.acknowledged(A, 3)

    assert progress.safe() == {A: 4}
    assert progress.safe() == {}
    progress.not_committed([A, B])
    assert progress.safe() == {A: 4}


def test_markers_at_the_end_are_passed_over_when_all_has_arrived():
    progress = under_way(3)
    progress.reached(A, 6)
    assert progress.safe() == {}

    progress.acknowledged(A, 3)
    assert progress.safe() == {A: 6}


def test_records_under_way_are_counted_until_they_arrive_or_are_given_up():
    progress = under_way(3, 4)
    progress.taken(B, 9, size=5)
    assert (progress.records, progress.bytes) == (3, 25)
    assert progress.under_way([A]) == 2

    progress.acknowledged(A, 3)
    progress.forget([A])
    progress.acknowledged(A, 4)
    assert (progress.records, progress.bytes) == (1, 5)
    assert progress.under_way([A, B]) == 1


def test_a_partition_that_comes_back_begins_anew():
    progress = under_way(3, 4)
    progress.forget([A])
    progress.taken(A, 3, size=10)

    assert progress.safe() == {}
    progress.acknowledged(A, 3)  # of the first copy or the second: it is there
    assert progress.safe() == {A: 4}


def test_what_is_not_known_to_be_kept_is_told_again_when_asked_for():
    progress = under_way(3)
    progress.acknowledged(A, 3)
    assert progress.safe() == progress.safe(again=True) == {A: 4}

    progress.kept({A: 4, B: 1})
    assert progress.safe(again=True) == {}


def test_a_partition_that_begins_anew_hears_only_of_its_new_records():
    progress = under_way(3, 4)
    progress.restart(A)
    lap = progress.taken(A, 3, size=10)
    progress.acknowledged(A, 3)
    assert (progress.safe(), progress.records) == ({}, 1)

    progress.acknowledged(A, 3, lap=lap)
    assert progress.safe() == {A: 4}


def test_records_of_a_partition_are_taken_in_order():
    with pytest.raises(ValueError, match="offset 3"):
        under_way(4, 3)
