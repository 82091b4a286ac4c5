"""Writes files atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trimtab.errors import BadFile


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that a reader never sees a part of it."""
    with replacing(path) as out, _write_errors(path):
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces `path` if the block succeeds, else is deleted.

    A symbolic link stays a link; its target is replaced. Devices, pipes and our own standard output
    cannot be replaced: they are written to directly.
    """
    with _write_errors(path):
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
            with _write_errors(path):
                out.close()  # writes the rest of the buffer
        if stream is None:
            with _write_errors(path):
                half.replace(place)
    finally:
        if stream is None:
            half.unlink(missing_ok=True)


def _opened_stream(path: Path) -> BinaryIO | None:
    """Opens a path that is not a regular file; None if it is one, or does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    for number in (1, 2):
        # /dev/stdout may be a regular file, too; its other writers must not lose their output.
        if _is_open_as(number, found):
            return open(number, "wb", closefd=False)
    return None if stat.S_ISREG(found.st_mode) else path.open("wb")


def _is_open_as(number: int, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(number))
    except OSError:  # the process may have been started without this descriptor
        return False


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadFile(f"{path}: cannot be written: {error.strerror or error}.") from error
