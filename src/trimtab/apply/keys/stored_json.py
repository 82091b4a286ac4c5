"""Values of `.state` and `.handover`: versioned JSON objects with base64 inside.

Promise  A value that was not written by this version raises `BrokenState`, whatever is wrong.
"""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import a2b_base64
from typing import Any

from trimtab.apply.keys.key_entry import Sources

BROKEN = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a node of an unexpected shape raises."""

StoredWrite = tuple[bytes, bytes | None]
"""A record key and a value; None is a tombstone."""


class BrokenState(ValueError):
    """A record of `.state` or `.handover` that this version cannot read."""


def node_of(text: bytes) -> dict[str, Any]:
    """The object of a value, whose version is known."""
    try:
        node = json.loads(text)
    except ValueError as error:
        raise BrokenState(f"invalid JSON: {text[:80]!r}") from error
    if not isinstance(node, dict) or node.get("v") != 1:
        raise BrokenState(f"unknown version: {text[:80]!r}")
    return node


def count_of(node: dict[str, Any]) -> int:
    """The number of chunks."""
    of = node.get("of", 1)
    if not isinstance(of, int) or of < 1:
        raise BrokenState(f"invalid number of chunks: {of!r}")
    return of


def value_of(node: dict[str, Any]) -> bytes | None:
    """The state, or the part of it that is in this record."""
    return from_base64(node.get("value_b64"))


def sources_of(node: dict[str, Any]) -> Sources:
    """The newest source offsets by shard."""
    return tuple(sorted((int(shard), int(src)) for shard, src in node.items()))


def to_base64(value: bytes | None) -> str | None:
    """Bytes as text; None stays None."""
    return None if value is None else b64encode(value).decode()


def from_base64(text: str | bytes | None) -> bytes | None:
    """Bytes of a text of `to_base64`."""
    if text is None:
        return None
    try:
        return a2b_base64(text, strict_mode=True)
    except (TypeError, ValueError) as error:
        raise BrokenState(f"invalid base64: {str(text)[:80]!r}") from error
