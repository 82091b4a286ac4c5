"""Our murmur2 is Kafka's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from trimtab.model.murmur2 import decimal_hashes, home, homes, murmur2

untimed = settings(deadline=None)  # a loaded machine is no fault of the code


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_values_of_the_java_clients_own_test_come_out(key, signed):
    assert murmur2(key) == signed % 2**32


@untimed
@given(st.binary(max_size=70))
def test_any_key_hashes_as_in_kafka_python(key):
    assert murmur2(key) == reference(key)


@untimed
@given(st.lists(st.binary(max_size=20), max_size=60), st.integers(1, 1000))
def test_many_keys_find_the_same_homes_as_each_alone(keys, partitions):
    expected = [(reference(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert homes(keys, partitions).tolist() == expected
    assert [home(key, partitions) for key in keys] == expected


@untimed
@given(st.lists(st.integers(0, 10**10) | st.integers(0, 2**63 - 1), max_size=60))
def test_numbers_hash_as_their_decimal_digits(numbers):
    for given_ones in (numbers, [number for number in numbers if number < 2**32]):
        found = decimal_hashes(np.array(given_ones, np.int64)).tolist()
        assert found == [reference(b"%d" % number) for number in given_ones]


def test_lengths_change_at_powers_of_ten():
    powers = [10**n + off for n in range(19) for off in (-1, 0, 1)]
    expected = [reference(b"%d" % number) for number in powers]
    assert decimal_hashes(np.array(powers, np.int64)).tolist() == expected


def test_a_negative_number_is_no_key():
    with pytest.raises(ValueError, match="must not be negative: -4"):
        decimal_hashes(np.array([3, -4]))
