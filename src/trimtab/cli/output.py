"""Results go to stdout, talk and progress to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

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


def show(
    value: Any,
    view: Callable[[], Any],
    *,
    as_json: bool,
    output: Path | None = None,
    indent: int | None = 1,
) -> None:
    """A result: into the file of -o if there is one, then as JSON or as what people read."""
    if output is not None:
        write_file(output, dumps(value, indent=indent) + "\n")
    if as_json:
        result_json(value)
    else:
        result(view())


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


class TerminalProgress:
    """Shows on stderr what a service tells while it works: a bar, notes and warnings.

    The bar appears with the first step that is told, on a terminal only; work of fewer than
    `least` steps has none, for it is over before a bar is seen.
    """

    def __init__(self, *, least: int = 0) -> None:
        self._least = least
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Removes the bar; the next step that is told brings a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def started(self, what: str) -> None:
        """Says what goes on, and how it ends."""
        say(f"{what}; Ctrl-C ends it.")

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Moves the bar."""
        if not talk.is_terminal or (total is not None and total < self._least):
            return
        if self._bar is None:
            self._bar = progress_bar()
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()
        self._bar.update(self._task, description=what, completed=done, total=total)

    def note(self, line: str) -> None:
        """Prints a line."""
        say(line)

    def warning(self, line: str) -> None:
        """Prints a warning."""
        warn([line])
