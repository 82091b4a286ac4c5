"""Rates are computed where the number of partitions asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from trimtab.errors import BrokerUnavailable
from trimtab.measure.spark.rates_job import RatesJob
from trimtab.model.rates_place import ON_EXECUTORS_FROM, RatesPlace


@dataclass
class Query:
    ticks: int = 0
    stopped: bool = False

    def tick(self) -> None:
        self.ticks += 1

    def stop(self) -> None:
        self.stopped = True


@dataclass
class World:
    partitions: int
    old_telemetry: bool = False
    is_away: bool = False
    driver: list[Query] = field(default_factory=list)
    executors: list[Query] = field(default_factory=list)

    def counted(self) -> int:
        if self.is_away:
            raise BrokerUnavailable("no broker answers")
        return self.partitions

    def job(self, wanted: RatesPlace = RatesPlace.AUTO) -> RatesJob:
        def begun(queries: list[Query]) -> Query:
            queries.append(Query())
            return queries[-1]

        return RatesJob(
            wanted=wanted,
            partitions=self.counted,
            on_driver=lambda: begun(self.driver),
            on_executors=lambda: begun(self.executors),
            is_old_telemetry=lambda: self.old_telemetry,
        )


@pytest.mark.parametrize(
    ("wanted", "partitions", "place"),
    [
        (RatesPlace.AUTO, 0, RatesPlace.DRIVER),
        (RatesPlace.AUTO, ON_EXECUTORS_FROM - 1, RatesPlace.DRIVER),
        (RatesPlace.AUTO, ON_EXECUTORS_FROM, RatesPlace.EXECUTORS),
        (RatesPlace.DRIVER, 10**6, RatesPlace.DRIVER),
        (RatesPlace.EXECUTORS, 1, RatesPlace.EXECUTORS),
    ],
)
def test_the_place_follows_the_setting_and_the_number_of_partitions(
    wanted: RatesPlace, partitions: int, place: RatesPlace
) -> None:
    world = World(partitions)
    job = world.job(wanted)
    job.tick()
    assert job.place is place
    assert len(world.driver) == (place is RatesPlace.DRIVER)
    assert len(world.executors) == (place is RatesPlace.EXECUTORS)


def test_a_cluster_that_grows_is_moved_to_executors_once_and_stays_there() -> None:
    world = World(partitions=50)
    job = world.job()
    for _ in range(30):
        job.tick()
    world.partitions = ON_EXECUTORS_FROM
    for _ in range(60):
        job.tick()
    world.partitions = 50
    for _ in range(120):
        job.tick()
    (driver,), (executors,) = world.driver, world.executors
    assert driver.stopped
    assert not executors.stopped
    assert executors.ticks > 100


def test_telemetry_of_an_older_monitor_is_read_on_the_driver_until_it_is_newer() -> None:
    world = World(partitions=ON_EXECUTORS_FROM, old_telemetry=True)
    job = world.job()
    job.tick()
    assert str(job.place) == "driver"
    world.old_telemetry = False
    for _ in range(60):
        job.tick()
    assert str(job.place) == "executors"


def test_telemetry_that_executors_do_not_read_is_told_while_they_run() -> None:
    """A monitor of an older version was started later: its topics have no rates."""
    world = World(partitions=ON_EXECUTORS_FROM)
    job = world.job()
    job.tick()
    world.old_telemetry = True
    with capture_logs() as logs:
        for _ in range(60):
            job.tick()
    assert [line["event"] for line in logs] == ["telemetry_of_an_older_monitor"]
    assert not world.executors[0].stopped


def test_stopping_a_job_that_never_ran_is_no_error() -> None:
    World(partitions=1).job().stop()


def test_a_cluster_that_cannot_be_asked_does_not_end_a_query_that_runs() -> None:
    world = World(partitions=50)
    job = world.job()
    job.tick()
    world.is_away = True
    for _ in range(120):
        job.tick()
    assert world.driver[0].ticks == 121
    assert not world.driver[0].stopped


def test_a_job_that_cannot_begin_says_so() -> None:
    world = World(partitions=50, is_away=True)
    with pytest.raises(BrokerUnavailable):
        world.job().tick()
