"""The records of `produce_batch`: dicts as confluent-kafka takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

UNASSIGNED = -1
"""The partition of a record whose partition is to be chosen."""


def sizes_of(messages: object) -> list[int] | None:
    """The size of each record of a batch; None if the client would refuse one.

    The client checks all records first, so nothing of such a batch is sent.
    """
    if not (isinstance(messages, list) and all(_is_record(message) for message in messages)):
        return None
    try:
        return [
            len(as_bytes(m.get("value")) or b"") + len(as_bytes(m.get("key")) or b"")
            for m in messages
        ]
    except UnicodeEncodeError:
        return None


def _is_record(message: object) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("value"), bytes | str | None)
        and isinstance(message.get("key"), bytes | str | None)
        and isinstance(message.get("partition"), int | None)
        and abs(message.get("partition") or 0) < 2**31
        and message.get("timestamp") is None
    )


def own_partition(message: Mapping[str, Any]) -> int:
    """The partition that a record names, else `UNASSIGNED`."""
    found: int | None = message.get("partition")
    return UNASSIGNED if found is None else found


def as_bytes(text: bytes | str | None) -> bytes | None:
    """A key or value as the client sends it."""
    return text.encode() if isinstance(text, str) else text


def was_refused(message: Mapping[str, Any], codes: frozenset[int]) -> bool:
    """Whether the client refused a record of a batch for one of these reasons."""
    error = message.get("_error")
    return isinstance(error, KafkaError) and error.code() in codes
