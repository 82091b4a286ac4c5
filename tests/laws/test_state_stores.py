"""Both stores of entries behave like a dict, whatever is done to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trimtab.apply.keys.backends import disk_store
from trimtab.apply.keys.backends.disk_store import DiskStore
from trimtab.apply.keys.backends.memory_store import ENTRY_BYTES, MemoryStore, MemoryStores
from trimtab.apply.keys.backends.state_stores import StateStore, state_stores
from trimtab.model.cluster import TopicPartition

KEYS = st.binary(max_size=2) | st.sampled_from((b"", b"a", b"\x00fence"))
TEXTS = st.binary(max_size=40)


class StoreMachine(RuleBasedStateMachine):
    """A store beside the dict that it should be."""

    kind: StateStore

    def __init__(self) -> None:
        super().__init__()
        self.stores = state_stores(self.kind)
        self.store = self.stores(TopicPartition("orders", 0))
        self.model: dict[bytes, bytes] = {}

    @rule(key=KEYS, text=TEXTS)
    def put(self, key: bytes, text: bytes) -> None:
        self.store[key] = text
        self.model[key] = text

    @rule(key=KEYS)
    def pop(self, key: bytes) -> None:
        assert self.store.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        if key in self.model:
            del self.store[key], self.model[key]
        else:
            with pytest.raises(KeyError):
                del self.store[key]

    @rule(key=KEYS)
    def read(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)
        assert self.store.get(key, b"other") == self.model.get(key, b"other")
        assert (key in self.store) is (key in self.model)
        if key not in self.model:
            with pytest.raises(KeyError):
                self.store[key]

    @rule(more=st.dictionaries(KEYS, TEXTS, max_size=5))
    def update(self, more: dict[bytes, bytes]) -> None:
        self.store.update(more)
        self.model.update(more)

    @rule(key=KEYS, text=TEXTS)
    def set_default(self, key: bytes, text: bytes) -> None:
        assert self.store.setdefault(key, text) == self.model.setdefault(key, text)

    @rule()
    def walk(self) -> None:
        assert sorted(self.store.items()) == sorted(self.model.items())
        assert sorted(self.store) == sorted(self.model)
        assert len(self.store) == len(self.model)
        assert self.store == self.model

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.model.clear()

    @invariant()
    def sizes_agree(self) -> None:
        if isinstance(self.store, MemoryStore):
            there = sum(len(key) + len(text) + ENTRY_BYTES for key, text in self.model.items())
            assert self.store.size_bytes == there

    def teardown(self) -> None:
        if isinstance(self.store, DiskStore):
            self.store.close()


class MemoryMachine(StoreMachine):
    kind = StateStore.MEMORY


class DiskMachine(StoreMachine):
    kind = StateStore.DISK


_FEW = settings(max_examples=40, stateful_step_count=30, deadline=None)

TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = _FEW
TestDiskStore = DiskMachine.TestCase
TestDiskStore.settings = _FEW


@pytest.mark.parametrize("kind", list(StateStore))
def test_a_store_larger_than_its_buffers_behaves_like_a_dict(
    kind: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_store, "_BUFFER_BYTES", 2000)
    store = state_stores(kind, folder=tmp_path)(TopicPartition("orders", 0))
    model: dict[bytes, bytes] = {}
    for number in range(2000):
        key = b"%d" % (number * 7919 % 500)
        assert store.get(key) == model.get(key)
        if number % 5 == 4:
            assert store.pop(key, None) == model.pop(key, None)
        else:
            store[key] = model[key] = b"text %d" % number
    assert dict(store.items()) == model
    assert MemoryStores().size_bytes == 0
