"""The rates query in either place, and the move to executors when a cluster has grown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from trimtab.measure.kafka.rates_follower import RatesFollower
from trimtab.measure.spark.streaming_queries import TEMPORARY_ERRORS, SupervisedQuery
from trimtab.measure.spark.window_tables import WindowTables
from trimtab.model.rates_place import RatesPlace, chosen_place
from trimtab.spark.session import cause_of

log = structlog.get_logger()

_LOOK_EVERY = 60
"""Ticks between two looks at the number of partitions."""


class ContinuousQuery(Protocol):
    """A query that runs until it is stopped."""

    def tick(self) -> None:
        """Checks the query; call it about once a second."""
        ...

    def stop(self) -> None:
        """Stops the query."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutorQuery:
    """Rates on executors, the tables of closed windows, and the metrics."""

    query: SupervisedQuery
    tables: WindowTables
    follower: RatesFollower

    def tick(self) -> None:
        """Checks the query and writes windows that have closed."""
        self.query.tick()
        self.tables.tick()

    def stop(self) -> None:
        """Stops the query and waits for the tables."""
        self.query.stop()
        self.tables.stop()
        self.follower.stop()


@dataclass(slots=True)
class RatesJob:
    """Rates in the place that the number of partitions asks for."""

    wanted: RatesPlace
    partitions: Callable[[], int]
    on_driver: Callable[[], ContinuousQuery]
    on_executors: Callable[[], ContinuousQuery]
    is_old_telemetry: Callable[[], bool]
    place: RatesPlace | None = None
    _running: ContinuousQuery | None = None
    _ticks: int = 0

    @property
    def published_by_executors(self) -> int:
        """Records of rates that executors have published so far."""
        return self._running.follower.records if isinstance(self._running, ExecutorQuery) else 0

    def tick(self) -> None:
        """Checks the query; once a minute also whether it runs in the right place."""
        if self._ticks % _LOOK_EVERY == 0:
            self._look()
        self._ticks += 1
        if self._running is not None:
            self._running.tick()

    def stop(self) -> None:
        """Stops the query."""
        if self._running is not None:
            self._running.stop()

    def _look(self) -> None:
        """Chooses the place; a query that runs goes on if the cluster cannot be asked."""
        try:
            self._choose()
        except TEMPORARY_ERRORS as error:
            if self._running is None:
                raise
            log.warning("rates_place_not_checked", why=cause_of(error))

    def _choose(self) -> None:
        """Starts the query in its place; never moves it back to the driver."""
        if self.place is RatesPlace.EXECUTORS:
            if self.is_old_telemetry():
                log.warning(
                    "telemetry_of_an_older_monitor",
                    hint="Executors do not read it, so its topics have no rates. Restart the "
                    "monitor with this version.",
                )
            return
        partitions = self.partitions()
        place = chosen_place(self.wanted, partitions)
        if place is RatesPlace.EXECUTORS and self.is_old_telemetry():
            log.warning(
                "telemetry_of_an_older_monitor",
                hint="Rates are computed on the driver. Restart the monitor with this version.",
            )
            place = RatesPlace.DRIVER
        if place is self.place:
            return
        log.info("rates_place_chosen", place=str(place), partitions=partitions)
        if self._running is not None:
            self._running.stop()
            self._running = None
        self._running = self.on_driver() if place is RatesPlace.DRIVER else self.on_executors()
        self.place = place
