"""Where the continuous job computes rates: on the driver, or on executors for large clusters."""

from __future__ import annotations

from enum import StrEnum

ON_EXECUTORS_FROM = 2000
"""Partitions from which rates are computed on executors; see decision 56 for the measurements."""


class RatesPlace(StrEnum):
    """Where rates are computed; `auto` chooses by the number of partitions."""

    AUTO = "auto"
    DRIVER = "driver"
    EXECUTORS = "executors"


def chosen_place(wanted: RatesPlace, partitions: int) -> RatesPlace:
    """The driver or the executors.

    >>> chosen_place(RatesPlace.AUTO, 50), chosen_place(RatesPlace.AUTO, 10_000)
    (<RatesPlace.DRIVER: 'driver'>, <RatesPlace.EXECUTORS: 'executors'>)
    """
    if wanted is not RatesPlace.AUTO:
        return wanted
    return RatesPlace.EXECUTORS if partitions >= ON_EXECUTORS_FROM else RatesPlace.DRIVER
