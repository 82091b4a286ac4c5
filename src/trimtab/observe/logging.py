"""How the doors log: structured events in the past tense, to stderr; JSON when nobody watches."""

from __future__ import annotations

import logging
import sys
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
