"""The file of states on disk: new, without a name, and gone with its store."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from trimtab.apply.keys.backends import disk_store
from trimtab.apply.keys.backends.disk_store import DiskStore
from trimtab.errors import ConfigError, StateTooLarge


def test_no_file_is_left_to_find_even_after_a_crash(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store[b"a"] = b"1"
    store.flush()
    assert list(tmp_path.iterdir()) == []
    assert store[b"a"] == b"1"
    store.close()


def test_a_file_of_another_run_is_not_read(tmp_path: Path) -> None:
    first, second = DiskStore(tmp_path), DiskStore(tmp_path)
    first[b"a"] = b"1"
    first.flush()
    assert dict(second.items()) == {}
    first.close()
    second.close()


def test_writes_go_to_the_file_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_store, "_BUFFER_BYTES", 10_000)
    statements: list[str] = []
    store = DiskStore()
    store._file.set_trace_callback(statements.append)
    for number in range(200):
        store[b"%d" % number] = bytes(100)
    assert 2 <= sum(statement == "COMMIT" for statement in statements) <= 10
    assert len(store) == 200
    store.close()


def test_a_store_that_is_garbage_is_closed() -> None:
    store = DiskStore()
    closing = store._closing
    del store
    gc.collect()
    assert not closing.alive


def test_a_full_disk_is_an_error_that_says_what_to_do() -> None:
    store = DiskStore()
    store._file.execute("PRAGMA max_page_count = 3")
    store[b"a"] = bytes(100_000)
    with pytest.raises(StateTooLarge, match="full") as raised:
        store.flush()
    assert "--store-dir" in str(raised.value.hint)
    store.close()


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be kept in") as raised:
        DiskStore(tmp_path / "missing" / "deeper")
    assert "--store-dir" in str(raised.value.hint)
