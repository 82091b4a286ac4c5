"""How often something is tried, and how long the pauses in between are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a handler is tried in all, and how the pauses in between grow.

    >>> list(Retry(attempts=5, first_s=1.0, most_s=3.0).pauses())
    [1.0, 2.0, 3.0, 3.0]
    """

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_s < 0 or self.most_s < self.first_s:
            raise ValueError(f"invalid retry settings: {self}")

    def pauses(self) -> Iterator[float]:
        """The pause before each further attempt, in seconds."""
        for pause_s, _ in zip(self.for_ever(), range(self.attempts - 1), strict=False):
            yield pause_s

    def for_ever(self) -> Iterator[float]:
        """The same pauses, without an end."""
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, self.most_s)
