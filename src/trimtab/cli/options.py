"""Options that several verbs share, so that one word means one thing everywhere."""

from __future__ import annotations

import re
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
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also write the JSON here.")
]


def pattern_of(text: str) -> re.Pattern[str]:
    """Reads a regular expression given on the command line."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no regular expression: {error}") from error
