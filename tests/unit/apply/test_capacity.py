"""What a consumer is said to be able to handle, and from which of its time."""

from __future__ import annotations

from trimtab.apply.capacity import Capacity


def worked(*records: int, behind: bool = True, capacity: Capacity | None = None) -> Capacity:
    """A second of work for each of these."""
    found = capacity or Capacity()
    for count in records:
        found.add(1.0, count, 10 * count, behind=behind)
    return found


def test_it_is_unknown_until_there_are_three_windows():
    assert worked(100, 100).records_s is None
    known = worked(100, 100, 100)
    assert (known.records_s, known.bytes_s) == (100.0, 1000.0)


def test_one_odd_window_in_four_does_not_change_it():
    assert worked(100, 100, 100, 100, 5000).records_s == 100.0
    assert worked(100, 100, 100, 100, 1).records_s == 100.0


def test_the_newest_windows_count():
    capacity = Capacity(windows=4)
    assert worked(*[100] * 10, *[20] * 4, capacity=capacity).records_s == 20.0


def test_work_that_waiting_interrupts_before_a_window_is_full_leaves_no_trace():
    capacity = Capacity()
    for _ in range(20):
        capacity.add(0.9, 9000, 9000, behind=True)
        capacity.pause()
    assert capacity.records_s is None


def test_windows_add_up_from_shorter_turns():
    capacity = Capacity()
    for _ in range(6):
        capacity.add(0.5, 50, 500, behind=True)
    assert (capacity.records_s, capacity.bytes_s) == (100.0, 1000.0)


def test_a_backlog_at_the_brokers_says_more_than_one_in_the_batch():
    capacity = worked(100, 100, 100, behind=False)
    assert capacity.records_s == 100.0
    assert worked(60, 60, 60, capacity=capacity).records_s == 60.0


def test_time_without_a_record_says_nothing():
    assert worked(0, 0, 0, 0).records_s is None
