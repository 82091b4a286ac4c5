"""Requests to brokers: to any of them, or to many at once.

Promise  Requests to several brokers are sent in parallel, and their answers are independent: a
         dead or hung broker loses only its own answers and delays by at most `patience_s`.
         Wrong credentials and missing authorization are errors at once.
Cost     One request per broker and call. Connections are reused.

kafka-python's admin client asks brokers one after another and fails if one of them fails, so
requests go through its connection manager, which is not public. Only this module uses it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors as theirs
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_authentication, is_retriable, kafka_errors, reason_of
from trimtab.kafka.retry import attempts
from trimtab.model.cluster import BrokerId
from trimtab.model.timeouts import milliseconds
from trimtab.observe.logging import library_log

log = library_log()

for _wire in ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_wire).setLevel(logging.INFO)  # at DEBUG they print passwords


def error_of(code: int) -> theirs.KafkaError | None:
    """The exception for an error code of a response; None for success."""
    kind = theirs.for_code(code)
    return None if kind is theirs.NoError else kind()


class Connections:
    """Connections to all brokers; sends requests to any of them, or to many in parallel."""

    def __init__(
        self,
        cluster: Cluster,
        connect_within_s: float,
        patience_s: float,
    ) -> None:
        self.patience_s = patience_s
        self._pending: dict[int, Any] = {}  # requests not yet answered
        self._missing: set[int] = set()  # brokers that did not answer when last asked
        opened: list[_Client] = []

        def client(**config: Any) -> _Client:
            opened.append(_Client(**config))
            return opened[-1]

        config = {
            "client_id": "trimtab-admin",
            "request_timeout_ms": max(10_000, milliseconds(patience_s)),
            "reconnect_backoff_max_ms": 1_000,
            **cluster.for_kafka_python(),
            "bootstrap_timeout_ms": milliseconds(connect_within_s),
            "kafka_client": client,
        }
        with kafka_errors(f"connecting to {cluster.servers}"):
            try:
                self.client = KafkaAdminClient(**config)
            except Exception as error:
                # The repeated failure says more than the timeout that it led to.
                known = next((c.failure for c in opened if c.failure is not None), None)
                for half_open in opened:
                    half_open.shut_down()
                if isinstance(error, ValueError):
                    raise ConfigError(
                        f"Invalid bootstrap servers: {cluster.servers}.",
                        hint="--bootstrap-server expects HOST:PORT,HOST:PORT,…",
                    ) from error
                if known is not None and isinstance(error, theirs.KafkaTimeoutError):
                    raise known from error
                raise
        self._manager: Any = opened[0]._manager

    def close(self) -> None:
        """Closes all connections."""
        self.client.close()

    def ask_any(self, request: Callable[[], Any]) -> Any:
        """Sends a request to one broker after another until one answers."""
        error: Exception = theirs.KafkaConnectionError("not connected to any broker")
        for _ in attempts(within_s=2 * self.patience_s):
            node = self._manager.least_loaded_node()
            answers, failures = self._ask({} if node is None else {node: request})
            if answers:
                return answers[node]
            error = failures.get(node, theirs.KafkaConnectionError("not connected to any broker"))
            if not is_retriable(error):
                break
        raise error

    def ask_each(
        self, requests: Mapping[BrokerId, Callable[[], Any]], what: str
    ) -> dict[BrokerId, Any]:
        """Sends requests in parallel; brokers that do not answer are logged and left out."""
        answers, failures = self._ask(requests)
        for broker, error in sorted(failures.items()):
            if not is_retriable(error):
                raise error
            if broker not in self._missing:  # logged once, not at every request
                log.warning("broker_did_not_answer", broker=broker, to=what, why=reason_of(error))
        for broker in sorted(answers.keys() & self._missing):
            log.warning("broker_answered_again", broker=broker)
        self._missing = (self._missing | failures.keys()) - answers.keys()
        return {BrokerId(broker): answer for broker, answer in answers.items()}

    def _ask(
        self, requests: Mapping[Any, Callable[[], Any]]
    ) -> tuple[dict[Any, Any], dict[Any, Exception]]:
        return self._manager.run(self._ask_in_parallel, requests)  # type: ignore[no-any-return]

    async def _ask_in_parallel(
        self, requests: Mapping[Any, Callable[[], Any]]
    ) -> tuple[dict[Any, Any], dict[Any, Exception]]:
        answers: dict[Any, Any] = {}
        failures: dict[Any, Exception] = {}
        sent = {}
        for broker, request in requests.items():
            pending = self._pending.get(broker)
            if pending is not None and not pending.is_done:
                failures[broker] = theirs.KafkaTimeoutError("an earlier request is unanswered")
                continue
            self._pending.pop(broker, None)
            try:
                sent[broker] = self._manager.send(request(), node_id=broker)
            except theirs.KafkaError as error:
                failures[broker] = error
                # The broker may have joined after the client's last metadata update.
                self._manager.cluster.request_update()
        until = time.monotonic() + self.patience_s
        for broker, future in sent.items():
            left_ms = max(0.0, until - time.monotonic()) * 1000
            try:
                answers[broker] = await self._manager.wait_for(future, left_ms)
            except theirs.KafkaError as error:
                failures[broker] = error
                if not future.is_done:
                    self._pending[broker] = future
                    failures[broker] = theirs.KafkaTimeoutError(f"silent for {self.patience_s:g} s")
        return answers, failures


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Keeps the error of the first connections, and fails at once on wrong credentials."""

    failure: Exception | None = None

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        receive = transport._sock_recv

        def data_before_error() -> tuple[bytes, Exception | None]:
            # A broker sends its reason and closes; the library would drop the reason.
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = data_before_error
        return transport

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        if self.cluster.is_bootstrap(node_id):
            if self.failure is not None and is_authentication(self.failure):
                raise self.failure
            connection = super().get_connection(node_id, **options)
            connection.init_future.add_errback(self._remember)
            return connection
        return super().get_connection(node_id, **options)

    def _remember(self, error: Exception) -> None:
        self.failure = error


class _Client(KafkaNetClient):  # type: ignore[misc]
    """The client's network side with our connection manager."""

    def __init__(self, **config: Any) -> None:
        net = NetworkSelector(**config)
        super().__init__(net=net, manager=_Manager(net, **config), **config)

    @property
    def failure(self) -> Exception | None:
        failure: Exception | None = self._manager.failure
        return failure

    def shut_down(self) -> None:
        """Stops the thread of a client that could not connect."""
        self._manager.close()
        self._net.stop()
        self._net.close()
