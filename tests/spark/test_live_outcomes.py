"""Receipts judged window by window, as they come: late, twice, broken, and over a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.evaluate.spark.live_outcomes import LiveOutcomeOptions, OutcomesQuery
from trimtab.kafka.topics import OwnTopics
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.windows import MICROS
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.spark import sources
from trimtab.spark.warehouse import Warehouse

HOW = LiveOutcomeOptions(window_s=10.0, sla_s=2.0, delay_s=1.0)


def done(offset: int, finished_s: float, *, waited_s: float = 1.0, group: str = "g") -> Receipt:
    return Receipt(
        run="r",
        group=group,
        topic="t",
        partition=0,
        offset=offset,
        key=None,
        seq=None,
        consumer=0,
        incarnation="i0",
        event_ts=round((finished_s - waited_s) * MICROS),
        started_ts=round((finished_s - 0.5) * MICROS),
        finished_ts=round(finished_s * MICROS),
    )


class Bench:
    """A query with folders of its own, and batches made of receipts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.warehouse = Warehouse(str(folder / "warehouse"))

    def query(self, how: LiveOutcomeOptions = HOW) -> OutcomesQuery:
        found = OutcomesQuery(
            how, self.warehouse, run="live", folder=str(self.folder / "q"), own=OwnTopics()
        )
        found.resume(self.spark)
        return found

    def batch(self, receipts: Iterable[Receipt], *, broken: int = 0) -> DataFrame:
        lines = [dumps(receipt_to(r)) for r in receipts] + ["{"] * broken
        raw = self.spark.createDataFrame([(line.encode(),) for line in lines], "value binary")
        stamped = raw.withColumn("timestamp", F.timestamp_seconds(F.lit(10_000)))
        return stamped.transform(sources.receipt_records)

    def table(self) -> dict[tuple[str, int], tuple[int, float, float | None]]:
        """By group and start of the window: events, p50 in ms, share within the SLA."""
        rows = self.warehouse.read(self.spark, "outcomes").withColumn(
            "start", F.unix_seconds("window_start")
        )
        return {(r.group, r.start): (r.events, r.p50_ms, r.within_sla) for r in rows.collect()}

    def kept(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "q-receipts").glob("*"))


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


def test_a_window_is_judged_once_the_watermark_has_passed_it(bench: Bench) -> None:
    slow = replace(done(1, 9.9, waited_s=10.0), incarnation="i1", started_ts=round(0.4 * MICROS))
    query = bench.query(LiveOutcomeOptions(window_s=10.0, sla_s=2.0, delay_s=1.0))

    query.on_batch(bench.batch([done(0, 4), replace(slow, event_ts=0), done(2, 10.5)]), 0)
    before = bench.table()
    query.on_batch(bench.batch([done(3, 11.5)]), 1)

    assert before == {}
    assert bench.table() == {("g", 0): (2, 5450.0, 0.5)}
    [row] = bench.warehouse.read(bench.spark, "outcomes").collect()
    assert (row.replicas, row.replica_minutes) == (2.0, pytest.approx(2 * 10 / 60))
    assert row.busiest_share == pytest.approx(9.5 / 10)
    told = {"group": "g"}
    assert REGISTRY.get_sample_value("trimtab_outcome_within_sla_ratio", told) == 0.5
    assert REGISTRY.get_sample_value(
        "trimtab_outcome_latency_seconds", {**told, "quantile": "0.5"}
    ) == pytest.approx(5.45)


def test_windows_close_when_all_is_read_and_what_comes_later_or_broken_changes_nothing(
    bench: Bench,
) -> None:
    query = bench.query()
    query.on_batch(bench.batch([done(0, 1)], broken=1), 0)

    query.caught_up(bench.spark, 10 * MICROS)
    early = bench.table()
    query.caught_up(bench.spark, 11 * MICROS)
    query.on_batch(bench.batch([done(1, 2)]), 1)
    query.caught_up(bench.spark, 90 * MICROS)

    assert early == {}
    assert bench.table() == {("g", 0): (1, 1000.0, 1.0)}
    assert bench.kept() == []
    rejects = bench.warehouse.read(bench.spark, "rejects").collect()
    assert [(r.source, r.reason) for r in rejects] == [
        ("trimtab.receipts", "not JSON, or a field of another type")
    ]


def test_groups_are_judged_apart_and_only_what_was_asked_for(bench: Bench) -> None:
    asked = MeasureQuery(
        topics=frozenset({"t"}), groups=frozenset({"g", "other"}), from_ts=0, to_ts=0
    )
    query = bench.query(LiveOutcomeOptions(window_s=10.0, asked=asked))
    of_groups = [done(0, 1), done(0, 2, group="other"), done(0, 3, group="third")]

    query.on_batch(bench.batch([*of_groups, replace(done(1, 4), topic="u")]), 0)
    query.caught_up(bench.spark, 60 * MICROS)

    assert bench.table() == {("g", 0): (1, 1000.0, None), ("other", 0): (1, 1000.0, None)}


def test_a_restart_judges_what_was_kept_and_a_repeated_batch_once(bench: Bench) -> None:
    first = bench.query()
    first.on_batch(bench.batch([done(0, 1), done(1, 12)]), 0)
    first.on_batch(bench.batch([done(2, 13)]), 1)

    second = bench.query()
    second.on_batch(bench.batch([done(2, 13)]), 1)
    second.caught_up(bench.spark, 60 * MICROS)

    assert bench.table() == {("g", 0): (1, 1000.0, 1.0), ("g", 10): (2, 1000.0, 1.0)}
    assert bench.kept() == []
