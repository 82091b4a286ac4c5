"""Results go to stdout, talk and progress to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trimtab.errors import BadFile
from trimtab.model.codec import dumps

talk = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """A line for the person who watches."""
    talk.print(line, markup=False)


def warn(lines: Iterable[str]) -> None:
    """Warnings, each on a line of its own."""
    for line in lines:
        talk.print(f"warning: {line}", style="yellow", markup=False)


def result(value: Any) -> None:
    """A rich renderable or text for people, on stdout."""
    Console(file=sys.stdout, highlight=False).print(value)


def result_json(value: Any) -> None:
    """A result for programs: one JSON document on stdout."""
    sys.stdout.write(dumps(value) + "\n")
    sys.stdout.flush()


def write_file(path: Path, text: str) -> None:
    """Writes under another name and renames, so that no reader sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError as error:
        raise BadFile(f"{path}: cannot be written: {error.strerror or error}") from error


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
