"""FIFO queues of partitions, by hand; the law that they equal a plain loop is in test_engine."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.simulate.keys.queues import PartitionQueues


def partitions(*numbers):
    return np.array(numbers, np.uint16)


# partition 0 |---a---|---b---|        a at 0, b at 4, c at 30
# partition 1   |---d---|              service 10
def test_records_wait_for_those_before_them():
    queues = PartitionQueues(2, service_ns=10)

    served = queues.enter(np.array([0, 2, 4, 30]), partitions(0, 1, 0, 0))

    assert served.partitions.tolist() == [0, 0, 0, 1]
    assert served.arrived_ns.tolist() == [0, 4, 30, 2]
    assert served.delays_ns.tolist() == [0, 6, 0, 0]
    assert queues.drained_ns(35).tolist() == [40, 35]


# b may enter at 15 only; c, which arrives at 12, goes before it
def test_a_record_that_enters_late_does_not_hold_up_the_others():
    queues = PartitionQueues(1, service_ns=10, numbered=True)

    first = queues.enter(np.array([0, 1, 12]), partitions(0, 0, 0), np.array([0, 15, 12]))
    assert queues.waiting == 1
    second = queues.advance(15)

    assert first.numbers is not None
    assert second.numbers is not None
    assert (first.numbers.tolist(), second.numbers.tolist()) == ([0, 2], [1])
    assert (first.delays_ns.tolist(), second.delays_ns.tolist()) == ([0, 0], [21])
    assert queues.waiting == 0


def test_records_of_one_instant_enter_in_order_of_arrival():
    queues = PartitionQueues(1, service_ns=10, numbered=True)
    queues.enter(np.array([0, 1]), partitions(0, 0), np.array([5, 9]))

    served = queues.enter(np.array([5, 9, 9]), partitions(0, 0, 0))

    assert served.numbers is not None
    assert served.numbers.tolist() == [0, 2, 1, 3, 4]


def test_many_partitions_are_served_alike():
    few, many = PartitionQueues(200, service_ns=7), PartitionQueues(1000, service_ns=7)
    rng = np.random.default_rng(1)
    times, chosen = np.sort(rng.integers(0, 5000, 2000)), rng.integers(0, 200, 2000)

    ours, theirs = (q.enter(times, chosen.astype(np.uint16)) for q in (few, many))

    assert ours.delays_ns.tolist() == theirs.delays_ns.tolist()
    assert ours.delays_ns.max() > 0


def test_nothing_enters():
    queues = PartitionQueues(3, service_ns=10)

    assert not queues.enter(np.zeros(0, np.int64), partitions()).delays_ns.size
    assert not queues.advance(None).delays_ns.size


@pytest.mark.parametrize(("count", "service"), [(0, 1), (2**16 + 1, 1), (3, 0)])
def test_queues_that_make_no_sense_are_refused(count, service):
    with pytest.raises(ValueError, match="must"):
        PartitionQueues(count, service_ns=service)
