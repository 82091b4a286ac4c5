"""Verbs take their options as one value."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from trimtab.cli.options import AsJson, with_options

taken: list[tuple[str | None, Outer]] = []


@dataclass(frozen=True, slots=True)
class Inner:
    """Options that several verbs share."""

    server: Annotated[str | None, typer.Option("--server", help="Where.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """Options of one verb."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is read.")]
    count: Annotated[int, typer.Option("--count", min=1, help="How many.")] = 3
    inner: Inner
    name: Annotated[str, typer.Option("--name", help="Required.")]
    as_json: AsJson = False


@with_options
def verb(context: typer.Context, options: Outer) -> None:
    """Does something."""
    taken.append((context.info_name, options))


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(verb)
    taken.clear()
    return CliRunner().invoke(app, list(arguments)).output


def test_the_options_arrive_as_one_value() -> None:
    run("data.json", "--name", "n", "--server", "s", "--count", "7")

    [(_, options)] = taken
    assert options == Outer(file=Path("data.json"), count=7, inner=Inner("s"), name="n")


def test_options_are_shown_in_the_order_of_the_fields() -> None:
    assert list(inspect.signature(verb).parameters) == [
        *("context", "file", "count", "server", "name", "as_json")
    ]


def test_the_command_keeps_name_and_help() -> None:
    assert (verb.__name__, verb.__doc__) == ("verb", "Does something.")


def test_what_is_missing_or_out_of_range_is_refused() -> None:
    assert "Missing option '--name'" in run("data.json")
    assert "Missing argument 'FILE'" in run("--name", "n")
    assert "greater than or equal to 1" in run("data.json", "--name", "n", "--count", "0")
    assert taken == []
