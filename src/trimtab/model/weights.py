"""How much of the keyless records each broker should get: what steering tells producers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights by broker, of one moment; only their ratios matter.

    Attributes:
        ts: When they were made, microseconds since 1970 UTC.
        valid_s: After so long nobody knows any more: all brokers count the same.
        weights: 0 is a broker to leave alone; one that is not named has none of its own.
    """

    ts: int
    valid_s: float
    weights: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.valid_s) and self.valid_s > 0):
            raise ValueError(f"weights hold for a positive time, not {self.valid_s} s")
        for broker, weight in self.weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"broker {broker} cannot weigh {weight}")
