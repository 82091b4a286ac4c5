"""The order audit on Spark: the rules of `evaluate.order`, over any number of receipts.

Each rule is a native step; the ownership intervals of a partition are checked by the same Python
function that the unit tests call. The log of a topic is audited by the same steps: a record counts
as processed where it was appended, and order is that of its partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.evaluate.order import (
    OrderRules,
    OwnershipInterval,
    Violation,
    ViolationKind,
    two_owners,
)
from trimtab.model.cluster import TopicPartition
from trimtab.spark.schemas import VIOLATIONS

if TYPE_CHECKING:
    import pandas as pd

_STREAM = ("topic", "stream_key", "stream_partition", "numbered", "turn")
_UNTIL_HERE = (Window.unboundedPreceding, -1)


def order_audit(
    receipts: DataFrame,
    *,
    run: str,
    rules: OrderRules,
    expected: DataFrame | None = None,
    commits: DataFrame | None = None,
) -> DataFrame:
    """Receipts of one group → violations, repeats included.

    `expected` has the columns topic, partition, offset of records that must have been processed;
    `commits` has topic, partition, ts, committed of what consumers reported as done.
    """
    receipts = receipts.transform(distinct_receipts)
    steps = receipts.select(
        *("topic", "partition", "offset", "key", "seq", "incarnation"),
        F.unix_micros("started_ts").alias("started"),
        F.unix_micros("finished_ts").alias("finished"),
        F.lit(None).cast("int").alias("lane"),
    )
    found = [
        *_of_streams(steps, rules, expected),
        receipts.transform(holds).transform(
            _two_owners, clock_skew_us=rules.clock_skew_us, run=run
        ),
    ]
    if commits is not None:
        found.append(_rewinds(receipts, commits, rules.clock_skew_us))
    return _violations(found, run)


def distinct_receipts(receipts: DataFrame) -> DataFrame:
    """Each receipt once: a producer that retries may send a receipt twice."""
    times = ["started_ts", "finished_ts"]
    return receipts.dropDuplicates(["topic", "partition", "offset", "incarnation", *times])


def log_audit(
    records: DataFrame, *, run: str, rules: OrderRules, expected: DataFrame | None = None
) -> DataFrame:
    """Records of topics (topic, partition, offset, key, seq) → violations of their sequences.

    Kafka guarantees no order between partitions, so a key's records are compared within each.
    """
    steps = records.where("seq is not null").select(
        *("topic", "partition", "offset", "key", "seq"),
        F.lit("").alias("incarnation"),
        F.col("offset").alias("started"),
        F.col("offset").alias("finished"),
        F.col("partition").alias("lane"),
    )
    if expected is not None:
        lost = _missing(records, expected)
        return _violations([lost, *_of_streams(steps, rules, None, covered=expected)], run)
    return _violations(_of_streams(steps, rules, None), run)


def _violations(found: list[DataFrame], run: str) -> DataFrame:
    whole = reduce(DataFrame.unionByName, (f.drop("run") for f in found))
    return whole.withColumn("run", F.lit(run)).select(*VIOLATIONS.names)


def _of_streams(
    steps: DataFrame,
    rules: OrderRules,
    expected: DataFrame | None,
    *,
    covered: DataFrame | None = None,
) -> list[DataFrame]:
    placed = steps.transform(_placed)
    records = placed.transform(_records)
    found = [records.transform(_repeats), _inversions(placed, records, rules.clock_skew_us)]
    if expected is not None:
        found.append(_missing(steps, expected))
    if rules.gaps:
        known = expected if expected is not None else covered
        numbered = records.where("numbered")
        if known is not None:
            # A number that was never acknowledged is not lost: expected records replace this rule.
            numbered = numbered.join(known.select("topic").distinct(), "topic", "left_anti")
        found.append(numbered.transform(_gaps, from_first=rules.from_first))
    return found


def _placed(steps: DataFrame) -> DataFrame:
    """Every receipt with its stream and its position there."""
    numbered = F.col("seq").isNotNull()
    keyed = numbered & F.col("key").isNotNull()
    ones = F.collect_set(F.when(F.col("seq") == 1, F.col("offset"))).over(
        Window.partitionBy("topic", "partition", "key")
    )
    begun = F.size(F.filter(ones, lambda one: one <= F.col("offset")))
    return steps.withColumns(
        {
            "numbered": numbered,
            "stream_key": F.when(keyed, F.col("key")),
            "stream_partition": F.when(~keyed, F.col("partition")),
            "turn": F.when(numbered, F.greatest(begun - 1, F.lit(0))).otherwise(F.lit(0)),
            "position": F.coalesce("seq", "offset"),
        }
    )


def _first() -> Column:
    return F.min(F.struct("started", "finished", "incarnation", "partition"))


def _records(placed: DataFrame) -> DataFrame:
    """One row per record of a stream and lane: first and last occurrence, and their number."""
    return placed.groupBy(*_STREAM, "lane", "position").agg(
        _first().alias("first"),
        F.max("started").alias("last_started"),
        F.max("finished").alias("last_finished"),
        F.count("*").alias("times"),
    )


def _found(kind: ViolationKind, at: str | Column, detail: Column) -> list[Column]:
    return [
        F.lit(str(kind)).alias("kind"),
        F.col("topic"),
        F.col("partition"),
        F.col("stream_key").alias("key"),
        (F.col(at) if isinstance(at, str) else at).cast("long").alias("at"),
        detail.alias("detail"),
    ]


def _name() -> Column:
    return F.when(F.col("numbered"), F.lit("seq")).otherwise(F.lit("offset"))


def _whole(records: DataFrame) -> DataFrame:
    """Records over all lanes."""
    return records.groupBy(*_STREAM, "position").agg(
        F.min("first")["partition"].alias("partition"), F.sum("times").alias("times")
    )


def _repeats(records: DataFrame) -> DataFrame:
    detail = F.concat_ws(" ", _name(), "position", F.lit("was processed"), "times", F.lit("times"))
    return (
        _whole(records).where("times > 1").select(*_found(ViolationKind.REPEAT, "position", detail))
    )


def _gaps(records: DataFrame, *, from_first: bool) -> DataFrame:
    ahead = Window.partitionBy(*_STREAM).orderBy("position")
    least = F.lit(0) if from_first else F.col("position") - 1
    before = F.coalesce(F.lag("position").over(ahead), least)
    holes = _whole(records).withColumn("before", before).where("position > before + 1")
    start, end = F.col("before") + 1, F.col("position") - 1
    span = F.when(start == end, start.cast("string")).otherwise(
        F.concat_ws(" to ", start.cast("string"), end.cast("string"))
    )
    detail = F.concat(
        *(F.lit("seq "), span, F.lit(" was not processed, seq "), "position", F.lit(" was"))
    )
    return holes.select(*_found(ViolationKind.LOST, start, detail))


def _missing(steps: DataFrame, expected: DataFrame) -> DataFrame:
    place = ["topic", "partition", "offset"]
    lost = expected.select(*place).distinct().join(steps.select(*place), place, "left_anti")
    detail = F.concat(
        F.lit("the record at offset "), "offset", F.lit(" was expected and not processed")
    )
    keyless = lost.withColumn("stream_key", F.lit(None).cast("binary"))
    return keyless.select(*_found(ViolationKind.LOST, "offset", detail))


def _inversions(placed: DataFrame, records: DataFrame, skew: int) -> DataFrame:
    across = records.withColumns(
        {
            "by": F.lit(""),
            # In a partition's stream a record counts by its last processing: see ViolationKind.
            "other_started": F.when(
                F.col("stream_key").isNotNull(), F.col("first.started")
            ).otherwise(F.col("last_started"))
            + skew,
            "other_finished": F.when(
                F.col("stream_key").isNotNull(), F.col("first.finished")
            ).otherwise(F.col("last_finished"))
            + skew,
        }
    )
    within = (
        placed.groupBy(*_STREAM, "lane", "position", F.col("incarnation").alias("by"))
        .agg(_first().alias("first"))
        .withColumns(
            {"other_started": F.col("first.started"), "other_finished": F.col("first.finished")}
        )
    )
    columns = [*_STREAM, "lane", "position", "by", "first", "other_started", "other_finished"]
    both = across.select(*columns, F.lit(False).alias("own")).unionByName(
        within.select(*columns, F.lit(True).alias("own"))
    )
    # From the last position to the first, so that Spark scans each stream once.
    later = (
        Window.partitionBy(*_STREAM, "lane", "own", "by")
        .orderBy(F.desc("position"))
        .rowsBetween(*_UNTIL_HERE)
    )
    started = F.min(F.struct("other_started", "position")).over(later)
    finished = F.min(F.struct("other_finished", "position")).over(later)
    seen = both.withColumns({"started": started, "finished": finished})
    late = (F.col("started.other_started") < F.col("first.started")) | (
        F.col("finished.other_finished") < F.col("first.finished")
    )
    witness = F.when(
        F.col("started.other_started") < F.col("first.started"), F.col("started.position")
    ).otherwise(F.col("finished.position"))
    once = (
        seen.where(late)
        .groupBy(*_STREAM, "position")
        .agg(F.min("first")["partition"].alias("partition"), F.min(witness).alias("witness"))
    )
    detail = F.concat_ws(
        " ", _name(), "position", F.lit("was processed after"), _name(), F.col("witness")
    )
    return once.select(*_found(ViolationKind.INVERSION, "position", detail))


# ---------------------------------------------------------------- owners


def holds(receipts: DataFrame) -> DataFrame:
    """The successive owners of each partition: one numbered row per ownership interval.

    `first_event_ts` is the event time of the first record of an interval.
    """
    in_turn = Window.partitionBy("topic", "partition").orderBy(
        "started_ts", "finished_ts", "offset", "incarnation"
    )
    before = F.lag("incarnation").over(in_turn)
    is_new = (before.isNull() | (before != F.col("incarnation"))).cast("long")
    numbered = receipts.withColumn("is_new", is_new).withColumn(
        "hold", F.sum("is_new").over(in_turn)
    )
    start = F.struct("started_ts", "finished_ts", "offset", "event_ts")
    return numbered.groupBy("topic", "partition", "hold", "incarnation", "consumer").agg(
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("started_ts").alias("started_ts"),
        F.max("finished_ts").alias("finished_ts"),
        F.min(start)["event_ts"].alias("first_event_ts"),
    )


def _two_owners(held: DataFrame, *, clock_skew_us: int, run: str) -> DataFrame:
    def judge(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        found = [_row(violation, run) for violation in _judged(rows, clock_skew_us)]
        return pd.DataFrame(found, columns=VIOLATIONS.names)

    micros = held.withColumns(
        {name: F.unix_micros(name) for name in ("started_ts", "finished_ts")}
    ).drop("first_event_ts")
    return micros.groupBy("topic", "partition").applyInPandas(judge, VIOLATIONS)


_HOLD = ("incarnation", "consumer", "first_offset", "last_offset", "started_ts", "finished_ts")


def _judged(rows: pd.DataFrame, skew: int) -> Iterator[Violation]:
    name = TopicPartition(str(rows["topic"].iloc[0]), int(rows["partition"].iloc[0]))
    ordered = rows.sort_values("hold")
    found = [
        OwnershipInterval(**dict(zip(_HOLD, values, strict=True)))
        for values in zip(*(ordered[column].tolist() for column in _HOLD), strict=True)
    ]
    return two_owners(name, found, clock_skew_us=skew)


def _row(violation: Violation, run: str) -> Mapping[str, Any]:
    return {
        "run": run,
        "kind": str(violation.kind),
        "topic": violation.topic,
        "partition": violation.partition,
        "key": violation.key,
        "at": violation.at,
        "detail": violation.detail,
    }


def _rewinds(receipts: DataFrame, commits: DataFrame, skew: int) -> DataFrame:
    """Processing, or reports of it, below an offset that was reported as committed before."""
    started = receipts.select(
        *("topic", "partition", "incarnation"),
        F.col("offset").alias("at"),
        (F.unix_micros("started_ts") - skew).alias("ts"),
        F.lit(None).cast("long").alias("committed"),
    )
    reports = commits.select(
        *("topic", "partition"),
        F.lit(None).cast("string").alias("incarnation"),
        F.col("committed").alias("at"),
        (F.unix_micros("ts") - skew).alias("ts"),
        F.lit(None).cast("long").alias("committed"),
    )
    known = commits.select(
        *("topic", "partition"),
        F.lit(None).cast("string").alias("incarnation"),
        F.lit(None).cast("long").alias("at"),
        F.unix_micros("ts").alias("ts"),
        "committed",
    )
    # By value, not by row: a commit at the same moment does not count as earlier.
    earlier = (
        Window.partitionBy("topic", "partition")
        .orderBy("ts")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    seen = started.unionByName(reports).unionByName(known)
    done = seen.withColumn("done", F.max("committed").over(earlier)).where("at < done")
    again = (
        done.where("incarnation is not null")
        .groupBy("topic", "partition", "incarnation")
        .agg(F.min(F.struct("at", "done")).alias("first"))
        .select("topic", "partition", "incarnation", "first.*")
    )
    back = done.where("incarnation is null").select(*again.columns)
    detail = F.when(
        F.col("incarnation").isNotNull(),
        F.concat(
            *("incarnation", F.lit(" processed offset "), "at"),
            *(F.lit(" after "), "done", F.lit(" had been committed")),
        ),
    ).otherwise(F.concat("at", F.lit(" was committed after "), "done", F.lit(" had been")))
    keyless = again.unionByName(back).withColumn("stream_key", F.lit(None).cast("binary"))
    return keyless.select(*_found(ViolationKind.REWIND, "at", detail))
