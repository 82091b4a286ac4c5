"""Scores of packing runs over a table of assignments: the pure functions of `rscore`, per group."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from trimtab.errors import SchemaMismatch
from trimtab.evaluate.rscore import TWELVE, Iteration, cbs, judged, over_all
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("run", "delta", "algorithm", "iteration", "partition", "load", "consumer")
_FIGURES: dict[str, DataType] = {
    "cbs": DoubleType(),
    "skipped": IntegerType(),
    "e_rscore": DoubleType(),
    "moved_fraction": DoubleType(),
    "moves": LongType(),
    "mean_consumers": DoubleType(),
    "utilisation": DoubleType(),
}


def packing_scores(
    placed: DataFrame, *, capacity: float, reference: Collection[str] = TWELVE
) -> DataFrame:
    """One row per run, delta and algorithm, of rows (run, …, partition, load, consumer).

    Every algorithm of `reference` must be present for each run and delta; all consumers have the
    same capacity. An iteration without partitions has no row and is not counted.
    """
    missing = [name for name in COLUMNS if name not in placed.columns]
    if missing:
        raise SchemaMismatch(
            f"The table of assignments has no column {missing[0]}.",
            hint=f"It needs {', '.join(COLUMNS)}; found: {', '.join(placed.columns) or 'none'}.",
        )
    kinds = {f.name: f.dataType for f in placed.schema.fields}
    schema = StructType(
        [
            StructField("run", kinds["run"]),
            StructField("delta", kinds["delta"]),
            StructField("algorithm", StringType()),
            *(StructField(name, kind) for name, kind in _FIGURES.items()),
        ]
    )
    limits, fixed = GroupLimits(capacity=capacity), tuple(reference)

    def score(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(_scores(rows, limits, fixed), columns=schema.names)

    return placed.select(*COLUMNS).groupBy("run", "delta").applyInPandas(score, schema)


def _scores(
    rows: pd.DataFrame, limits: GroupLimits, reference: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    run, delta = rows["run"].iloc[0], rows["delta"].iloc[0]
    judgements = {
        str(name): list(_judgements(part, limits)) for name, part in rows.groupby("algorithm")
    }
    counts = {name: [one.consumers for one in found] for name, found in judgements.items()}
    scores = cbs(counts, reference=reference)
    for name in sorted(judgements):
        whole = over_all(judgements[name])
        yield (
            run,
            delta,
            name,
            *scores[name],
            whole.e_rscore,
            whole.moved_fraction,
            whole.moves,
            whole.mean_consumers,
            whole.utilisation,
        )


def _judgements(rows: pd.DataFrame, limits: GroupLimits) -> Iterator[Iteration]:
    before = Assignment()
    for _, part in rows.groupby("iteration"):
        # Any partition name works: scores only compare names.
        names = cast("list[TopicPartition]", part["partition"].tolist())
        loads = dict(zip(names, part["load"].tolist(), strict=True))
        after = Assignment(dict(zip(names, part["consumer"].tolist(), strict=True)))
        if len(after) != len(part):
            raise ValueError("a partition occurs twice in one iteration of one algorithm")
        yield judged(before, after, loads, limits)
        before = after
