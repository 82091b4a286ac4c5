"""The assignment service of group mode and its client: the group's leader asks over HTTP.

    POST /assignment   {v, group, generation, members, partitions} → {v, version, assignment}
    POST /rejoin       {v, group, version}                         → {v, rejoin, version}
    GET  /version                                                  → {v, group, version}
    GET  /ready                                                    → {v, group}

Promise  Only the controller that leads listens, so `/ready` answers 200 there and nothing answers
         elsewhere. A request that cannot be read is answered with 400 and the reason, another
         group with 404, and 503 while there is no plan yet. With a token, every request but
         `/ready` needs the header `Authorization: Bearer TOKEN`, else it is answered with 401.
         `rejoin` is true when the plan is newer than the caller's version.
         Listens on the loopback address unless told otherwise. A caller that sends its question
         slowly holds up nobody else, and is cut off after a few seconds.
         The client may have several controllers, by URL or by the addresses of one name. It asks
         the one that answered last, then the others, until one answers; it gives up after its
         timeout and names the reason. It never goes through a proxy.
"""

from __future__ import annotations

import errno
import hmac
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trimtab.apply.consumers.assignments import (
    AssignmentAnswer,
    AssignmentRequest,
    answer_from,
    answer_to,
    request_from,
    request_to,
)
from trimtab.errors import (
    ApplyError,
    BadFile,
    ConfigError,
    PortTaken,
    ProtocolViolation,
    TokenRefused,
)
from trimtab.model.codec import VERSION, Json, dumps
from trimtab.model.reading import Node, parse
from trimtab.observe.logging import library_log

log = library_log()

_T = TypeVar("_T")

Decide = Callable[[AssignmentRequest], AssignmentAnswer | None]
"""The answer to a request, or None while there is no plan; called by several threads at once."""

_MOST_BYTES = 32 * 1024 * 1024  # 100 000 partitions, owned and to be read, with long topic names
_MOST_CALLERS = 100
_PATIENCE_S = 5.0


