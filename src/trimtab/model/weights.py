"""The share of keyless records for each broker, as steering publishes it to producers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from trimtab.model.wire import REQUIRED, TIDY, Amount, Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights by broker at one time; only their ratios matter.

    Attributes:
        ts: When they were computed, in microseconds since 1970 UTC.
        valid_s: How long they are valid; afterwards all brokers have the same weight.
        weights: 0 means send nothing to this broker; brokers not listed have no own weight.
    """

    ts: Count
    valid_s: Annotated[Positive, TIDY]
    weights: Annotated[Mapping[int, Amount], REQUIRED] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.valid_s) and self.valid_s > 0):
            raise ValueError(f"valid_s must be positive, not {self.valid_s}")
        for broker, weight in self.weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"broker {broker}: invalid weight {weight}")
