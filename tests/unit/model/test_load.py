import math

import pytest

from trimtab.model.load import GroupLimits


@pytest.mark.parametrize("capacity", [0, -1, math.nan, math.inf])
def test_a_capacity_that_is_not_a_positive_number_is_refused(capacity):
    with pytest.raises(ValueError, match="positive number"):
        GroupLimits(capacity=capacity)
    with pytest.raises(ValueError, match="positive number"):
        GroupLimits(capacity=1, capacities={0: capacity})


def test_a_capacity_for_a_negative_consumer_is_refused():
    with pytest.raises(ValueError, match="consumer -1"):
        GroupLimits(capacity=1, capacities={-1: 1})


def test_a_consumer_carries_the_capacity_of_all_unless_it_has_its_own():
    limits = GroupLimits(capacity=10, capacities={1: 40})
    assert (limits.of(0), limits.of(1), limits.largest) == (10, 40, 40)
