"""The cost of a choice: both sides are asked about the same topic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NoReturn

from kafka import TopicPartition
from kafka.partitioner import DefaultPartitioner

from trimtab.plan.records.registry import OURS
from trimtab_lab.benchmarks.benchmark import BenchContext
from trimtab_lab.benchmarks.kafka.own_partitioner import metadata
from trimtab_lab.benchmarks.routing import choose_3, choose_12


def _no_spark() -> NoReturn:
    raise AssertionError("this benchmark does without Spark")


def test_the_rival_knows_the_topic_as_brokers_would_tell_it() -> None:
    leaders = {0: 1, 1: 2, 2: 7}

    known = metadata("t", leaders)

    assert known.available_partitions_for_topic("t") == {0, 1, 2}
    assert {p: known.leader_for_partition(TopicPartition("t", p)) for p in leaders} == leaders
    drawn = Counter(
        DefaultPartitioner().partition("t", None, None, b"v", b"v", known) for _ in range(300)
    )
    assert set(drawn) == set(leaders)


def test_the_cost_of_each_of_ours_is_told_and_the_dearest_is_shown(tmp_path: Path) -> None:
    stage = BenchContext(spark=_no_spark, home=tmp_path, cache=tmp_path)

    for run, partitions in ((choose_3, 3), (choose_12, 12)):
        sides = run(stage, 200, 1)
        costs = sides.settings["per_record_us"]
        assert sides.settings["partitions"] == partitions
        assert list(costs) == list(sides.settings["per_batch_us"]) == list(OURS)
        assert costs[sides.settings["dearest"]] == max(costs.values())
