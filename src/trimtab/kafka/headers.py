"""Headers of a record as confluent-kafka gives them, where it can."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from trimtab.model.record import Headers
from trimtab.observe.logging import library_log

log = library_log()

_headers = methodcaller("headers")
"""Asks so that Python looks whether the client failed: a direct call, once it is hot, does not."""


def headers_of(message: Any) -> Headers:
    """The headers of a message; none, and a line in the log, if a name in them is not UTF-8.

    The client cannot show such headers at all, and one record must not stop its partition.
    """
    try:
        return tuple(_headers(message) or ())
    except (UnicodeDecodeError, SystemError) as error:
        log.warning(
            "headers_could_not_be_read",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            why=repr(error),
        )
        return ()
