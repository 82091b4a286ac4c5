"""Results go to stdout, messages and progress to stderr."""

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
"""Exit code when stdout was closed by its reader; shells report SIGPIPE the same way."""


class _Plain(Console):
    """A console that exits with code 141 when its reader has closed the pipe."""

    def on_broken_pipe(self) -> None:
        """Avoids exit code 1, which rich would use: it is reserved for findings."""
        _discard_unwritten(self.file)
        raise SystemExit(PIPE_CLOSED)


talk = _Plain(stderr=True, highlight=False)


def say(line: str) -> None:
    """Prints a message to stderr; never wrapped, so that paths can be copied."""
    talk.print(line, markup=False, soft_wrap=True)


def warn(lines: Iterable[str]) -> None:
    """Prints warnings to stderr, one per line."""
    for line in lines:
        talk.print(f"warning: {line}", style="yellow", markup=False, soft_wrap=True)


def result(value: Any) -> None:
    """Prints a rich renderable or text to stdout; lines of text are not wrapped.

    A table that is wider than the terminal is printed at its full width.
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
    """Prints one JSON document to stdout."""
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
    """Writes a result to the file of -o, if given, then prints it as JSON or as text."""
    if output is not None:
        write_file(output, dumps(value, indent=indent) + "\n")
    if as_json:
        result_json(value)
    else:
        result(view())


@contextmanager
def _writing_results() -> Iterator[None]:
    """Exits quietly when the reader is gone (`| head -1`); reports other write errors."""
    try:
        yield
    except BrokenPipeError as error:
        _discard_unwritten(sys.stdout)
        raise SystemExit(PIPE_CLOSED) from error
    except OSError as error:
        _discard_unwritten(sys.stdout)
        raise BadFile(f"stdout: cannot be written: {error.strerror or error}.") from error


def _discard_unwritten(file: IO[str]) -> None:
    """Discards buffered output: Python flushes at exit, and that would fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, file.fileno())
    os.close(nothing)


def write_file(path: Path, text: str) -> None:
    """Writes the file of -o: atomically, or directly if it is a device or a pipe."""
    write_atomically(path, text)


def write_report(path: Path, html: str) -> None:
    """Writes the file of --report, and says so."""
    write_file(path, html)
    say(f"Report written to {path}")


def progress_bar() -> Progress:
    """A progress bar; all verbs use the same style."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=talk,
        transient=True,
    )


class TerminalProgress:
    """Shows the progress of a service on stderr: a bar, notes and warnings.

    The bar appears with the first reported step, on a terminal only; work of fewer than `least`
    steps has no bar, since it ends too soon.
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
        """Removes the bar; the next reported step creates a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def started(self, what: str) -> None:
        """Prints what has started, and how to stop it."""
        say(f"{what}; press Ctrl-C to stop.")

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Updates the bar."""
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
