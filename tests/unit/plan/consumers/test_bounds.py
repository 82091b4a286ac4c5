import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bounds import fewest_consumers, least_moved_load

C100 = GroupLimits(capacity=100)


@pytest.mark.parametrize(
    ("sizes", "bound"),
    [
        ([], 0),
        ([0, 0], 1),  # something must be read by somebody
        ([100], 1),
        ([100, 1], 2),
        ([60, 60, 60], 3),  # no two share, though their sum fills less than two
        ([60, 60, 40, 40], 2),
        ([70, 70, 40, 40], 3),  # 40 does not fit beside 70: two alone, one for both
        ([34, 34, 34], 2),
        ([130], 1),
        ([130, 0], 2),  # an overfull consumer takes not even an empty partition
        ([130, 150, 60, 60], 4),
        ([2**60, 1], 2),
    ],
)
def test_no_assignment_uses_fewer_consumers(sizes, bound):
    assert fewest_consumers(sizes, C100) == bound


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_it_is_the_best_of_all_thresholds(sizes):
    """Martello & Toth's L2 as it is written: every threshold up to half of the capacity."""

    def of(threshold):
        alone = [s for s in sizes if s > 100 - threshold]
        large = [s for s in sizes if 50 < s <= 100 - threshold]
        small = [s for s in sizes if threshold <= s <= 50]
        rest = sum(small) - (100 * len(large) - sum(large))
        return len(alone) + len(large) + max(0, -(-rest // 100))

    assert fewest_consumers(sizes, C100) == max(1, *(of(k) for k in range(51)))


def test_the_sum_is_rounded_up_exactly_at_any_size():
    huge = GroupLimits(capacity=3 * 10**17)
    assert fewest_consumers([10**17] * 6, huge) == 2
    assert fewest_consumers([10**17] * 6 + [1], huge) == 3


def test_ten_tenths_fit_one_whole_though_their_exact_sum_does_not():
    assert fewest_consumers([0.1] * 10, GroupLimits(capacity=1)) == 1


def test_the_largest_of_unequal_capacities_stands_for_all():
    limits = GroupLimits(capacity=100, capacities={7: 150})
    assert fewest_consumers([130, 60, 60], limits) == 2
    assert fewest_consumers([160], limits) == 1


def test_an_overloaded_consumer_must_give_up_its_excess():
    a, b, c = (TopicPartition("t", n) for n in range(3))
    loads = {a: 60, b: 50, c: 30}
    assert least_moved_load(loads, Assignment({a: 0, b: 0, c: 1}), C100) == 10
    own = GroupLimits(capacity=100, capacities={0: 70})
    assert least_moved_load(loads, Assignment({a: 0, b: 0, c: 1}), own) == 40


def test_an_oversize_partition_may_stay_alone():
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert least_moved_load({a: 130, b: 20}, Assignment({a: 0, b: 0}), C100) == 20


def test_departed_partitions_need_not_move():
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert least_moved_load({a: 60}, Assignment({a: 0, b: 0}), C100) == 0


def test_what_fits_but_for_rounding_need_not_move():
    # In this order they add up to 0.6000000000000001; the biggest first, to 0.6.
    loads = {TopicPartition("t", n): load for n, load in enumerate((0.1, 0.2, 0.3))}
    assert (
        least_moved_load(loads, Assignment(dict.fromkeys(loads, 0)), GroupLimits(capacity=0.6)) == 0
    )


def test_one_byte_too_much_must_move_at_any_size():
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    huge = GroupLimits(capacity=10**17)
    assert least_moved_load({a: 10**17 - 4, b: 5}, Assignment({a: 0, b: 0}), huge) == 1
