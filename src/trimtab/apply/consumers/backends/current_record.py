"""Notes which record a consumer is handling, in a file that outlives the process.

Why      A handler may crash the whole process (a fault in a library, out of memory), which then
         logs nothing. From this file the backend can name the record when it restarts the consumer.
Promise  The file names the record whose handler is running, or none; also after SIGKILL.
Cost     About a microsecond per record: the file is mapped into memory, the kernel writes it.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from trimtab.model.record import Record

_ROOM = 512  # a topic's name has at most 249 characters
_NONE = b"\n"


class CurrentRecord:
    """Notes the record that is being handled."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_ROOM))
        with path.open("r+b") as file:
            self._noted = mmap.mmap(file.fileno(), _ROOM)
        self._names: dict[tuple[str, int], bytes] = {}

    def __call__(self, record: Record | None) -> None:
        """Notes the record whose handler is called next; None when it has returned."""
        if record is None:
            self._noted[:1] = _NONE
            return
        name = self._names.get(record[:2])
        if name is None:
            name = self._names[record[:2]] = f"{record.source}, offset ".encode()
        text = b"%b%d\n" % (name, record.offset)
        self._noted[: len(text)] = text


def noted_record(path: Path) -> str | None:
    """The record that the consumer was handling when it exited; None if there was none."""
    try:
        text, ended, _ = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return text.decode(errors="replace") if ended and text else None
