"""Results go to stdout, talk and progress to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trimtab.errors import BadFile
from trimtab.model.codec import dumps
from trimtab.model.files import write_atomically
from trimtab.report.columns import least_width

PIPE_CLOSED = 141
"""Exit code when nobody reads the results any more, as the shell reports it of other programs."""


class _Plain(Console):
    """A console that leaves with a code of its own when its reader is gone."""

    def on_broken_pipe(self) -> None:
        """Does not leave with 1, as rich would: that says that a check found something."""
        _drop_what_is_left(self.file)
        raise SystemExit(PIPE_CLOSED)


talk = _Plain(stderr=True, highlight=False)


def say(line: str) -> None:
    """A line for the person who watches; never broken, so that paths can be copied."""
    talk.print(line, markup=False, soft_wrap=True)


def warn(lines: Iterable[str]) -> None:
    """Warnings, each on a line of its own."""
    for line in lines:
        talk.print(f"warning: {line}", style="yellow", markup=False, soft_wrap=True)


def result(value: Any) -> None:
    """A rich renderable or text for people, on stdout; lines of text are not broken.

    A table that is wider than the terminal is printed whole.
    """
    console = _Plain(file=sys.stdout, highlight=False, markup=False)
    with _writing_results():
        if isinstance(value, str):
            console.print(value, soft_wrap=True)
        else:
            console.width = max(console.width, least_width(value, console))
            console.print(value, crop=False)
        sys.stdout.flush()


def result_json(value: Any) -> None:
    """A result for programs: one JSON document on stdout."""
    with _writing_results():
        sys.stdout.write(dumps(value) + "\n")
        sys.stdout.flush()


@contextmanager
def _writing_results() -> Iterator[None]:
    """Ends quietly when the reader is gone (`| head -1`), and says when a disk is full."""
    try:
        yield
    except BrokenPipeError as error:
        _drop_what_is_left(sys.stdout)
        raise SystemExit(PIPE_CLOSED) from error
    except OSError as error:
        _drop_what_is_left(sys.stdout)
        raise BadFile(f"stdout: cannot be written: {error.strerror or error}.") from error


def _drop_what_is_left(file: IO[str]) -> None:
    """Python flushes its streams once more at its end, which would fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, file.fileno())
    os.close(nothing)


def write_file(path: Path, text: str) -> None:
    """Writes a result where -o says: whole, or into the device or pipe that is there."""
    write_atomically(path, text)


def progress_bar() -> Progress:
    """The one look of all progress bars."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=talk,
        transient=True,
    )
