"""Options that several verbs share, so that one word means one thing everywhere."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Brokers to ask first. Default: the setting, else the running local cluster.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Kafka client properties (TLS, SASL), for every client and for Spark.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the logs of Spark and clients.")]


def output_file(path: Path | None) -> Path | None:
    """Checks, before any work is done, that a result can be written there.

    A missing folder is more often a slip than a wish, so none is made.
    """
    if path is None:
        return None
    folder = path.parent
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise typer.BadParameter(f"the folder {folder} {what}; create it first: mkdir -p {folder}")
    if path.exists() and not path.is_file():  # a device or a pipe
        return path
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"the folder {folder} is not writable")
    return path


def output_folder(path: Path | None) -> Path | None:
    """Checks, before any work is done, that results can be put into a folder; it may be new."""
    if path is None or path.is_dir():
        return path
    if path.exists():
        raise typer.BadParameter(f"{path} is a file; name a folder")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist; create it first")
    return path


def shell_words(text: str | None) -> str | None:
    """Checks that options given in one text can be taken apart as a shell would."""
    try:
        shlex.split(text or "")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} cannot be split into options: {error}") from error
    return text


Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        callback=output_file,
        help="Also write the JSON here. Its folder must exist.",
    ),
]


def pattern_of(text: str) -> re.Pattern[str]:
    """Reads a regular expression given on the command line."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is not a regular expression: {error}") from error
