"""Routes of keys: the table first, then the hash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.simulate.keys.arrivals import KeyHashes
from trimtab.simulate.keys.routing import Routing, bucket_numbers

numbers = st.integers(0, 12) | st.integers(2**20 - 2, 2**20 + 3) | st.integers(0, 2**40)


@given(st.dictionaries(numbers, st.integers(0, 300)), st.lists(numbers))
def test_a_table_goes_before_the_home(table, more):
    keys = np.array([*table, *more], np.int64)
    homes = np.full(keys.size, 999, np.uint16)

    found = Routing(table=table).of(keys, np.zeros(keys.size, np.uint32), homes)

    assert found.tolist() == [table.get(key, 999) for key in keys.tolist()]


def test_buckets_take_the_place_of_homes():
    keys = np.arange(1000)
    hashes = KeyHashes(10).of(keys)
    places = (np.arange(64) % 5).astype(np.uint16)
    routing = Routing(table={7: 4}, buckets=places)

    found = routing.of(keys, hashes, np.full(1000, 99, np.uint16))

    expected = places[bucket_numbers(hashes, 64)]
    expected[7] = 4
    assert found.tolist() == expected.tolist()
    assert np.bincount(bucket_numbers(hashes, 64), minlength=64).min() > 0
    assert routing.entries == 65


def test_a_routing_without_buckets_has_no_bucket_of_a_key():
    with pytest.raises(ValueError, match="no buckets"):
        Routing().bucket_of(np.zeros(1, np.uint32))
