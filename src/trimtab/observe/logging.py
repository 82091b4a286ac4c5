"""How the doors log: structured events in the past tense, to stderr; JSON when nobody watches.

A program that uses our producers and consumers, and has not configured structlog, gets their events
through Python's own logging, under the name `trimtab`: nothing of ours is ever printed to its
stdout.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog


def configure(*, verbose: bool = False) -> None:
    """Sets logging up for a process; `verbose` lets the Kafka clients speak too."""
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
        # Looked up at each event, so that a stderr replaced later is the one written to. A line
        # and its end in one write: the clients' threads write there, too.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    clients: Any = logging.getLogger("kafka"), logging.getLogger("librdkafka")
    for client in clients:
        # Not DEBUG: at that level a client prints its whole configuration.
        client.setLevel(logging.INFO if verbose else logging.CRITICAL)
        client.handlers = [logging.StreamHandler()] if verbose else [logging.NullHandler()]
        client.propagate = False


class LibraryLog:
    """Says events where structlog was told to, or else through Python's logging."""

    def debug(self, event: str, **facts: Any) -> None:
        """Something for those who look for a fault."""
        self._say("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Something that happened."""
        self._say("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Something that should be looked at."""
        self._say("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Something that went wrong."""
        self._say("error", event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Something that went wrong, with where."""
        self._say("exception", event, facts)

    @staticmethod
    def _say(level: str, event: str, facts: Mapping[str, Any]) -> None:
        if structlog.is_configured():
            getattr(structlog.get_logger(), level)(event, **facts)
            return
        told = " ".join([event, *(f"{name}={value!r}" for name, value in facts.items())])
        getattr(logging.getLogger("trimtab"), level)("%s", told)


def library_log() -> LibraryLog:
    """The log of a module that other people's programs use."""
    return LibraryLog()
