"""What a trigger of the rates query publishes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import DataFrame

from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.live_rates import RatesQuery
from trimtab.measure.spark.streaming_queries import QueryOutput
from trimtab.spark.warehouse import Warehouse
from trimtab.testing.fakes import FakePublisher


def test_the_rates_of_a_large_topic_are_published_in_parts(tmp_path: Path) -> None:
    publisher = FakePublisher()
    ends = QueryOutput(
        outlet=publisher,
        sink="rates",
        warehouse=Warehouse(str(tmp_path)),
        run="r",
        folder=str(tmp_path / "q"),
    )
    query = RatesQuery(SampleRing(window_s=30, min_span_s=0), ends, source="telemetry")
    numbers = range(10_000)
    columns = ("leader", "log_bytes", "end_offset")
    value: dict[str, Any] = {"v": 2, "sample_id": "s", "ts": 1, "topic": "t"}
    value |= {"partition": [*numbers], **dict.fromkeys(columns, [1] * len(numbers))}
    value |= {"committed": {"g": [1] * len(numbers)}}
    text = bytearray(json.dumps(value).encode())  # as Spark collects it
    rows = [SimpleNamespace(partition=0, offset=0, arrived=1, value=text)]
    batch = SimpleNamespace(sparkSession=None, collect=lambda: rows)

    query.on_batch(cast("DataFrame", batch), 0)
    query.finish()

    parts = [json.loads(value) for _, value in publisher.records]
    assert [(p["part"], p["of"]) for p in parts] == [(0, 2), (1, 2)]
    assert [n for p in parts for n in p["partitions"]] == [str(n) for n in range(10_000)]
