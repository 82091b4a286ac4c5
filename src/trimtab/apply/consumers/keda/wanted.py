"""How many consumers a group should have, as the scaler is told it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """The newest decision for a group; None if there is no fresh one, and then why."""

    consumers: int | None
    why: str = ""
