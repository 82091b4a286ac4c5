"""Tables of closed windows: what failed is written again, and nothing is in a table twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.kafka.cluster import Cluster
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.spark.streaming_queries import QueryOutput
from trimtab.measure.spark.window_tables import WindowTables
from trimtab.spark.warehouse import Warehouse

SECOND = 1_000_000
MIDNIGHT = 86_400 * SECOND
WINDOW = 30 * SECOND


@dataclass(frozen=True)
class FullDisk(Warehouse):
    """A warehouse that cannot write rates a few times."""

    failures: list[OSError] = field(default_factory=list)

    def write(self, frame: DataFrame, table: str, *, run: str) -> None:
        if table == "partition_rates" and self.failures:
            raise self.failures.pop()
        super().write(frame, table, run=run)


class Tables(WindowTables):
    """Tables of a log that is given."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, folder: Path) -> None:
        output = QueryOutput(
            outlet=MagicMock(), sink="rates", warehouse=warehouse, run="r", folder=str(folder / "q")
        )
        asked = MeasureQuery(from_ts=0, to_ts=1)
        cluster = Cluster("127.0.0.1:1")
        super().__init__(spark, MagicMock(), cluster, asked, output, window_s=30, min_span_s=3)
        self.log: list[tuple[int, bytes]] = []

    def telemetry(self, *, from_ts: int, to_ts: int) -> DataFrame | None:
        log = [(0, offset, *record) for offset, record in enumerate(self.log)]
        rows = self._session.createDataFrame(
            log, "partition int, offset long, micros long, value binary"
        )
        return rows.withColumn("timestamp", F.timestamp_micros("micros"))

    def sample(self, ts: int) -> None:
        columns: dict[str, Any] = {"partition": [0], "leader": [1], "log_bytes": [ts]}
        columns |= {"end_offset": [ts], "committed": {"g": [0]}}
        value = {"v": 2, "sample_id": "s", "ts": ts, "topic": "t", **columns}
        self.log.append((ts, json.dumps(value).encode()))


@pytest.mark.parametrize("start", [MIDNIGHT, MIDNIGHT - WINDOW], ids=["one day", "midnight"])
def test_a_span_that_failed_half_way_is_in_no_table_twice(
    spark: SparkSession, tmp_path: Path, start: int
) -> None:
    warehouse = FullDisk(str(tmp_path / "warehouse"), [OSError("no space left")])
    tables = Tables(spark, warehouse, tmp_path)
    for second in range(0, 60, 5):
        tables.sample(start + second * SECOND)

    with pytest.raises(OSError, match="no space"):
        tables.write(start, start + WINDOW)
    assert tables.write(start, start + 2 * WINDOW)

    lags = warehouse.read(spark, "lag").select(F.unix_micros("ts")).collect()
    assert [ts for (ts,) in lags] == [start + 55 * SECOND]
    rates = warehouse.read(spark, "partition_rates").select(F.unix_micros("window_start"))
    assert sorted(ts for (ts,) in rates.collect()) == [start, start + WINDOW]


def test_rejects_that_the_driver_has_written_are_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It ended in the middle of a window: the tables of the window begin before its last record."""
    for name, text in (("commits/0", "v1\n{}"), ("offsets/0", 'v1\n{}\n{"telemetry":{"0":2}}')):
        path = tmp_path / "q" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    tables = Tables(spark, warehouse, tmp_path)
    tables.log += [(WINDOW + n, f"bad {n}".encode()) for n in range(4)]
    tables.sample(WINDOW + 5)
    tables.log.append((2 * WINDOW, b"bad 5"))

    assert tables.write(WINDOW, 2 * WINDOW)
    assert sorted(r.raw for r in warehouse.read(spark, "rejects").collect()) == ["bad 2", "bad 3"]
    assert tables.write(2 * WINDOW, 3 * WINDOW)
    assert warehouse.read(spark, "rejects").count() == 3
