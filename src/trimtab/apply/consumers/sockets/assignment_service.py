"""The assignment service of group mode and its client: the group's leader asks over HTTP.

    POST /assignment   {v, group, generation, members, partitions} → {v, version, assignment}
    POST /rejoin       {v, group, version}                         → {v, rejoin, version}
    GET  /version                                                  → {v, group, version}
    GET  /ready                                                    → {v, group}

Promise  Only the leading controller listens. A slow client delays no other and is disconnected
         after a few seconds.
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
from trimtab.model.json_reader import Node, parse
from trimtab.observe.logging import library_log

log = library_log()

_T = TypeVar("_T")

Decide = Callable[[AssignmentRequest], AssignmentAnswer | None]
"""The answer to a request, or None while there is no plan; called by several threads at once."""

_MOST_BYTES = 32 * 1024 * 1024  # 100 000 partitions, owned and to be read, with long topic names
_MOST_CALLERS = 100
_READ_TIMEOUT_S = 5.0


class AssignmentService:
    """Answers the leader of one group at `url` while the block runs.

    `decide` returns the answer and `version` the version of the newest plan; None from either means
    that there is no plan yet. Without a `token` all clients are answered. The default address is
    loopback.

    400 for an unreadable request, with the reason; 404 for another group; 503 without a plan; 401
    without the header `Authorization: Bearer TOKEN`, if there is a token (not for `/ready`).
    `rejoin` is true if the plan is newer than the client's version.
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
        self._endpoints = _Endpoints(group, decide, version, token)
        try:
            self._server = _Server((host.strip("[]"), port), self._endpoints)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise (PortTaken if taken else ConfigError)(
                f"Cannot listen for the group's leader on {host}:{port}: "
                f"{error.strerror or error}.",
                hint="Choose another --listen HOST:PORT; port 0 takes any free port.",
            ) from error
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"assignments-{group}",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """The address of the service."""
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __enter__(self) -> AssignmentService:
        self._thread.start()
        log.info("assignment_service_started", group=self._endpoints.group, url=self.url)
        host = str(self._server.server_address[0])
        if self._endpoints.token is None and not ip_address(host).is_loopback:
            log.warning(
                "assignment_service_has_no_token",
                listens=host,
                hint="Other machines can read the plan: set TRIMTAB_CONTROLLER__TOKEN.",
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
class _Endpoints:
    group: str
    decide: Decide
    version: Callable[[], int | None]
    token: str | None = field(default=None, repr=False)
    _refused_callers: set[str] = field(default_factory=set)

    def authorize(self, shown: str | None, caller: str) -> None:
        """Refuses a client without the token; logs it the first time."""
        if self.token is None:
            return
        kind, _, value = (shown or "").partition(" ")
        given, wanted = value.strip().encode(), self.token.encode()
        if kind.lower() == "bearer" and hmac.compare_digest(given, wanted):
            self._refused_callers.discard(caller)
            return
        why = "The token is wrong." if value else "A token is required."
        if caller not in self._refused_callers and len(self._refused_callers) < _MOST_CALLERS:
            self._refused_callers.add(caller)
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
                HTTPStatus.NOT_FOUND, f"Group {group} is unknown here: this is {self.group}."
            )

    def _no_plan(self) -> _Refused:
        return _Refused(
            HTTPStatus.SERVICE_UNAVAILABLE, f"There is no plan for group {self.group} yet."
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], endpoints: _Endpoints) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.endpoints = endpoints
        super().__init__(address, _RequestHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - inherited
        log.info("client_disconnected", caller=str(client_address[0]), reason=repr(sys.exception()))


class _RequestHandler(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: _Server
    server_version = "trimtab"
    sys_version = ""
    timeout = _READ_TIMEOUT_S

    def do_POST(self) -> None:
        endpoints = self.server.endpoints
        answers = {"/assignment": endpoints.assignment, "/rejoin": endpoints.rejoin}

        def answer() -> Json:
            body = self._body()  # read first, else the client might not receive the refusal
            self._authorize()
            return self._at(answers)(parse(body, origin=self.path))

        self._reply(answer)

    def do_GET(self) -> None:
        endpoints = self.server.endpoints

        def answer() -> Json:
            if self.path == "/ready":
                return endpoints.ready()
            self._authorize()
            return self._at({"/version": endpoints.newest})()

        self._reply(answer)

    def _authorize(self) -> None:
        self.server.endpoints.authorize(
            self.headers.get("Authorization"), str(self.client_address[0])
        )

    def _at(self, answers: Mapping[str, _T]) -> _T:
        if self.path not in answers:
            raise _Refused(HTTPStatus.NOT_FOUND, f"Unknown path: {self.path}.")
        return answers[self.path]

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
        if len(length) > 12 or int(length) > _MOST_BYTES:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request has more than {_MOST_BYTES} bytes.",
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
            log.exception("assignment_failed", group=self.server.endpoints.group)
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


# ---------------------------------------------------------------- client


class ControllerClient:
    """The group leader's client of the controllers; every call opens a connection.

    `urls` is one address, or several separated by commas. Of several controllers, by URL or by the
    addresses of one name, it asks the one that answered last, then the others, until its timeout.
    It never uses a proxy.
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
        """The longest time that `ask` may take."""
        return 2 * self._timeout_s

    def ask(self, request: AssignmentRequest) -> AssignmentAnswer:
        """The answer of the leading controller; raises ApplyError if there is none."""
        node = self._post("/assignment", request_to(request), self.longest_s, self._timeout_s)
        with _as_violation():
            return answer_from(node)

    def newer(self, group: str, version: int) -> bool:
        """Whether the controller has a newer plan; raises ApplyError if there is no answer."""
        body = {"v": VERSION, "group": group, "version": version}
        node = self._post("/rejoin", body, self._timeout_s, self._glance_s)
        with _as_violation():
            node.version()
            return node.need("rejoin").flag()

    def _post(self, path: str, body: Json, within_s: float, each_s: float) -> Node:
        """Asks one address after another; a single address is asked twice."""
        text = dumps(body).encode()
        addresses = self._addresses()
        if len(addresses) == 1 and path == "/assignment":
            addresses *= 2
        timeout_s = min(each_s, within_s / max(1, len(addresses)))
        silent: dict[str, None] = {}
        not_yet: ApplyError | None = None
        for address in addresses:
            try:
                node = self._answer(address, path, text, timeout_s)
            except _NoPlan as error:
                not_yet = error
            except _NoAnswer as error:
                silent[error.message] = None
            else:
                self._answered = address
                return node
        raise not_yet or _NoAnswer(" ".join(silent))

    def _addresses(self) -> list[_Address]:
        """The addresses of controllers, starting with the one that answered last."""
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

    def _answer(self, address: _Address, path: str, text: bytes, timeout_s: float) -> Node:
        place = address.place
        url = place.url if address.host == place.host else f"{place.url} ({address.host})"
        headers = {"Content-Type": "application/json", "Host": place.netloc}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            with closing(HTTPConnection(address.host, place.port, timeout=timeout_s)) as connection:
                connection.request("POST", place.path + path, text, headers)
                response = connection.getresponse()
                status, content = response.status, response.read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise _NoAnswer(f"The controller at {url} did not answer: {why}.") from error
        with _as_violation():
            node = parse(content, origin=f"{place.url}{path}")
            if status == HTTPStatus.OK:
                return node
            why = node.need("error").text()
        refusal = f"The controller at {url} refused with {status}: {why}"
        if status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused(
                refusal,
                hint="Set the same TRIMTAB_CONTROLLER__TOKEN for consumers and controller.",
            )
        raise (_NoPlan if status == HTTPStatus.SERVICE_UNAVAILABLE else ApplyError)(refusal)


@dataclass(frozen=True, slots=True)
class _Place:
    """A controller's URL, as configured."""

    url: str
    host: str
    port: int
    path: str
    netloc: str


@dataclass(frozen=True, slots=True)
class _Address:
    """One IP address of a controller."""

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
            hint="--controller-url has the form http://HOST:PORT; separate several with commas.",
        )
    return _Place(url, host, port, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2])


class _NoPlan(ApplyError):
    """The controller that was asked has no plan yet."""


class _NoAnswer(ApplyError):
    """There was no answer in time."""


@contextmanager
def _as_violation() -> Iterator[None]:
    """Turns an unreadable answer of the controller into a ProtocolViolation."""
    try:
        yield
    except BadFile as error:
        raise ProtocolViolation(f"The controller's answer cannot be read: {error}") from error
