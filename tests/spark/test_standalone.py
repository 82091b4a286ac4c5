"""The same job on a real standalone cluster: a master and two workers, each a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.spark.frames import events_frame
from tests.standalone import standalone_cluster
from trimtab.errors import ConfigError
from trimtab.measure.spark.jobs import measure
from trimtab.measure.spark.measure_input import MeasureMethod
from trimtab.measure.spark.spans import from_files
from trimtab.model.codec import measurement_to
from trimtab.spark.session import EXECUTOR_PACKAGES, SparkOptions, _missing, configuration


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone cluster of two workers."""
    with standalone_cluster(tmp_path) as cluster:
        yield cluster.master


def test_a_standalone_cluster_of_two_workers_finds_what_local_mode_finds(
    master: str, spark: SparkSession, tmp_path: Path
) -> None:
    """With sketches, so that the executors really run our package."""
    rng = Random(1)
    rows = [
        (rng.uniform(0, 40), rng.randrange(4), str(int(rng.paretovariate(0.8))).encode())
        for _ in range(4000)
    ]
    path = tmp_path / "events"
    events_frame(spark, rows).repartition(4).write.parquet(str(path))
    command = [sys.executable, "-m", "trimtab.cli.main", "measure", "--events", str(path)]
    command += ["--keys", "lossy", "--threshold", "share:0.01", "--json", "--master", master]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=700m"]
    # The package must come from the zip that we ship, not from the driver's folder.
    environment = os.environ | {"TRIMTAB_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from trimtab.measure.counters import Share
    from trimtab.measure.spark.hot_keys import CountingMode

    given = from_files(spark, events=path, samples=None)
    local = measure(
        given, MeasureMethod(threshold=Share(0.01), mode=CountingMode.LOSSY)
    ).measurement
    assert json.loads(done.stdout) == json.loads(json.dumps(measurement_to(local)))
    finished = [p.read_text() for p in tmp_path.glob("work-*/*/*/stderr")]
    assert len(finished) == 2, "both workers ran an executor"


def test_a_missing_package_is_named() -> None:
    assert _missing(("json", "no_such_package_of_ours")) == ["no_such_package_of_ours"]
    assert _missing(EXECUTOR_PACKAGES) == []


def test_later_sources_of_configuration_win_over_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text("# ours\nspark.app.name   from-file\nspark.x=1\nspark.y 2\n")
    conf = configuration(SparkOptions(properties_file=file, conf={"spark.y": "3"}))
    assert (conf["spark.app.name"], conf["spark.x"], conf["spark.y"]) == ("from-file", "1", "3")


def test_a_properties_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: No such file"):
        configuration(SparkOptions(properties_file=tmp_path / "none.conf"))
