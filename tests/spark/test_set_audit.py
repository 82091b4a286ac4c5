"""The set audit in Spark finds what the pure one finds."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.laws.key_histories import SPOILT, legal_history, spoil
from trimtab.evaluate.key_history import (
    KeyHistory,
    NumberedKey,
    SetFinding,
    SetFindingKind,
    SetMarker,
    SetReceipt,
    SetRule,
)
from trimtab.evaluate.key_sets import SetAuditRules, audit_sets
from trimtab.evaluate.spark.set_audit import set_audit
from trimtab.measure.spark.measure_input import as_time

_RECEIPTS = (
    "key binary, seq long, set_id long, partition int, offset long, chain string, run string, "
    "consumer int, incarnation string, started_ts timestamp, finished_ts timestamp, "
    "log_partition int, log_offset long"
)
_MARKERS = (
    "kind string, key binary, partition int, offset long, shard int, gen long, set_id long, "
    "old_set long"
)
_ON_SPARK = {SetRule.V1, SetRule.V2, SetRule.V5, SetRule.V6, SetRule.OWNERS}


def _scenes() -> KeyHistory:
    """Legal histories and spoilt ones, each with keys and a gateway shard of its own."""
    numbers: dict[bytes, tuple[int, ...]] = {}
    receipts: list[SetReceipt] = []
    markers: list[SetMarker] = []
    dead: set[NumberedKey] = set()
    for scene, how in enumerate([None] * 10 + [*SPOILT, *SPOILT]):
        rng = Random(scene)
        history: KeyHistory | None = legal_history(rng, steps=50)
        assert history is not None
        if how is not None:
            history = spoil(history, how, rng)
        if history is None:
            continue
        name = f"{scene}-".encode()
        numbers |= {name + key: tuple(n) for key, n in history.acknowledged.items()}
        plain = scene % 4 == 0  # some records were processed before the group was keyed
        own = [replace(r, key=name + r.key) for r in history.receipts]
        receipts += [
            replace(r, set_id=None, chain=None) if plain and r.seq == 1 else r for r in own
        ]
        markers += [replace(m, key=name + m.key, shard=scene) for m in history.markers]
        dead |= {NumberedKey(name + key, seq) for key, seq in history.dead}
    return KeyHistory(
        acknowledged=numbers, receipts=receipts, markers=markers, dead=frozenset(dead)
    )


def _tables(spark: SparkSession, history: KeyHistory) -> dict[str, DataFrame]:
    def row(value: Any, schema: str) -> tuple[Any, ...]:
        names = [field.split()[0] for field in schema.split(", ")]
        found = ((name, getattr(value, name)) for name in names)
        return tuple(
            as_time(v) if name.endswith("_ts") else str(v) if isinstance(v, StrEnum) else v
            for name, v in found
        )

    return {
        "receipts": spark.createDataFrame([row(r, _RECEIPTS) for r in history.receipts], _RECEIPTS),
        "source": spark.createDataFrame(
            [
                (k, n, at)
                for k, numbers in history.acknowledged.items()
                for at, n in enumerate(numbers)
            ],
            "key binary, seq long, place long",
        ),
        "markers": spark.createDataFrame([row(m, _MARKERS) for m in history.markers], _MARKERS),
        "dead": spark.createDataFrame(list(history.dead), "key binary, seq long"),
    }


def _of_spark(row: Row) -> tuple[Any, ...]:
    return (row.kind, bytes(row.key), row.partition, row["at"], row.run, row.detail)


def _of_pure(f: SetFinding) -> tuple[Any, ...]:
    return (str(f.kind), f.key, f.partition, f.at, f.run, f.detail)


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(("at_rest", "complete"), [(True, True), (False, False)])
def test_spark_finds_what_the_pure_audit_finds(
    spark: SparkSession, *, at_rest: bool, complete: bool
) -> None:
    history = replace(_scenes(), complete=complete)
    rules = SetAuditRules(at_rest=at_rest)

    found = set_audit(**_tables(spark, history), rules=rules, complete=complete).collect()

    pure = [f for f in audit_sets(history, rules).findings if f.kind.rule in _ON_SPARK]
    assert _sorted([_of_spark(r) for r in found]) == _sorted([_of_pure(f) for f in pure])
    wanted = {kind for kind in SetFindingKind if kind.rule in _ON_SPARK}
    assert {f.kind for f in pure} >= wanted - (
        {SetFindingKind.UNEXPECTED} if not complete else set()
    )
