"""The controller's ear for group mode, and the line by which a group's leader reaches it: HTTP.

    POST /assignment   {v, group, generation, members, partitions} → {v, version, assignment}
    POST /rejoin       {v, group, version}                         → {v, rejoin, version}
    GET  /version                                                  → {v, group, version}

Promise  What cannot be read is answered with 400 and why, another group with 404, and 503 while
         there is no plan yet. `rejoin` is true when the plan is newer than the caller's version.
         Listens on the loopback address unless told otherwise. A caller that sends its question
         slowly holds up nobody else, and is cut off after a few seconds.
         The line gives up after its timeout and says so; it never goes through a proxy.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog

from trimtab.apply.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    answer_from,
    answer_to,
    request_from,
    request_to,
)
from trimtab.errors import ApplyError, BadFile, ConfigError, ProtocolViolation
from trimtab.model.codec import VERSION, Json, dumps
from trimtab.model.reading import Node, parse

log = structlog.get_logger()

_T = TypeVar("_T")

Decide = Callable[[AssignmentRequest], AssignmentAnswer | None]
"""The answer to a request, or None while there is no plan; called by several threads at once."""

_MOST_BYTES = 32 * 1024 * 1024  # 100 000 partitions, owned and to be read, with long topic names
_PATIENCE_S = 5.0


class AssignmentService:
    """Answers the leader of one group while the block runs; `url` says where.

    `decide` gives the answer and `version` that of the newest plan; None from either means that
    there is no plan yet.
    """

    def __init__(
        self,
        group: str,
        decide: Decide,
        version: Callable[[], int | None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._desk = _Desk(group, decide, version)
        try:
            self._server = _Server((host, port), self._desk)
        except OSError as error:
            raise ConfigError(
                f"Cannot listen for the group's leader on {host}:{port}: "
                f"{error.strerror or error}.",
                hint="Give controller.url another port, or 0 for any that is free.",
            ) from error
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"assignments-{group}",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """Where the service listens."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> AssignmentService:
        self._thread.start()
        log.info("assignment_service_started", group=self._desk.group, url=self.url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


# ---------------------------------------------------------------- answering


class _Refused(Exception):
    """A question that gets no answer, and the status that says why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class _Desk:
    group: str
    decide: Decide
    version: Callable[[], int | None]

    def assignment(self, question: Node) -> Json:
        request = request_from(question)
        self._check(request.group)
        reply = self.decide(request)
        if reply is None:
            raise self._no_plan()
        return answer_to(reply)

    def rejoin(self, question: Node) -> Json:
        question.version()
        held = question.need("version").integer()
        self._check(question.need("group").text())
        newest = self._newest()
        return {"v": VERSION, "rejoin": newest > held, "version": newest}

    def newest(self) -> Json:
        return {"v": VERSION, "group": self.group, "version": self._newest()}

    def _newest(self) -> int:
        newest = self.version()
        if newest is None:
            raise self._no_plan()
        return newest

    def _check(self, group: str) -> None:
        if group != self.group:
            raise _Refused(
                HTTPStatus.NOT_FOUND, f"Group {group} is unknown here, {self.group} is served."
            )

    def _no_plan(self) -> _Refused:
        return _Refused(
            HTTPStatus.SERVICE_UNAVAILABLE, f"There is no plan for group {self.group} yet."
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], desk: _Desk) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.desk = desk
        super().__init__(address, _Conversation)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - inherited
        log.info("caller_hung_up", caller=str(client_address[0]), reason=repr(sys.exception()))


class _Conversation(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: _Server
    server_version = "trimtab"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_POST(self) -> None:
        desk = self.server.desk
        answers = {"/assignment": desk.assignment, "/rejoin": desk.rejoin}
        self._reply(lambda: self._at(answers)(self._question()))

    def do_GET(self) -> None:
        answers = {"/version": self.server.desk.newest}
        self._reply(lambda: self._at(answers)())  # noqa: PLW0108 - the look-up may fail, too

    def _at(self, answers: Mapping[str, _T]) -> _T:
        if self.path not in answers:
            raise _Refused(HTTPStatus.NOT_FOUND, f"There is nothing at {self.path}.")
        return answers[self.path]

    def _question(self) -> Node:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
        if len(length) > 12 or int(length) > _MOST_BYTES:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"More than {_MOST_BYTES} bytes are not read."
            )
        return parse(self.rfile.read(int(length)), origin=self.path)

    def _reply(self, answer: Callable[[], Json]) -> None:
        try:
            status, body = HTTPStatus.OK, answer()
        except _Refused as refused:
            status, body = refused.status, _error(refused.why)
        except BadFile as error:
            status, body = HTTPStatus.BAD_REQUEST, _error(error.message)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            log.exception("assignment_failed", group=self.server.desk.group)
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, _error(f"{type(error).__name__}.")
        text = dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as http.server has it
        log.debug("assignment_request_served", caller=self.address_string(), line=format % args)


def _error(why: str) -> Json:
    return {"v": VERSION, "error": why}


# ---------------------------------------------------------------- asking


class ControllerLine:
    """The leader's line to the controller; every call is a connection of its own."""

    def __init__(self, url: str, *, timeout_s: float = 2.0, glance_s: float = 0.5) -> None:
        parts = urlsplit(url)
        try:
            self._host, self._port = parts.hostname or "", parts.port or 80
        except ValueError:
            self._host = ""
        if parts.scheme != "http" or not self._host:
            raise ConfigError(
                f"{url!r} is not the address of a controller.",
                hint="controller.url has the form http://HOST:PORT.",
            )
        self._path = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._glance_s = glance_s
        self.url = url

    @property
    def longest_s(self) -> float:
        """How long `ask` may take."""
        return 2 * self._timeout_s

    def ask(self, request: AssignmentRequest) -> AssignmentAnswer:
        """The controller's answer, after one retry at most; ApplyError when there is none."""
        body = request_to(request)
        try:
            node = self._post("/assignment", body, self._timeout_s)
        except _NoAnswer:
            node = self._post("/assignment", body, self._timeout_s)
        with _as_violation():
            return answer_from(node)

    def newer(self, group: str, version: int) -> bool:
        """Whether the controller has a newer plan than this; ApplyError when it does not say."""
        body = {"v": VERSION, "group": group, "version": version}
        node = self._post("/rejoin", body, self._glance_s)
        with _as_violation():
            node.version()
            return node.need("rejoin").flag()

    def _post(self, path: str, body: Json, timeout_s: float) -> Node:
        text = dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with closing(HTTPConnection(self._host, self._port, timeout=timeout_s)) as connection:
                connection.request("POST", self._path + path, text, headers)
                response = connection.getresponse()
                status, said = response.status, response.read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise _NoAnswer(f"The controller at {self.url} did not answer: {why}.") from error
        with _as_violation():
            node = parse(said, origin=f"{self.url}{path}")
            if status == HTTPStatus.OK:
                return node
            why = node.need("error").text()
        raise ApplyError(f"The controller at {self.url} refused with {status}: {why}")


class _NoAnswer(ApplyError):
    """Nothing came back in time."""


@contextmanager
def _as_violation() -> Iterator[None]:
    """What the controller says and cannot be read breaks the protocol; it is no bad file."""
    try:
        yield
    except BadFile as error:
        raise ProtocolViolation(f"The controller's answer cannot be read: {error}") from error
