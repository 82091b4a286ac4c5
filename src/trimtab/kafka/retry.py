"""Retry settings: number of attempts and the pauses between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The total number of attempts, and pauses that double up to a maximum.

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
        for pause_s, _ in zip(self.endless_pauses(), range(self.attempts - 1), strict=False):
            yield pause_s

    def endless_pauses(self) -> Iterator[float]:
        """The same pauses, without a limit on the number of attempts."""
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, self.most_s)
