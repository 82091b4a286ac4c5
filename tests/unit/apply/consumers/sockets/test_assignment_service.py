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

from trimtab.apply.consumers.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupMember,
    GroupPlan,
    answered,
)
from trimtab.apply.consumers.sockets.assignment_service import AssignmentService, ControllerClient
from trimtab.errors import ApplyError, ConfigError, ProtocolViolation, TokenRefused
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
def serving(
    controller: Controller, *, token: str | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[AssignmentService]:
    with AssignmentService(
        "g", controller.decide, controller.version, token=token, host=host, port=port
    ) as service:
        yield service


def said(
    service: AssignmentService,
    method: str,
    path: str,
    body: object = None,
    *,
    authorization: str | None = None,
) -> Any:
    host, _, port = service.url.removeprefix("http://").partition(":")
    with closing(HTTPConnection(host, int(port), timeout=10)) as connection:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if authorization is None else {"Authorization": authorization}
        connection.request(method, path, text if method == "POST" else None, headers)
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
        answer = ControllerClient(service.url).ask(REQUEST)

    assert controller.asked == [REQUEST]
    assert answer == AssignmentAnswer(5, {"x": (SECOND,), "y": (FIRST,)})


def test_the_service_listens_on_the_loopback_address() -> None:
    with serving(Controller()) as service:
        assert service.url.startswith("http://127.0.0.1:")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_can_be_listened_on_and_asked_as_people_write_it(host) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")

    with serving(Controller(), host=host) as service:
        assert service.url.startswith("http://[::1]:")
        assert ControllerClient(service.url).newer("g", 4)


def test_only_a_newer_plan_is_a_reason_to_rejoin() -> None:
    with serving(Controller(version=5)) as service:
        line = ControllerClient(service.url)

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
        ("/assignment", {"v": 9}, 400, "unknown version 9"),
        ("/rejoin", {"v": 1, "group": "g", "version": "x"}, 400, "should be a number"),
        ("/rejoin", {"v": 1, "group": "other", "version": 1}, 404, "other is unknown here"),
        ("/else", {}, 404, "Unknown path: /else"),
    ],
)
def test_a_question_that_cannot_be_answered_is_told_why(path, body, status, why) -> None:
    with serving(Controller()) as service:
        found, reply = said(service, "POST", path, body)

    assert found == status
    assert why in reply["error"]


def test_without_a_plan_the_service_says_so() -> None:
    with serving(Controller(version=None)) as service:
        line = ControllerClient(service.url)

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
        ControllerClient(service.url).ask(REQUEST)


def test_two_services_cannot_have_one_port() -> None:
    controller = Controller()
    with serving(controller) as service:
        port = int(service.url.rpartition(":")[2])

        with pytest.raises(ConfigError, match=f"Cannot listen .*:{port}"):
            AssignmentService("h", controller.decide, controller.version, port=port)


# ---------------------------------------------------------------- the token


