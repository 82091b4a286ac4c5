"""What a service tells while it works, to a terminal, a web page or a test."""

from __future__ import annotations

from typing import Protocol


class ProgressListener(Protocol):
    """Is told how far the work has come, and what is worth knowing before its result is there."""

    def started(self, what: str) -> None:
        """Work has begun that goes on until it is stopped."""
        ...

    def progress(self, what: str, done: float, total: float | None) -> None:
        """So many steps of `total` are done; `total` is None while it is not known."""
        ...

    def note(self, line: str) -> None:
        """Something to know."""
        ...

    def warning(self, line: str) -> None:
        """Something that makes the result doubtful."""
        ...


class NoListener:
    """Ignores everything it is told."""

    def started(self, what: str) -> None:
        """Ignores it."""

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Ignores it."""

    def note(self, line: str) -> None:
        """Ignores it."""

    def warning(self, line: str) -> None:
        """Ignores it."""


NO_LISTENER = NoListener()
