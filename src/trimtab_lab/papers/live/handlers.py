"""Handlers for experiments: consumers that are limited by bytes, not by records.

Landau's consumers are limited by the network, in bytes/s; on one machine a pause per byte replaces
that. `trimtab consume --handler trimtab_lab.papers.live.handlers:limited_by_bytes` reads the rate
from the environment (`LAB_SERVICE_BYTES_S`), because a handler's only argument is a record.
"""

from __future__ import annotations

import math
import os
from functools import cache

from trimtab.apply.handling import FixedService
from trimtab.errors import ConfigError
from trimtab.model.record import Record

SERVICE_BYTES_S = "LAB_SERVICE_BYTES_S"


def limited_by_bytes(record: Record) -> None:
    """Handles keys, values and headers at the rate in bytes/s that the environment sets."""
    _service(os.environ.get(SERVICE_BYTES_S, ""))(record)


@cache
def _service(rate: str) -> FixedService:
    try:
        bytes_s = float(rate)
    except ValueError:
        bytes_s = math.nan
    if not 0 < bytes_s < math.inf:
        raise ConfigError(
            f"{SERVICE_BYTES_S} must be a rate in bytes/s above 0, not {rate!r}.",
            hint="Set it to a number such as 120000.",
        )
    return FixedService(0.0, per_byte_s=1 / bytes_s)
