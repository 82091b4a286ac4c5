"""Options that several verbs share, and how a verb takes its options as one value.

A verb has one parameter, a frozen dataclass; its fields are the options, annotated as Typer wants
them, in the order in which help shows them. A field that is itself such a dataclass adds all of
its options. `with_options` turns such a function into a command.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.numbers import positive
from trimtab.model.load import Unit
from trimtab.services.consume import ConsumeMode


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Turns a function whose parameters are dataclasses of options into a command.

    Parameters of other types, such as `typer.Context`, are passed through unchanged.
    """
    own = inspect.signature(verb, eval_str=True).parameters

    def command(**given: Any) -> None:
        verb(**{name: _taken(p.annotation, name, given) for name, p in own.items()})

    command.__doc__, command.__name__ = verb.__doc__, verb.__name__
    command.__module__ = verb.__module__
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in own.values()
            for one in _expanded(parameter)
        ]
    )
    return command


def _expanded(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The parameter itself, or one for each option of its dataclass."""
    kind = parameter.annotation
    if not (isinstance(kind, type) and is_dataclass(kind)):
        yield parameter
        return
    hints = get_type_hints(kind, include_extras=True)
    for name, field in inspect.signature(kind).parameters.items():
        yield from _expanded(field.replace(annotation=hints[name]))


def _taken(kind: Any, name: str, given: dict[str, Any]) -> Any:
    """The value of a parameter, built from the arguments that Typer passes."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return given[name]
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{f.name: _taken(hints[f.name], f.name, given) for f in fields(kind)})


def duration_option(name: str, *, help: str, shown: str | None = None, zero: bool = False) -> Any:
    """A duration option; `zero` allows 0, and help shows the default as `shown`."""
    return typer.Option(
        name,
        metavar="DURATION",
        parser=seconds_or_zero if zero else seconds,
        help=help,
        show_default=shown or True,
    )


def topic_option(help: str) -> Any:
    """The option `--topic`, with a help text of the verb."""
    return typer.Option("--topic", metavar="T", help=help)


def group_option(more: str = "") -> Any:
    """`--group`, the consumer group that a verb is about."""
    return typer.Option("--group", metavar="G", help=f"The consumer group.{more}")


def capacity_option(help: str) -> Any:
    """`--capacity`, a load per second that `help` describes."""
    return typer.Option("--capacity", metavar="N", callback=positive, help=help)


BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Bootstrap servers. Default: the setting, else the running local cluster.",
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


def regular_expression(text: str) -> re.Pattern[str]:
    """Parses a regular expression given on the command line."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is not a regular expression: {error}") from error


def pattern_option(verb: str) -> Any:
    """The option `--pattern`: topics by a regular expression, in addition to `--topic`."""
    return typer.Option(
        "--pattern",
        metavar="REGEX",
        parser=regular_expression,
        help=f"{verb} the topics whose whole name matches. Without --topic and --pattern: all "
        "except Kafka's internal topics and Trimtab's own.",
    )


OnlyTopics = Annotated[
    list[str] | None,
    topic_option(
        "Only this topic; may be repeated. Default: all except internal topics and Trimtab's own."
    ),
]
GroupName = Annotated[str, group_option()]
ReadTopics = Annotated[list[str], topic_option("A topic to read; may be repeated.")]
SomeTopics = Annotated[list[str] | None, topic_option("Only this topic; may be repeated.")]
LoadsUnit = Annotated[
    Unit | None,
    typer.Option("--unit", help="Unit of the loads. Default: that of the file, else bytes/s."),
]
LoadsMaxAge = Annotated[
    float | None,
    duration_option(
        "--max-age", help="Warn when a measurement ended longer ago than this. Default: 15m."
    ),
]
LoadsStep = Annotated[
    int | None,
    typer.Option(
        "--step", metavar="N", min=0, help="Step to use from a file with several, counted from 0."
    ),
]
GroupMode = Annotated[
    ConsumeMode,
    typer.Option(
        "--mode",
        help="directed: the controller gives and takes single partitions. group: consumers "
        "subscribe, and the group's leader asks the controller for the plan at every rebalance.",
    ),
]
RecordsSeed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, help="Random seed; the same seed gives the same records."
    ),
]
WarehouseFolder = Annotated[
    str | None, typer.Option("--warehouse", metavar="PATH", help="Folder of the Parquet tables.")
]
RunFor = Annotated[
    float | None,
    duration_option("--for", help="Stop after this time, for example 30s. Default: never."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the logs of Spark and clients.")]


def input_path(path: Path | None) -> Path | None:
    """Checks, before any work is done, that there is a file or folder to read."""
    if path is not None and not path.exists():
        raise typer.BadParameter(f"{path}: there is no such file or folder")
    return path


def output_file(path: Path | None) -> Path | None:
    """Checks, before any work is done, that a result can be written to this path.

    A missing folder is usually a typing error, so it is not created.
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
    """Checks, before any work is done, that the folder exists or can be created."""
    if path is None or path.is_dir():
        return path
    if path.exists():
        raise typer.BadParameter(f"{path} is a file; name a folder")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist; create it first")
    return path


def shell_words(text: str | None) -> str | None:
    """Checks that a text of options can be split as a shell would split it."""
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
        help="Also write the JSON to this file. Its folder must exist.",
    ),
]

ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        callback=output_file,
        help="Also write an HTML report to this file.",
    ),
]
