"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trimtab.errors import BadFile


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file that no reader ever sees half of."""
    with replacing(path) as out, _told_of(path):
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Gives a file to write to; it takes its place when the block ends well, else it is dropped.

    A link keeps pointing where it does. Devices, pipes and what our own output goes to cannot be
    replaced: they are written into.
    """
    with _told_of(path):
        stream = _opened_stream(path)
        place = path.resolve()
        half = place.with_name(f".{place.name}.{os.getpid()}.part")
        if stream is None:
            place.parent.mkdir(parents=True, exist_ok=True)
        out = half.open("wb") if stream is None else stream
    try:
        try:
            yield out
        finally:
            with _told_of(path):
                out.close()  # what is left in the buffer is written now
        if stream is None:
            with _told_of(path):
                half.replace(place)
    finally:
        if stream is None:
            half.unlink(missing_ok=True)


def _opened_stream(path: Path) -> BinaryIO | None:
    """Opens what is no plain file; None for a plain file, or for none yet."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    for number in (1, 2):
        # /dev/stdout may be a file too, and what its other writers say must not get lost.
        if _is_open_as(number, found):
            return open(number, "wb", closefd=False)
    return None if stat.S_ISREG(found.st_mode) else path.open("wb")


def _is_open_as(number: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(number))
    except OSError:  # a process may have been started without it
        return False


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadFile(f"{path}: cannot be written: {error.strerror or error}.") from error