class AssignmentService:
    """Answers the leader of one group while the block runs; `url` says where.

    `decide` gives the answer and `version` that of the newest plan; None from either means that
    there is no plan yet. Without a `token` everybody is answered.
    """

    def __init__(
        self,
        group: str,
        decide: Decide,
        version: Callable[[], int | None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self._desk = _Desk(group, decide, version, token)
        try:
            self._server = _Server((host.strip("[]"), port), self._desk)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise (PortTaken if taken else ConfigError)(
                f"Cannot listen for the group's leader on {host}:{port}: "
                f"{error.strerror or error}.",
                hint="Give another --listen HOST:PORT; port 0 takes any that is free.",
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
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __enter__(self) -> AssignmentService:
        self._thread.start()
        log.info("assignment_service_started", group=self._desk.group, url=self.url)
        host = str(self._server.server_address[0])
        if self._desk.token is None and not ip_address(host).is_loopback:
            log.warning(
                "assignment_service_has_no_token",
                listens=host,
                hint="Other machines can ask for the plan: set TRIMTAB_CONTROLLER__TOKEN.",
            )
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
    """A request that is refused, with the status and the reason."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class _Desk:
    group: str
    decide: Decide
    version: Callable[[], int | None]
    token: str | None = field(default=None, repr=False)
    _strangers: set[str] = field(default_factory=set)

    def admit(self, shown: str | None, caller: str) -> None:
        """Refuses a caller that does not show the token; the first time it is logged."""
        if self.token is None:
            return
        kind, _, value = (shown or "").partition(" ")
        given, wanted = value.strip().encode(), self.token.encode()
        if kind.lower() == "bearer" and hmac.compare_digest(given, wanted):
            self._strangers.discard(caller)
            return
        why = "The token is wrong." if value else "A token is required."
        if caller not in self._strangers and len(self._strangers) < _MOST_CALLERS:
            self._strangers.add(caller)
            log.warning("request_without_valid_token", group=self.group, caller=caller, why=why)
        raise _Refused(HTTPStatus.UNAUTHORIZED, why)

    def ready(self) -> Json:
        return {"v": VERSION, "group": self.group}

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

        def answer() -> Json:
            body = self._body()  # read in any case, else the refusal might not arrive
            self._admit()
            return self._at(answers)(parse(body, origin=self.path))

        self._reply(answer)

    def do_GET(self) -> None:
        desk = self.server.desk

        def answer() -> Json:
            if self.path == "/ready":
                return desk.ready()
            self._admit()
            return self._at({"/version": desk.newest})()

        self._reply(answer)

    def _admit(self) -> None:
        self.server.desk.admit(self.headers.get("Authorization"), str(self.client_address[0]))

    def _at(self, answers: Mapping[str, _T]) -> _T:
        if self.path not in answers:
            raise _Refused(HTTPStatus.NOT_FOUND, f"There is nothing at {self.path}.")
        return answers[self.path]

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
        if len(length) > 12 or int(length) > _MOST_BYTES:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"More than {_MOST_BYTES} bytes are not read."
            )
        return self.rfile.read(int(length))

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
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as http.server has it
        log.debug("assignment_request_served", caller=self.address_string(), line=format % args)


def _error(why: str) -> Json:
    return {"v": VERSION, "error": why}


# ---------------------------------------------------------------- asking


class ControllerLine:
    """The leader's line to the controllers; every call is a connection of its own.

    `urls` is one address or several with commas between them.
    """

    def __init__(
        self,
        urls: str,
        *,
        token: str | None = None,
        timeout_s: float = 2.0,
        glance_s: float = 0.5,
    ) -> None:
        self._places = tuple(_place(url.strip()) for url in urls.split(","))
        self._token = token
        self._timeout_s = timeout_s
        self._glance_s = glance_s
        self._answered: _Address | None = None
        self.urls = urls

    @property
    def longest_s(self) -> float:
        """How long `ask` may take."""
        return 2 * self._timeout_s

    def ask(self, request: AssignmentRequest) -> AssignmentAnswer:
        """The answer of the controller that leads; ApplyError when there is none."""
        node = self._post("/assignment", request_to(request), self.longest_s, self._timeout_s)
        with _as_violation():
            return answer_from(node)

    def newer(self, group: str, version: int) -> bool:
        """Whether the controller has a newer plan than this; ApplyError when it does not say."""
        body = {"v": VERSION, "group": group, "version": version}
        node = self._post("/rejoin", body, self._timeout_s, self._glance_s)
        with _as_violation():
            node.version()
            return node.need("rejoin").flag()

    def _post(self, path: str, body: Json, within_s: float, each_s: float) -> Node:
        """Asks one address after another; one that is the only one is asked twice."""
        text = dumps(body).encode()
        addresses = self._addresses()
        if len(addresses) == 1 and path == "/assignment":
            addresses *= 2
        timeout_s = min(each_s, within_s / max(1, len(addresses)))
        silent: dict[str, None] = {}
        not_yet: ApplyError | None = None
        for address in addresses:
            try:
                node = self._told(address, path, text, timeout_s)
            except _NoPlan as error:
                not_yet = error
            except _NoAnswer as error:
                silent[error.message] = None
            else:
                self._answered = address
                return node
        raise not_yet or _NoAnswer(" ".join(silent))

    def _addresses(self) -> list[_Address]:
        """Where controllers may be, the one that answered last first."""
        found: dict[_Address, None] = {}
        for place in self._places:
            try:
                infos = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
            except OSError as error:
                if len(self._places) == 1:
                    raise _NoAnswer(
                        f"The controller at {place.url} did not answer: {error}."
                    ) from error
                continue
            found.update({_Address(str(info[4][0]), place): None for info in infos})
        if not found:
            raise _NoAnswer(f"None of the controllers {self.urls} has an address.")
        return sorted(found, key=lambda address: address != self._answered)

    def _told(self, address: _Address, path: str, text: bytes, timeout_s: float) -> Node:
        place = address.place
        url = place.url if address.host == place.host else f"{place.url} ({address.host})"
        headers = {"Content-Type": "application/json", "Host": place.netloc}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            with closing(HTTPConnection(address.host, place.port, timeout=timeout_s)) as connection:
                connection.request("POST", place.path + path, text, headers)
                response = connection.getresponse()
                status, said = response.status, response.read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise _NoAnswer(f"The controller at {url} did not answer: {why}.") from error
        with _as_violation():
            node = parse(said, origin=f"{place.url}{path}")
            if status == HTTPStatus.OK:
                return node
            why = node.need("error").text()
        refusal = f"The controller at {url} refused with {status}: {why}"
        if status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused(
                refusal,
                hint="Give the consumers and the controller the same TRIMTAB_CONTROLLER__TOKEN.",
            )
        raise (_NoPlan if status == HTTPStatus.SERVICE_UNAVAILABLE else ApplyError)(refusal)


@dataclass(frozen=True, slots=True)
class _Place:
    """A controller as the user names it."""

    url: str
    host: str
    port: int
    path: str
    netloc: str


@dataclass(frozen=True, slots=True)
class _Address:
    """One of the addresses that the name of a controller has."""

    host: str
    place: _Place


def _place(url: str) -> _Place:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host, port = "", 0
    if parts.scheme != "http" or not host:
        raise ConfigError(
            f"{url!r} is not the address of a controller.",
            hint="--controller-url has the form http://HOST:PORT; several with commas between.",
        )
    return _Place(url, host, port, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2])


class _NoPlan(ApplyError):
    """The controller that was asked has no plan yet."""


class _NoAnswer(ApplyError):
    """Nothing came back in time."""


@contextmanager
def _as_violation() -> Iterator[None]:
    """What the controller says and cannot be read breaks the protocol; it is no bad file."""
    try:
        yield
    except BadFile as error:
        raise ProtocolViolation(f"The controller's answer cannot be read: {error}") from error
