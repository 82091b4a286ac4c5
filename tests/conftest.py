"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

from tests.failed_waits import FailedWaits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first example pays for imports; a law is about values, not about time.
settings.register_profile("trimtab", deadline=None)
settings.load_profile("trimtab")


# The JVMs of the tests, those of commands too, live for a minute or two: the second compiler and
# parallel collection would cost half of their processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


LONGEST_FIRST = (
    "kafka/test_quickstart.py",
    "kafka/test_demo.py",
    "kafka/test_deployed.py",
    "spark/test_standalone.py",
    "kafka/test_live.py",
)
"""Modules that take minutes; whoever began one of them last would finish long after the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for Spark needs Java; the longest modules come first, whole."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get("/".join(item.path.parts[-2:]), len(rank)))


def pytest_configure(config: pytest.Config) -> None:
    """Tells failed waits from other failures."""
    config.pluginmanager.register(FailedWaits())


@pytest.fixture(autouse=True)
def unconfigured_log() -> None:
    """No test finds the log as the one before has configured it, with a level of its own."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run, with the Kafka connector."""
    from trimtab.local.jars import connector_jars
    from trimtab.spark.session import SparkOptions, build

    session = build(
        SparkOptions(
            app="trimtab-tests",
            master="local[2]",
            jars=connector_jars(),
            conf={
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
            },
            log=tmp_path_factory.mktemp("spark") / "spark.log",
        )
    )
    yield session
    session.stop()
