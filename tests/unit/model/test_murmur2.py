"""Our murmur2 is Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from trimtab.model.murmur2 import home, homes, murmur2

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
