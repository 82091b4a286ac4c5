"""Logging: structured events in the past tense to stderr; JSON if stderr is not a terminal.

In a program that uses our producers and consumers without configuring structlog, events go to
Python's own logging, under the name `trimtab`; nothing is printed to stdout.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog


def configure(*, verbose: bool = False) -> None:
    """Configures logging of a process; `verbose` includes the logs of the Kafka clients."""
    watched = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if watched else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.INFO if verbose else logging.WARNING
        ),
        # stderr is looked up at each event, in case it is replaced later. The line and its end
        # are one write, since the clients' threads write there, too.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    clients: Any = logging.getLogger("kafka"), logging.getLogger("librdkafka")
    for client in clients:
        # Not DEBUG: at that level a client logs its whole configuration.
        client.setLevel(logging.INFO if verbose else logging.CRITICAL)
        client.handlers = [logging.StreamHandler()] if verbose else [logging.NullHandler()]
        client.propagate = False


class LibraryLog:
    """Logs events with structlog if it is configured, else with Python's logging."""

    def debug(self, event: str, **facts: Any) -> None:
        """Logs an event for debugging."""
        self._log("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Logs an event."""
        self._log("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Logs an event that needs attention."""
        self._log("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Logs an error."""
        self._log("error", event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Logs an error with its stack trace."""
        self._log("exception", event, facts)

    @staticmethod
    def _log(level: str, event: str, facts: Mapping[str, Any]) -> None:
        if structlog.is_configured():
            getattr(structlog.get_logger(), level)(event, **facts)
            return
        text = " ".join([event, *(f"{name}={value!r}" for name, value in facts.items())])
        getattr(logging.getLogger("trimtab"), level)("%s", text)


def library_log() -> LibraryLog:
    """The log of a module that users' programs import."""
    return LibraryLog()
