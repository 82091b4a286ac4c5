"""Numbers, text, flags, choices and keys in JSON.

A reader takes a node, a step below it and the value there. It makes the node of that step only if
the value must be converted or refused, since most values are right.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from trimtab.model.json_reader import LARGEST, Node

Read = Callable[[Node, str | int, Any], Any]

# ---------------------------------------------------------------- reading


def read_any(parent: Node, step: str | int, value: Any) -> Any:
    """Any JSON, as it is."""
    return parent.at(step, value).plain()


def read_text(parent: Node, step: str | int, value: Any) -> str:
    """Text."""
    fine = value.__class__ is str and value.isascii()
    return value if fine else parent.at(step, value).text()


def read_flag(parent: Node, step: str | int, value: Any) -> bool:
    """True or false."""
    return value if value.__class__ is bool else parent.at(step, value).flag()


def read_bytes(parent: Node, step: str | int, value: Any) -> bytes:
    """Bytes that are written as text."""
    return read_text(parent, step, value).encode()


def number_reader(least: int | None, above: int | None, *, whole: bool) -> Read:
    """Reads numbers within these limits; an integer stays one also where a float is allowed."""
    kinds, high = ((int,), LARGEST) if whole else ((int, float), 1e300)
    low = -high if least is None else least
    low = low if above is None else math.nextafter(above, math.inf)

    def read(parent: Node, step: str | int, value: Any) -> Any:
        if value.__class__ in kinds and low <= value <= high:
            return value
        node = parent.at(step, value)  # converts it or says what is wrong with it
        return node.integer(least=least) if whole else node.number(least=least, above=above)

    return read


def choice_reader(kind: type[StrEnum], noun: str | None) -> Read:
    """Reads choices; with a noun, the error says that newer releases may have more of them."""
    choices = {str(choice): choice for choice in kind}
    listed = " or ".join(kind) if len(kind) == 2 else f"one of {', '.join(kind)}"

    def read(parent: Node, step: str | int, value: Any) -> StrEnum:
        if value.__class__ is str and value in choices:
            return choices[value]
        newer = f"unknown {noun} {value}; this release supports {', '.join(kind)}"
        return parent.at(step, value).fail(newer if noun else f"should be {listed}, is {value}")

    return read


def read_base64(node: Node, name: str, *, optional: bool) -> bytes | None:
    """What `key_field` writes for bytes that are not text; None if it may be absent and is."""
    if optional and node.get(f"{name}_b64") is None:
        return None
    found = node.need(f"{name}_b64")
    try:
        return base64.b64decode(found.text(), validate=True)
    except ValueError:
        found.fail("is not valid base64")


# ---------------------------------------------------------------- writing


def key_field(key: bytes, name: str = "key") -> dict[str, str]:
    """`key` if it is text, else `key_b64`."""
    try:
        return {name: key.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(key).decode()}


def tidy(number: float) -> float:
    """Converts a whole float to an integer, so that files show 5 instead of 5.0."""
    return int(number) if float(number).is_integer() else number


def tidied(value: Any) -> Any:
    """Converts all whole floats in a tree to integers, so that equal plans have equal ids."""
    match value:
        case float():
            return tidy(value)
        case Mapping():
            return {name: tidied(v) for name, v in value.items()}
        case list() | tuple():
            return [tidied(v) for v in value]
        case _:
            return value
