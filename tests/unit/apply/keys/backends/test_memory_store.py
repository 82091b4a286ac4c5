"""The bound of states in memory."""

from __future__ import annotations

import pytest

from trimtab.apply.keys.backends.memory_store import ENTRY_BYTES, MemoryStore, MemoryStores
from trimtab.errors import ApplyError, StateTooLarge
from trimtab.model.cluster import TopicPartition

ONE, OTHER = TopicPartition("orders", 1), TopicPartition("orders", 2)


def fill(store: MemoryStore, size_bytes: int) -> None:
    store[b"%d" % len(store)] = bytes(size_bytes)


def test_what_is_larger_than_the_bound_is_an_error_that_says_what_to_do() -> None:
    store = MemoryStores(1_000_000)(ONE)
    fill(store, 900_000)
    with pytest.raises(StateTooLarge, match="more than the 1000000 bytes") as raised:
        fill(store, 300_000)
    assert isinstance(raised.value, ApplyError)
    assert "--store disk" in str(raised.value.hint)
    assert "more consumers" in str(raised.value.hint)


def test_all_tasks_share_the_bound() -> None:
    stores = MemoryStores(1_000_000)
    one, other = stores(ONE), stores(OTHER)
    fill(one, 600_000)
    with pytest.raises(StateTooLarge):
        fill(other, 600_000)


def test_many_small_entries_count_with_what_python_adds() -> None:
    stores = MemoryStores(10 * 2**20)
    store = stores(ONE)
    with pytest.raises(StateTooLarge):
        store.update((b"%020d" % number, bytes(100)) for number in range(100_000))
    assert len(store) * (120 + ENTRY_BYTES) == stores.size_bytes
    assert len(store) < 40_000


def test_stores_of_tasks_that_are_gone_do_not_count() -> None:
    stores = MemoryStores(1_000_000)
    for _ in range(5):
        fill(stores(ONE), 600_000)
    assert stores.size_bytes == 0


def test_sleeping_tasks_are_given_up_before_the_bound_becomes_an_error() -> None:
    stores = MemoryStores(1_000_000)
    sleeping = {ONE: stores(ONE)}
    stores.spare = sleeping.clear
    fill(sleeping[ONE], 600_000)
    store = stores(OTHER)
    fill(store, 600_000)
    assert not sleeping
    assert stores.size_bytes == store.size_bytes


def test_a_store_that_shrank_may_grow_again() -> None:
    stores = MemoryStores(1_000_000)
    store = stores(ONE)
    for _ in range(10):
        fill(store, 600_000)
        store.clear()
    fill(store, 600_000)
    with pytest.raises(StateTooLarge):
        fill(store, 600_000)
