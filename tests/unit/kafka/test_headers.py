"""A record whose headers the client cannot show is handled without them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from trimtab.kafka.headers import headers_of


class Message:
    def __init__(self, headers: object) -> None:
        self._headers = headers

    def headers(self) -> object:
        if isinstance(self._headers, BaseException):
            raise self._headers
        return self._headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17


def test_headers_are_taken_as_they_are() -> None:
    assert headers_of(Message(None)) == ()
    assert headers_of(Message([("a", b"x"), ("a", b"")])) == (("a", b"x"), ("a", b""))


@pytest.mark.parametrize(
    "error", [SystemError("error set"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")]
)
def test_headers_that_cannot_be_shown_are_left_out_and_the_record_is_named(
    error: Exception,
) -> None:
    with capture_logs() as said:
        assert headers_of(Message(error)) == ()
    assert [(s["topic"], s["partition"], s["offset"]) for s in said] == [("orders", 3, 17)]
