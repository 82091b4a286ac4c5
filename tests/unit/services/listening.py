"""A listener that keeps what a service tells."""

from __future__ import annotations


class Told:
    """Everything that was told, in order."""

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.steps: list[tuple[str, float, float | None]] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def started(self, what: str) -> None:
        self.starts.append(what)

    def progress(self, what: str, done: float, total: float | None) -> None:
        self.steps.append((what, done, total))

    def note(self, line: str) -> None:
        self.notes.append(line)

    def warning(self, line: str) -> None:
        self.warnings.append(line)
