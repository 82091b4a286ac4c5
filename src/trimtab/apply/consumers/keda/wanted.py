"""How many consumers a group should have, as the scaler reports it to KEDA."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WantedConsumers:
    """The number of consumers by the newest decision; None without a fresh one, and then `why`."""

    consumers: int | None
    why: str = ""
