"""Results go to stdout, talk and progress to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trimtab.files import write_atomically
from trimtab.model.codec import dumps

talk = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """A line for the person who watches; never broken, so that paths can be copied."""
    talk.print(line, markup=False, soft_wrap=True)


def warn(lines: Iterable[str]) -> None:
    """Warnings, each on a line of its own."""
    for line in lines:
        talk.print(f"warning: {line}", style="yellow", markup=False, soft_wrap=True)


def result(value: Any) -> None:
    """A rich renderable or text for people, on stdout; lines of text are not broken."""
    plain = isinstance(value, str)
    Console(file=sys.stdout, highlight=False).print(value, markup=not plain, soft_wrap=plain)


def result_json(value: Any) -> None:
    """A result for programs: one JSON document on stdout."""
    sys.stdout.write(dumps(value) + "\n")
    sys.stdout.flush()


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
