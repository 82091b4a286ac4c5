"""A restart finds the folders of the measurement before it."""

from __future__ import annotations

import os
import subprocess
import sys

_SCRIPT = """
from unittest.mock import MagicMock
from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark.continuous import JobIntervals, Results, _Job
from trimtab.measure.spark.spans import MeasureQuery
admin = MagicMock()
admin.cluster.return_value.cluster = "c"
asked = MeasureQuery(groups=frozenset("abcdef"), from_ts=0, to_ts=1)
results = Results(outlet=MagicMock(), warehouse=MagicMock(), checkpoint="/nowhere")
job = _Job(MagicMock(), admin, Cluster("127.0.0.1:1"), asked, results)
rates = job.rates(JobIntervals(window_s=30, min_span_s=3, trigger_s=0.2))
print(rates.on_executors.args[-1].marks.root)
"""


def folder(seed: str) -> str:
    env = os.environ | {"PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=env, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def test_the_folder_of_several_groups_does_not_depend_on_the_process() -> None:
    """The order of a set of texts is another one in every process."""
    first, second = folder("1"), folder("2")
    assert first == second
    assert first.startswith("/nowhere/rates-")
