"""Progress reports of services, to a terminal, a web page or a test."""

from __future__ import annotations

from typing import Protocol


class ProgressListener(Protocol):
    """Receives the progress, notes and warnings of a service before its result."""

    def started(self, what: str) -> None:
        """Work has started that runs until it is stopped."""
        ...

    def progress(self, what: str, done: float, total: float | None) -> None:
        """`done` steps of `total` are done; `total` is None while unknown."""
        ...

    def note(self, line: str) -> None:
        """Information for the user."""
        ...

    def warning(self, line: str) -> None:
        """Something that makes the result doubtful."""
        ...


class NoListener:
    """Ignores all reports."""

    def started(self, what: str) -> None:
        """Ignores it."""

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Ignores it."""

    def note(self, line: str) -> None:
        """Ignores it."""

    def warning(self, line: str) -> None:
        """Ignores it."""


NO_LISTENER = NoListener()
