"""Every option of every verb: numbers are finite, and times are written in one way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer._click.exceptions import UsageError

from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.reference import commands

DURATIONS = (seconds, seconds_or_zero)
OPTIONS = [
    pytest.param(command, option, id=" ".join((*path, option.opts[-1])))
    for path, command, _ in commands()
    for option in command.params
    if option.opts[0].startswith("-")
]


def parser_of(option: Any) -> Any:
    return getattr(option.type_descriptor.parameter_info, "parser", None)


def is_duration(option: Any) -> bool:
    return parser_of(option) in DURATIONS


def takes_number(option: Any) -> bool:
    return option.type_descriptor.annotation is float and not is_duration(option)


def complaint(command: Any, option: Any, text: str) -> str | None:
    """What is said of this value of this option; None if it is taken."""
    try:
        command.make_context("verb", [f"{option.opts[-1]}={text}"])
    except UsageError as error:
        return error.format_message() if getattr(error, "param", None) is option else None
    return None


def of_kind(test: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("command", "option"), [found for found in OPTIONS if test(found.values[1])]
    )


def test_there_are_numbers_and_durations_to_look_at() -> None:
    assert sum(takes_number(found.values[1]) for found in OPTIONS) > 15
    assert sum(is_duration(found.values[1]) for found in OPTIONS) > 40


@of_kind(takes_number)
def test_a_number_is_finite(command: Any, option: Any) -> None:
    for text in ("nan", "inf", "-inf", "1e999"):
        assert complaint(command, option, text), text


@of_kind(is_duration)
def test_a_duration_carries_its_unit_and_is_finite(command: Any, option: Any) -> None:
    assert option.metavar == "DURATION"
    for text in ("200ms", "30s", "5m"):
        assert complaint(command, option, text) is None
    for text in ("nan", "inf", "-1s", "soon", "1e999", "99999999d"):
        assert complaint(command, option, text), text


@of_kind(is_duration)
def test_the_default_of_a_duration_is_shown_with_its_unit(command: Any, option: Any) -> None:
    if option.default is not None:
        shown = option.show_default
        assert isinstance(shown, str), f"shows {option.default}"
        assert re.search("[a-z]$", shown)
        assert seconds_or_zero(shown) == option.default


@of_kind(lambda option: not is_duration(option))
def test_a_time_is_never_a_bare_number(command: Any, option: Any) -> None:
    name = option.opts[-1]
    if name in ("--s", "--start"):  # the skew of Zipf and Mandelbrot; of a random walk
        return
    assert not re.fullmatch(r"MS|S|SECONDS|DURATION", option.metavar or "")
    assert not re.search(r"-(ms|s|secs?|seconds)$", name.removeprefix("-"))
    if option.type_descriptor.annotation in (int, float):
        assert not re.search(r"\b(seconds|milliseconds|ms)\b", option.help or ""), option.help


@of_kind(lambda option: (option.metavar or "").startswith("DURATION,"))
def test_the_defaults_of_a_list_of_durations_are_shown_with_their_units(
    command: Any, option: Any
) -> None:
    assert all(re.search("[a-z]$", text) for text in option.default.split(","))


def test_lists_of_durations_take_units(capsys: pytest.CaptureFixture[str]) -> None:
    from trimtab_lab.cli.experiment_simulated import _durations

    assert _durations("1,10s,1m", "--intervals") == (1.0, 10.0, 60.0)
    for wrong in ("", "soon", "1,nan", "0s"):
        with pytest.raises(typer.BadParameter):
            _durations(wrong, "--intervals", least=0.1)


READ = {
    *("--command-config", "--to-command-config", "--properties-file"),
    *("--snapshot", "--loads", "--events", "--samples", "--acknowledged", "--receipts"),
    *("--stream", "--history", "--counts"),
}
"""Options whose file is read; whatever else names a file is written."""


def is_written(option: Any) -> bool:
    return option.type_descriptor.annotation is Path and not READ & {*option.opts}


def is_output(option: Any) -> bool:
    return is_written(option) and option.metavar != "DIR"


@of_kind(is_output)
def test_a_result_is_never_written_into_a_folder_that_does_not_exist(
    command: Any, option: Any, tmp_path: Path
) -> None:
    missing = tmp_path / "slip" / "result.json"
    assert f"{missing.parent} does not exist" in str(complaint(command, option, str(missing)))
    assert "is a folder" in str(complaint(command, option, str(tmp_path)))
    assert complaint(command, option, str(tmp_path / "result.json")) is None
    assert complaint(command, option, "/dev/null") is None
    assert list(tmp_path.iterdir()) == []


def test_every_verb_that_writes_a_file_is_looked_at() -> None:
    assert sum(is_output(found.values[1]) for found in OPTIONS) > 15
    names = {name for found in OPTIONS for name in found.values[1].opts}  # type: ignore[union-attr]
    assert names >= READ


def is_folder(option: Any) -> bool:
    return is_written(option) and option.metavar == "DIR"


@of_kind(is_folder)
def test_a_folder_for_results_is_not_a_file_and_has_a_parent(
    command: Any, option: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in str(complaint(command, option, str(tmp_path / "file")))
    assert "does not exist" in str(complaint(command, option, str(tmp_path / "slip" / "new")))
    assert complaint(command, option, str(tmp_path / "new")) is None
    assert complaint(command, option, str(tmp_path)) is None


def test_options_of_consumers_are_taken_apart_before_anything_is_started() -> None:
    [(command, option)] = [
        found.values
        for found in OPTIONS
        if "--consume" in found.values[1].opts  # type: ignore[union-attr]
    ]
    assert "cannot be split" in str(complaint(command, option, "--handler 'shop:book"))
    assert complaint(command, option, "--handler shop:book") is None
