"""The nearest-rank quantile: always one of the values, never a number in between."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least this share of the values at or below it.

    >>> [quantile([4.0, 1.0, 3.0, 2.0], share) for share in (0.0, 0.5, 0.51, 1.0)]
    [1.0, 2.0, 3.0, 4.0]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share is between 0 and 1, not {share}")
    if not values:
        raise ValueError("there is no quantile without values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
