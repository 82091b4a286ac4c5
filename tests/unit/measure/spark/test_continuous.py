"""A restart finds the folders of the measurement before it; two at once do not share them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark.continuous import JobIntervals, Results, _Job, run_continuously
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.spark.streaming_queries import Stream, SupervisedQuery
from trimtab.spark.folder_lock import used_alone

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


def job(folder: str, *, application: str = "app-1") -> _Job:
    session, admin = MagicMock(), MagicMock()
    session.sparkContext.applicationId = application
    admin.cluster.return_value.cluster = "c"
    results = Results(outlet=MagicMock(), warehouse=MagicMock(), checkpoint=folder)
    return _Job(session, admin, Cluster("127.0.0.1:1"), MeasureQuery(from_ts=0, to_ts=1), results)


BEAT = JobIntervals(window_s=30, min_span_s=3, trigger_s=0.2)


@pytest.mark.parametrize("which", ["rates", "another query"])
def test_a_second_measurement_with_the_same_checkpoints_is_refused(
    tmp_path: Path, which: str
) -> None:
    """Before it has touched anything: at its start it would delete what the first one needs."""
    one, stop = job(str(tmp_path)), threading.Event()
    stop.set()
    more = SupervisedQuery("outcomes", MagicMock(), folder=str(tmp_path / "outcomes"))
    folder = one.folders(BEAT, None, [more])[0 if which == "rates" else 1]

    def run() -> None:
        run_continuously(
            *(one.session, one.admin, one.cluster, one.asked),
            beat=BEAT,
            keys=None,
            results=one.results,
            stop=stop,
            more=[more],
        )

    run()
    with used_alone(folder), pytest.raises(ConfigError, match="already uses"):
        run()
    run()


def test_two_applications_never_use_the_same_rings() -> None:
    first, second = (job("/nowhere", application=name) for name in ("app-1", "app-2"))
    assert first.task(BEAT, "i").identity != second.task(BEAT, "i").identity


def test_topics_beside_a_keyed_topic_are_not_counted_and_headers_are_read_only_for_it() -> None:
    """`includeHeaders` costs time, so it is asked for only where there are markers."""
    names = ("orders", "orders.in", "orders.assign", "orders.state.pay", "bills", "__offsets")
    made = job("/nowhere")

    def stream(*there: str, **asked: Any) -> Stream:
        made.admin.topics.return_value = [MagicMock(topic=name) for name in there]  # type: ignore[attr-defined]
        query = MeasureQuery(from_ts=0, to_ts=1, **asked)
        return replace(made, asked=query)._keys_stream("/nowhere/keys", 10.0)

    def read(found: Stream) -> list[str]:
        return [name for name in names if re.search(found.pattern, name)]

    assert read(stream(*names)) == ["orders", "orders.in", "bills"]
    assert stream(*names).options == {"includeHeaders": "true"}
    assert read(stream("orders", "bills")) == [name for name in names if name != "__offsets"]
    assert stream("orders", "bills").options == {}
    assert stream(*names, topics=frozenset({"bills"})).options == {}
    named = stream(*names, topics=frozenset({"orders.state.pay"}))
    assert read(named) == ["orders.state.pay"]
