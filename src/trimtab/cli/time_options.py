"""Times, spans of time and offsets on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import duration_option
from trimtab.errors import ConfigError
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import offsets_from
from trimtab.model.json_reader import parse, parse_file

MICROS = 1_000_000
_MOST_MICROS = round(datetime.max.replace(tzinfo=UTC).timestamp()) * MICROS


def moment(text: str) -> int:
    """Parses an ISO time (UTC unless it has an offset), or microseconds since 1970."""
    if text.isdecimal():
        if len(text) > len(str(_MOST_MICROS)) or int(text) > _MOST_MICROS:
            raise typer.BadParameter(f"{text} microseconds since 1970 are after the year 9999")
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it as 2026-01-31T12:00:00"
        ) from error
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * MICROS)


def read_offsets(text: str) -> dict[TopicPartition, tuple[int, int]]:
    """Parses --offsets: JSON, or a file with JSON."""
    looks_inline = text.lstrip().startswith("{")
    node = parse(text, origin="--offsets") if looks_inline else parse_file(Path(text))
    return offsets_from(node)


def span_of(
    since: float | None, from_ts: int | None, to_ts: int | None, *, now: int
) -> tuple[int, int]:
    """The requested span of time; `now` is when the command started."""
    if since is not None and from_ts is not None:
        raise ConfigError("Give --since or --from, not both.")
    end = now if to_ts is None else min(to_ts, now)  # there are no records of the future
    start = from_ts if from_ts is not None else end - round((since or 300.0) * MICROS)
    if start >= now:
        raise ConfigError("The span is in the future.", hint="Check --from and --to.")
    if start >= end:
        raise ConfigError("The span ends before it begins.", hint="Check --from and --to.")
    return start, end


def since_option(default: str) -> Any:
    """`--since`: a span that ends when the command starts."""
    return duration_option(
        "--since",
        help=f"Length of the span up to the start of the command, such as 10m. Default: {default}.",
    )


def offsets_option(what: str) -> Any:
    """`--offsets`: ranges of offsets, by topic and partition."""
    return typer.Option(
        "--offsets",
        metavar="JSON|FILE",
        help=f'{what}: {{"topic":{{"0":[first,next]}}}}, or a file with that.',
    )


FromTime = Annotated[
    int | None,
    typer.Option(
        "--from",
        metavar="TIME",
        parser=moment,
        help="Start of the span: ISO time, or microseconds.",
    ),
]
ToTime = Annotated[
    int | None,
    typer.Option("--to", metavar="TIME", parser=moment, help="End of the span. Default: now."),
]
