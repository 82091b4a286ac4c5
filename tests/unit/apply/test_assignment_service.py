"""The controller's HTTP ear and the leader's line to it, over real loopback sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from threading import Thread
from typing import Any

import pytest

from trimtab.apply.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupMember,
    GroupPlan,
    answered,
)
from trimtab.apply.sockets.assignment_service import AssignmentService, ControllerLine
from trimtab.errors import ApplyError, ConfigError, ProtocolViolation
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
REQUEST = AssignmentRequest(
    group="g",
    generation=4,
    members=(
        GroupMember(member_id="x", client_id="c-0", owned=(SECOND,)),
        GroupMember(member_id="y", client_id="c-1"),
    ),
    partitions=(FIRST, SECOND),
)


class Controller:
    """What stands behind the service: a plan, if there is one, and what was asked."""

    def __init__(self, version: int | None = 5) -> None:
        self.plan = None if version is None else plan(version)
        self.asked: list[AssignmentRequest] = []

    def decide(self, request: AssignmentRequest) -> AssignmentAnswer | None:
        self.asked.append(request)
        return None if self.plan is None else answered(self.plan, request)

    def version(self) -> int | None:
        return None if self.plan is None else self.plan.version


def plan(version: int) -> GroupPlan:
    return GroupPlan(version=version, assignment=Assignment({FIRST: 0, SECOND: 1}))


@contextmanager
def serving(controller: Controller) -> Iterator[AssignmentService]:
    with AssignmentService("g", controller.decide, controller.version) as service:
        yield service


def said(service: AssignmentService, method: str, path: str, body: object = None) -> Any:
    host, _, port = service.url.removeprefix("http://").partition(":")
    with closing(HTTPConnection(host, int(port), timeout=10)) as connection:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, text if method == "POST" else None)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@contextmanager
def answering(*replies: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """A partner that says these bytes, one per connection; None is silence."""
    heard: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            kept = []
            for reply in replies:
                connection, _ = server.accept()
                heard.append(connection.recv(65536))
                if reply is None:
                    kept.append(connection)
                    continue
                with connection:
                    connection.sendall(reply)
            for connection in kept:
                with connection:
                    while connection.recv(65536):
                        pass

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        thread.join(10)


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


# ---------------------------------------------------------------- the service


def test_the_line_brings_the_question_over_and_the_answer_back() -> None:
    controller = Controller()

    with serving(controller) as service:
        answer = ControllerLine(service.url).ask(REQUEST)

    assert controller.asked == [REQUEST]
    assert answer == AssignmentAnswer(5, {"x": (SECOND,), "y": (FIRST,)})


def test_the_service_listens_on_the_loopback_address() -> None:
    with serving(Controller()) as service:
        assert service.url.startswith("http://127.0.0.1:")


def test_only_a_newer_plan_is_a_reason_to_rejoin() -> None:
    with serving(Controller(version=5)) as service:
        line = ControllerLine(service.url)

        assert line.newer("g", 4)
        assert not line.newer("g", 5)
        assert not line.newer("g", 6)
        assert said(service, "POST", "/rejoin", {"v": 1, "group": "g", "version": -1}) == (
            200,
            {"v": 1, "rejoin": True, "version": 5},
        )
        assert said(service, "GET", "/version") == (200, {"v": 1, "group": "g", "version": 5})


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/assignment", b"{", 400, "ends too early"),
        ("/assignment", {"v": 1, "group": "g", "generation": 1}, 400, 'has no "members"'),
        ("/assignment", {"v": 9}, 400, "version 9 is unknown"),
        ("/rejoin", {"v": 1, "group": "g", "version": "x"}, 400, "should be a number"),
        ("/rejoin", {"v": 1, "group": "other", "version": 1}, 404, "other is unknown here"),
        ("/else", {}, 404, "nothing at /else"),
    ],
)
def test_a_question_that_cannot_be_answered_is_told_why(path, body, status, why) -> None:
    with serving(Controller()) as service:
        found, reply = said(service, "POST", path, body)

    assert found == status
    assert why in reply["error"]


def test_without_a_plan_the_service_says_so() -> None:
    with serving(Controller(version=None)) as service:
        line = ControllerLine(service.url)

        with pytest.raises(ApplyError, match="503: There is no plan for group g yet"):
            line.ask(REQUEST)
        with pytest.raises(ApplyError, match="503"):
            line.newer("g", 1)


def test_a_controller_that_fails_is_an_answer_too() -> None:
    def confused(request: AssignmentRequest) -> AssignmentAnswer:
        raise LookupError(request.group)

    with (
        AssignmentService("g", confused, lambda: 1) as service,
        pytest.raises(ApplyError, match="refused with 500: LookupError"),
    ):
        ControllerLine(service.url).ask(REQUEST)


def test_two_services_cannot_have_one_port() -> None:
    controller = Controller()
    with serving(controller) as service:
        port = int(service.url.rpartition(":")[2])

        with pytest.raises(ConfigError, match=f"Cannot listen .*:{port}"):
            AssignmentService("h", controller.decide, controller.version, port=port)


# ---------------------------------------------------------------- the line


def test_the_line_tries_once_more_after_silence() -> None:
    reply = http('{"v":1,"version":2,"assignment":{}}')
    with answering(None, reply) as (url, heard):
        answer = ControllerLine(url, timeout_s=0.2).ask(REQUEST)

    assert answer == AssignmentAnswer(2, {})
    assert len(heard) == 2


def test_the_line_gives_up_after_the_second_silence() -> None:
    with (
        answering(None, None) as (url, heard),
        pytest.raises(ApplyError, match="did not answer: timed out"),
    ):
        ControllerLine(url, timeout_s=0.2).ask(REQUEST)

    assert len(heard) == 2


def test_a_refusal_is_not_asked_for_twice() -> None:
    with (
        answering(http('{"v":1,"error":"No."}', "404 Not Found")) as (url, heard),
        pytest.raises(ApplyError, match="refused with 404: No"),
    ):
        ControllerLine(url, timeout_s=5).ask(REQUEST)

    assert len(heard) == 1


@pytest.mark.parametrize(
    "body", ["", "no JSON", "{}", '{"v":1,"version":1}', '{"v":1,"version":-1,"assignment":{}}']
)
def test_an_answer_that_cannot_be_read_breaks_the_protocol(body) -> None:
    with answering(http(body)) as (url, _), pytest.raises(ProtocolViolation, match="cannot be"):
        ControllerLine(url).ask(REQUEST)


def test_nobody_at_the_address_is_said_so() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    with pytest.raises(ApplyError, match=r"did not answer: .*refused"):
        ControllerLine(f"http://127.0.0.1:{port}").ask(REQUEST)


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://host:1", "http://", "http://h:port"])
def test_an_address_that_is_none_is_refused(url) -> None:
    with pytest.raises(ConfigError, match="not the address"):
        ControllerLine(url)
