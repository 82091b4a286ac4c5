"""Entries in an SQLite file, for states that outgrow memory.

Why      In Python itself, and fast enough; see decision 0061 for the stores that were compared.
Promise  Behaves like a dict. The file is new, and its name is removed as soon as it is open: the
         space is free again when the store or its process goes, however it ends. A file from an
         earlier run is never read, so nothing is ever synced and there is no journal.
Cost     About 15 MB of memory per store, whatever its size; a key that is not in the buffer takes
         a few microseconds to read, and writes go to the file in sorted batches.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import ItemsView, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from trimtab.errors import ConfigError, StateTooLarge

_BUFFER_BYTES = 4 * 2**20
_CACHE_KB = 4 * 1024
_ENTRY_BYTES = 160
_PRAGMAS = (
    "page_size = 4096",
    "journal_mode = OFF",
    "synchronous = OFF",
    "locking_mode = EXCLUSIVE",
    f"cache_size = -{_CACHE_KB}",
)


class DiskStore(MutableMapping[bytes, bytes]):
    """The entries of one task; opened by one thread, then used by one at a time.

    `folder` is where the file is created, the system's folder for temporary files if None.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = _opened(folder)
        self._written: dict[bytes, bytes | None] = {}  # None: deleted; newer than the file
        self._written_bytes = 0
        self._read: dict[bytes, bytes] = {}
        self._read_bytes = 0
        self._closing = weakref.finalize(self, self._file.close)

    def close(self) -> None:
        """Gives the space back; also done when the store is garbage."""
        self._closing()

    def get(self, key: bytes, default: Any = None) -> Any:
        """The text of a key."""
        found = self._find(key)
        return default if found is None else found

    def _find(self, key: bytes) -> bytes | None:
        if key in self._written:
            return self._written[key]
        found = self._read.get(key)
        if found is None:
            row = self._ask("SELECT text FROM entries WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            found = bytes(row[0])
            self._remember(key, found)
        return found

    def _remember(self, key: bytes, text: bytes) -> None:
        if self._read_bytes > _BUFFER_BYTES:
            self._read.clear()
            self._read_bytes = 0
        self._read[key] = text
        self._read_bytes += len(key) + len(text) + _ENTRY_BYTES

    def _put(self, key: bytes, text: bytes | None) -> None:
        self._written[key] = text
        self._written_bytes += len(key) + len(text or b"") + _ENTRY_BYTES
        if self._written_bytes > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Moves what is buffered to the file."""
        if not self._written:
            return
        texts = {key: text for key, text in self._written.items() if text is not None}
        gone = [(key,) for key in sorted(self._written.keys() - texts.keys())]
        self._ask("BEGIN")
        self._ask_many("INSERT OR REPLACE INTO entries VALUES (?, ?)", sorted(texts.items()))
        self._ask_many("DELETE FROM entries WHERE key = ?", gone)
        self._ask("COMMIT")
        self._read, self._read_bytes = texts, self._written_bytes
        self._written, self._written_bytes = {}, 0

    def __getitem__(self, key: bytes) -> bytes:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._find(key) is not None

    def __setitem__(self, key: bytes, text: bytes) -> None:
        self._put(key, text)

    def __delitem__(self, key: bytes) -> None:
        if self._find(key) is None:
            raise KeyError(key)
        self._put(key, None)

    def __iter__(self) -> Iterator[bytes]:
        self.flush()
        return (bytes(row[0]) for row in self._ask("SELECT key FROM entries"))

    def items(self) -> ItemsView[bytes, bytes]:
        """All keys with their texts, read from the file in one go."""
        return _Items(self)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """What `items` walks over; the store must not be changed meanwhile."""
        self.flush()
        return iter(self._ask("SELECT key, text FROM entries"))

    def clear(self) -> None:
        """Removes all entries."""
        self._written, self._written_bytes = {}, 0
        self._read, self._read_bytes = {}, 0
        self._ask("DELETE FROM entries")

    def __len__(self) -> int:
        self.flush()
        return int(self._ask("SELECT count(*) FROM entries").fetchone()[0])

    def _ask(self, statement: str, values: tuple[bytes, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._file.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise _failed(error) from error

    def _ask_many(self, statement: str, rows: list[Any]) -> None:
        try:
            self._file.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise _failed(error) from error


class _Items(ItemsView[bytes, bytes]):
    """Without a look-up per key."""

    def __init__(self, store: DiskStore) -> None:
        super().__init__(store)
        self._store = store

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._store.rows()


def _opened(folder: Path | None) -> sqlite3.Connection:
    try:
        if folder is not None:
            folder.mkdir(exist_ok=True)
        private = tempfile.mkdtemp(prefix="trimtab-state-", dir=folder)
    except OSError as error:
        raise ConfigError(
            f"States cannot be kept in {folder or tempfile.gettempdir()}: {error.strerror}.",
            hint="Name a folder that exists and may be written to with --store-dir.",
        ) from error
    try:
        file = sqlite3.connect(
            f"{private}/entries.sqlite", isolation_level=None, check_same_thread=False
        )
        for pragma in _PRAGMAS:
            file.execute(f"PRAGMA {pragma}")
        file.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, text BLOB) WITHOUT ROWID")
    except sqlite3.Error as error:
        raise _failed(error) from error
    finally:
        shutil.rmtree(private)
    return file


def _failed(error: sqlite3.Error) -> StateTooLarge:
    return StateTooLarge(
        f"The file with the states of this consumer's keys could not be used: {error}.",
        hint="Is the disk full? Name another folder with --store-dir, or start more consumers. "
        "Nothing is lost: states are in Kafka.",
    )
