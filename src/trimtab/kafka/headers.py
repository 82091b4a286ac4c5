"""Reads the headers of a record from confluent-kafka."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from trimtab.model.record import Headers
from trimtab.observe.logging import library_log

log = library_log()

_headers = methodcaller("headers")
"""With this call Python checks whether the client failed; an optimised direct call does not."""


def headers_of(message: Any) -> Headers:
    """The headers of a message; if a header name is not UTF-8, none, and a warning is logged.

    The client cannot decode such headers, and one record must not stop its partition.
    """
    try:
        return tuple(_headers(message) or ())
    except (UnicodeDecodeError, SystemError) as error:
        log.warning(
            "headers_not_readable",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            why=repr(error),
        )
        return ()