@pytest.mark.parametrize(
    ("authorization", "why"),
    [
        (None, "A token is required."),
        ("Bearer", "A token is required."),
        ("Basic s3cret", "The token is wrong."),
        ("Bearer s3cre", "The token is wrong."),
        ("Bearer s3cret ä", "The token is wrong."),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/assignment"), ("POST", "/rejoin"), ("GET", "/version")]
)
def test_a_request_without_the_right_token_is_answered_with_401(
    method, path, authorization, why
) -> None:
    controller = Controller()
    with serving(controller, token="s3cret") as service:
        found = said(service, method, path, {"v": 1}, authorization=authorization)

    assert found == (401, {"v": 1, "error": why})
    assert controller.asked == []


def test_the_line_shows_its_token_and_readiness_needs_none() -> None:
    with serving(Controller(), token="s3cret") as service:
        line = ControllerClient(service.url, token="s3cret")

        assert line.ask(REQUEST).version == 5
        assert line.newer("g", 4)
        assert said(service, "GET", "/ready") == (200, {"v": 1, "group": "g"})


@pytest.mark.parametrize(("token", "why"), [(None, "is required"), ("other", "is wrong")])
def test_a_refused_token_is_told_with_what_to_do(token, why) -> None:
    large = AssignmentRequest(
        group="g",
        generation=1,
        members=REQUEST.members,
        partitions=tuple(TopicPartition("t", n) for n in range(50_000)),
    )
    with (
        serving(Controller(), token="s3cret") as service,
        pytest.raises(TokenRefused, match=f"401: .*token {why}") as refused,
    ):
        ControllerClient(service.url, token=token).ask(large)

    assert "TRIMTAB_CONTROLLER__TOKEN" in str(refused.value.hint)
    assert "s3cret" not in str(refused.value)


def test_a_service_that_others_can_reach_without_a_token_warns(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Controller(), host="0.0.0.0"):
        pass
    with serving(Controller(), host="0.0.0.0", token="s3cret"), serving(Controller()):
        pass

    said_out = capsys.readouterr()
    everywhere = said_out.out + said_out.err + caplog.text  # where logs go, others may have chosen
    assert everywhere.count("assignment_service_has_no_token") == 1


# ---------------------------------------------------------------- the line


def test_of_several_controllers_the_one_that_listens_is_found_and_then_asked_first() -> None:
    #  127.0.0.2  nothing ··········· leads
    #  127.0.0.3  leads ···· gone
    with closing(socket.create_server(("127.0.0.2", 0))) as free:
        port = free.getsockname()[1]
    line = ControllerClient(f"http://127.0.0.2:{port},http://127.0.0.3:{port}")

    with serving(Controller(version=5), host="127.0.0.3", port=port):
        assert [line.ask(REQUEST).version for _ in range(2)] == [5, 5]
        assert line._addresses()[0].host == "127.0.0.3"
    with serving(Controller(version=6), host="127.0.0.2", port=port):
        assert line.newer("g", 5)
        assert line.ask(REQUEST).version == 6


def test_all_addresses_of_a_name_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"controllers": ["127.0.0.2", "127.0.0.3", "127.0.0.4"]}
    real = socket.getaddrinfo

    def resolved(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        return [i for name in named.get(host, [host]) for i in real(name, port, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with serving(Controller(), host="127.0.0.4") as service:
        port = service.url.rpartition(":")[2]
        assert ControllerClient(f"http://controllers:{port}").ask(REQUEST).version == 5

    with pytest.raises(ApplyError, match=r"\(127\.0\.0\.2\) .*\(127\.0\.0\.4\) did not answer"):
        ControllerClient(f"http://controllers:{port}").ask(REQUEST)


def test_a_frozen_controller_does_not_keep_the_line_from_the_other_one() -> None:
    with (
        answering(None) as (frozen, _),
        serving(Controller()) as service,
    ):
        line = ControllerClient(f"{frozen},{service.url}", timeout_s=0.4)
        assert line.ask(REQUEST).version == 5


def test_the_line_tries_once_more_after_silence() -> None:
    reply = http('{"v":1,"version":2,"assignment":{}}')
    with answering(None, reply) as (url, heard):
        answer = ControllerClient(url, timeout_s=0.2).ask(REQUEST)

    assert answer == AssignmentAnswer(2, {})
    assert len(heard) == 2


def test_the_line_gives_up_after_the_second_silence() -> None:
    with (
        answering(None, None) as (url, heard),
        pytest.raises(ApplyError, match="did not answer: timed out"),
    ):
        ControllerClient(url, timeout_s=0.2).ask(REQUEST)

    assert len(heard) == 2


def test_a_refusal_is_not_asked_for_twice() -> None:
    with (
        answering(http('{"v":1,"error":"No."}', "404 Not Found")) as (url, heard),
        pytest.raises(ApplyError, match="refused with 404: No"),
    ):
        ControllerClient(url, timeout_s=5).ask(REQUEST)

    assert len(heard) == 1


@pytest.mark.parametrize(
    "body", ["", "no JSON", "{}", '{"v":1,"version":1}', '{"v":1,"version":-1,"assignment":{}}']
)
def test_an_answer_that_cannot_be_read_breaks_the_protocol(body) -> None:
    with answering(http(body)) as (url, _), pytest.raises(ProtocolViolation, match="cannot be"):
        ControllerClient(url).ask(REQUEST)


def test_nobody_at_the_address_is_said_so() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    with pytest.raises(ApplyError, match=r"did not answer: .*refused"):
        ControllerClient(f"http://127.0.0.1:{port}").ask(REQUEST)


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://host:1", "http://", "http://h:port"])
def test_an_address_that_is_none_is_refused(url) -> None:
    with pytest.raises(ConfigError, match="not the address"):
        ControllerClient(url)
