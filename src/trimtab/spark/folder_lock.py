"""Keeps a second driver away from a folder that a running one uses.

The lock is the operating system's: it ends with the process that holds it, however that ends. Only
folders of a file system can be locked; for other storage there is no check.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from trimtab.errors import ConfigError

log = structlog.get_logger()

_LOCAL = "file:"


@contextmanager
def used_alone(folder: str) -> Iterator[None]:
    """Holds the lock of a folder, in a file beside it, while the block runs.

    Raises:
        ConfigError: if another process uses the folder.
    """
    if "://" in folder and not folder.startswith(_LOCAL):
        yield
        return
    path = Path(f"{folder.removeprefix(_LOCAL + '//')}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(
                f"Process {file.read().strip() or 'unknown'} already uses {folder}.",
                hint="Stop it first, or give this one a folder of its own with --checkpoint.",
            ) from None
        except OSError as error:  # a file system without locks
            log.warning("folder_not_locked", folder=folder, why=str(error))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
