"""Reads JSON, also written by hand, with errors that name the file and the place.

A `Node` is a JSON value with its file and its place in the file, so every error message names both.
Numbers keep their type: an integer stays exact.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from trimtab.errors import BadFile

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
LARGEST = 2**63 - 1
"""The largest 64-bit integer, which is the limit of Kafka and arrays."""


class _Object(dict[str, Any]):
    """A JSON object that keeps names that appear twice, and a name that is not valid Unicode."""

    twice: tuple[str, ...] = ()
    broken: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if not "".join(found).isascii():
        found.broken = next((name for name in found if not _is_unicode(name)), None)
    if len(found) != len(pairs):
        counted = Counter(name for name, _ in pairs)
        found.twice = tuple(sorted(name for name, count in counted.items() if count > 1))
    return found


@dataclass(slots=True, eq=False)
class Node:
    """A JSON value with its file and place.

    The place is put together only for a message: a record has tens of thousands of nodes.
    """

    value: Any
    origin: str
    parent: Node | None = None
    step: str | int = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """The place in the file, such as `steps[0].loads`; empty for the whole file."""
        above = "" if self.parent is None else self.parent.place
        if isinstance(self.step, int):
            return f"{above}[{self.step}]"
        return f"{above}.{self.step}" if above else self.step

    def fail(self, what: str, *, hint: str | None = None) -> NoReturn:
        """Raises BadFile with one line that names the file, the place and the error."""
        where = f"{self.origin}: {self.place}" if self.place else self.origin
        raise BadFile(f"{where}: {what}", hint=hint)

    def at(self, step: str | int, value: Any) -> Node:
        """The node of a field or an element."""
        return Node(value, self.origin, self, step, self.warnings)

    def object(self) -> _Object:
        """This value as an object without repeated names."""
        value = self.value
        if value.__class__ is not _Object:
            self.fail(f"should be an object, is {_kind(value)}")
        if value.twice:
            self.fail(f"{_quoted(value.twice[0])} appears twice")
        if value.broken is not None:
            self.fail(f"the name {_quoted(value.broken)} is not valid Unicode")
        return value

    def get(self, name: str) -> Node | None:
        """The field of that name, or None if it is missing or null."""
        value = self.object().get(name)
        return None if value is None else self.at(name, value)

    def need(self, name: str) -> Node:
        """The field of that name."""
        if name not in self.object():
            self.fail(f"has no {_quoted(name)}")
        return self.at(name, self.object()[name])

    def items(self) -> Iterator[tuple[str, Node]]:
        """The fields of an object, in the order written."""
        return ((name, self.at(name, value)) for name, value in self.object().items())

    def list(self) -> Iterator[Node]:
        """The elements of an array."""
        if not isinstance(self.value, list):
            self.fail(f"should be an array, is {_kind(self.value)}")
        return (self.at(i, value) for i, value in enumerate(self.value))

    def text(self) -> str:
        """This value as a string."""
        if not isinstance(self.value, str):
            self.fail(f"should be text, is {_kind(self.value)}")
        if not _is_unicode(self.value):
            self.fail(f"{_quoted(self.value)} is not valid Unicode")
        return self.value

    def flag(self) -> bool:
        """This value as true or false."""
        if not isinstance(self.value, bool):
            self.fail(f"should be true or false, is {_kind(self.value)}")
        return self.value

    def number(self, *, least: float | None = None, above: float | None = None) -> float:
        """This value as a finite number within the given limits."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"should be a number, is {_kind(value)}")
        if not _representable(value):
            self.fail(f"should be a finite number, is {str(value)[:20]}")
        if least is not None and value < least:
            self.fail(
                f"is negative: {value}" if least == 0 else f"is {value}, the minimum is {least}"
            )
        if above is not None and value <= above:
            self.fail(f"should be above {above:g}, is {value}")
        return value

    def integer(self, *, least: int | None = None) -> int:
        """This value as a whole number."""
        value = self.number(least=least)
        if value != int(value):
            self.fail(f"should be a whole number, is {value}")
        if abs(int(value)) > LARGEST:
            self.fail(f"is {str(value)[:20]}, the maximum is {LARGEST}")
        return int(value)

    def plain(self) -> Any:
        """This value without its place; every name and number in it is checked first."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.list()]
        if isinstance(self.value, float):
            return self.number()
        return self.text() if isinstance(self.value, str) else self.value

    def index(self, name: str) -> int:
        """A name in this object as an index: decimal, no sign, no leading zero."""
        if not _INDEX.fullmatch(name):
            self.fail(f"{_quoted(name)} is not an index such as 0, 1, 2")
        return int(name)

    def version(self, newest: int = 1) -> None:
        """Raises BadFile for an unknown version."""
        found = self.need("v")
        if found.value != newest or isinstance(found.value, bool):
            found.fail(
                f"unknown version {json.dumps(found.value)}; this release reads version {newest}",
                hint="If a newer Trimtab wrote it, update this one.",
            )

    def known(self, *names: str) -> None:
        """Adds a warning for every unknown field."""
        place = f" in {self.place}" if self.place else ""
        self.warnings.extend(
            f"{self.origin}: field {_quoted(name)}{place} is unknown and was ignored"
            for name in self.object()
            if name not in names
        )


def parse(text: str | bytes, *, origin: str) -> Node:
    """Parses JSON text; `origin` is its name in error messages."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value = json.loads(decoded, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadFile(f"{origin}: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        ended = error.pos >= len(error.doc.rstrip())
        what = "the JSON ends too early (truncated?)" if ended else error.msg
        if not error.doc.strip():
            raise BadFile(f"{origin}: is empty; JSON was expected") from error
        raise BadFile(f"{origin}: line {error.lineno} column {error.colno}: {what}") from error
    except ValueError as error:  # an integer with thousands of digits
        raise BadFile(f"{origin}: contains a number that is too long") from error
    except RecursionError as error:
        raise BadFile(f"{origin}: nested too deeply") from error
    return Node(value, origin)


def parse_file(path: str | Path) -> Node:
    """Reads a JSON file."""
    try:
        return parse(Path(path).read_bytes(), origin=str(path))
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from error


def _representable(value: float) -> bool:
    """Whether the value fits a float: a JSON integer may have any size."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _kind(value: object) -> str:
    names: list[tuple[type | tuple[type, ...], str]] = [
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "text"),
        (list, "an array"),
        (dict, "an object"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _is_unicode(text: str) -> bool:
    """Whether text can be written as UTF-8: JSON allows half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=not _is_unicode(name))
