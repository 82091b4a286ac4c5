"""What a consumer has processed so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a consumer has processed since its start; `records` includes dead letters."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    dead_letters: int = 0
