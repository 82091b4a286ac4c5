"""The set audit on Spark: the rules of `evaluate.key_sets` for records, over any number of them.

V1, V5 and V6 are native steps. V2 hashes every number with the hash before it, and Spark has no
BLAKE2b: the pure function is called per key. So is the one for two owners, but only for keys that
more than one process has worked on. Moves and states are few: `evaluate.key_moves` judges them.

receipts  the fields of `SetReceipt`, times as timestamps; of one topic and group
source    key, seq, place: the order of each key's records · dead  key, seq
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.evaluate.key_history import SetFinding, SetFindingKind, SetReceipt
from trimtab.evaluate.key_sets import ChainStep, SetAuditRules, broken_links, owner_findings

if TYPE_CHECKING:
    import pandas as pd

SET_FINDINGS = "kind string, key binary, partition int, at long, run string, detail string"
_COLUMNS = ["kind", "key", "partition", "at", "run", "detail"]

_LOG = ("log_partition", "log_offset")
_BEFORE = (Window.unboundedPreceding, -1)
_UNTIL_HERE = (Window.unboundedPreceding, Window.currentRow)


def set_audit(
    receipts: DataFrame,
    source: DataFrame,
    *,
    markers: DataFrame,
    dead: DataFrame,
    rules: SetAuditRules,
    complete: bool = True,
) -> DataFrame:
    """Findings of V1, V2, V5, V6 and two owners.

    `markers` has kind, key, partition, offset, shard, gen, set_id and old_set of END, START and
    FENCE, see `SetMarker`. `complete`: source and receipts are there from their beginnings.
    """
    keyed = receipts.where("set_id is not null")
    counted = markers.transform(counted_markers)
    matched = matched_receipts(keyed, source)
    expected = expected_records(source, matched, receipts, dead)
    found = [
        matched.transform(_misplaced, complete=complete),
        expected.transform(_missing, at_rest=rules.at_rest, complete=complete),
        expected.transform(_wrong_chains, complete=complete),
        _wrong_partitions(keyed, counted),
        keyed.transform(_fallen_sets),
        counted.transform(_fallen_markers),
        keyed.transform(_two_owners, clock_skew_us=rules.clock_skew_us),
    ]
    return reduce(DataFrame.unionByName, found)


def _finding(kind: SetFindingKind, *, at: Column, detail: Column, **place: Column) -> list[Column]:
    return [
        F.lit(str(kind)).alias("kind"),
        F.col("key"),
        place.get("partition", F.col("partition")).cast("int").alias("partition"),
        at.cast("long").alias("at"),
        place.get("run", F.col("run")).cast("string").alias("run"),
        detail.alias("detail"),
    ]


def _text(*parts: str | Column) -> Column:
    """Texts and columns, one after another."""
    return F.concat(*(F.lit(p) if isinstance(p, str) else p.cast("string") for p in parts))


# ------------------------------------------------------------ V1


def _turn(order: WindowSpec) -> Column:
    """Where the numbers of a key begin with 1 anew, a new turn begins."""
    ones = F.sum((F.col("seq") == 1).cast("int")).over(order.rowsBetween(*_UNTIL_HERE))
    return F.greatest(ones - 1, F.lit(0))


def _numbered_source(source: DataFrame) -> DataFrame:
    order = Window.partitionBy("key").orderBy("place")
    turned = source.select("key", "seq", "place").withColumns(
        {"at": F.row_number().over(order) - 1, "turn": _turn(order)}
    )
    same = Window.partitionBy("key", "turn", "seq").orderBy("place")
    return turned.withColumn("nth", F.row_number().over(same)).drop("place")


def matched_receipts(keyed: DataFrame, source: DataFrame) -> DataFrame:
    """Numbered receipts, each with its place `at` in the source, null if it has none (again).

    `known` says whether the source has the number at all.
    """
    columns = ["set_id", "offset", "partition", *_LOG]
    order = Window.partitionBy("key").orderBy(*columns)
    known = _numbered_source(source)
    most = known.groupBy("key").agg(F.max("turn").alias("most"))
    turned = (
        keyed.where("seq is not null")
        .withColumn("turn", _turn(order))
        .join(most, "key", "left")
        .withColumn("turn", F.least("turn", F.coalesce("most", F.lit(0))))
    )
    same = Window.partitionBy("key", "turn", "seq").orderBy(*columns)
    numbers = known.select("key", "seq").distinct().withColumn("known", F.lit(True))
    return (
        turned.withColumn("nth", F.row_number().over(same))
        .join(known, ["key", "turn", "seq", "nth"], "left")
        .join(numbers, ["key", "seq"], "left")
        .drop("turn", "nth", "most")
    )


def _misplaced(matched: DataFrame, *, complete: bool) -> DataFrame:
    """Records applied again, after a later one, or without one in the source."""
    applied = Window.partitionBy("key").orderBy("set_id", "offset", "partition", *_LOG)
    written = Window.partitionBy("key", "log_partition").orderBy("log_offset")
    is_late = reduce(
        operator.or_,
        (
            F.coalesce(F.max("at").over(order.rowsBetween(*_BEFORE)) > F.col("at"), F.lit(False))
            for order in (applied, written)
        ),
    )
    seen = matched.withColumn("is_late", is_late)
    seq = F.col("seq")
    late = seen.where("is_late").select(
        *_finding(
            SetFindingKind.OUT_OF_ORDER,
            at=seq,
            detail=_text("record ", seq, " came after a later one"),
        )
    )
    again = seen.where("at is null and known").select(
        *_finding(
            SetFindingKind.REPEATED, at=seq, detail=_text("record ", seq, " was applied again")
        )
    )
    if not complete:
        return late.unionByName(again)
    unexpected = seen.where("known is null").select(
        *_finding(
            SetFindingKind.UNEXPECTED,
            at=seq,
            detail=_text("record ", seq, " was applied, and the source does not have it"),
        )
    )
    return late.unionByName(again).unionByName(unexpected)


def expected_records(
    source: DataFrame, matched: DataFrame, receipts: DataFrame, dead: DataFrame
) -> DataFrame:
    """The records of the source, each with its receipt if there is one.

    `excused`: it needs no receipt and no part in the chain.
    """
    got = matched.where("at is not null").select(
        "key", "at", "chain", "partition", "run", F.lit(True).alias("got")
    )
    buried = dead.select("key", "seq").distinct().withColumn("is_dead", F.lit(True))
    plain = (
        receipts.where("set_id is null and seq is not null")
        .select("key", "seq")
        .distinct()
        .withColumn("is_plain", F.lit(True))
    )
    excused = (F.col("is_dead") & F.col("chain").isNull()) | (
        F.col("is_plain") & F.col("got").isNull()
    )
    return (
        _numbered_source(source)
        .select("key", "at", "seq")
        .join(got, ["key", "at"], "left")
        .join(buried, ["key", "seq"], "left")
        .join(plain, ["key", "seq"], "left")
        .withColumn("excused", F.coalesce(excused, F.lit(False)))
        .drop("is_dead", "is_plain")
    )


def _missing(expected: DataFrame, *, at_rest: bool, complete: bool) -> DataFrame:
    """Acknowledged against applied: what the source has and nobody applied."""
    of_key = Window.partitionBy("key")
    place = F.when(F.col("got"), F.col("at"))
    spans = expected.withColumns(
        {"first": F.min(place).over(of_key), "last": F.max(place).over(of_key)}
    )
    absent = spans.where("got is null and not excused")
    if not at_rest:
        absent = absent.where(F.col("at") < F.col("last"))
    if not complete:
        absent = absent.where(F.col("at") >= F.col("first"))
    ordered = Window.partitionBy("key").orderBy("at")
    islands = absent.withColumn("island", F.col("at") - F.row_number().over(ordered))
    runs = islands.groupBy("key", "island").agg(
        F.min_by("seq", "at").alias("begin"),
        F.max_by("seq", "at").alias("end"),
        F.count("*").alias("length"),
    )
    begin = F.col("begin")
    told = F.when(F.col("length") == 1, _text("record ", begin, " was not applied")).otherwise(
        _text("records ", begin, " to ", F.col("end"), " were not applied")
    )
    return runs.select(
        *_finding(
            SetFindingKind.MISSING, at=begin, detail=told, partition=F.lit(None), run=F.lit(None)
        )
    )


# ------------------------------------------------------------ V2


def _wrong_chains(expected: DataFrame, *, complete: bool) -> DataFrame:
    last = F.max(F.when(F.col("chain").isNotNull(), F.col("at"))).over(Window.partitionBy("key"))
    steps = (
        expected.withColumn("last", last).where(F.col("at") <= F.col("last")).drop("last", "got")
    )

    def judge(rows: pd.DataFrame) -> pd.DataFrame:
        ordered = rows.sort_values("at").to_dict("records")
        given = [
            ChainStep(r["seq"], r["chain"] if isinstance(r["chain"], str) else None, r["excused"])
            for r in ordered
        ]
        broken = (ordered[at] for at in broken_links(given, from_first=complete))
        return _frame(
            {
                "kind": str(SetFindingKind.WRONG_CHAIN),
                "key": r["key"],
                "partition": int(r["partition"]),
                "at": r["seq"],
                "run": r["run"],
                "detail": f"the chain at record {r['seq']} does not follow from the source",
            }
            for r in broken
        )

    return steps.groupBy("key").applyInPandas(judge, SET_FINDINGS)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=_COLUMNS)


# ------------------------------------------------------------ V5, V6


def counted_markers(markers: DataFrame) -> DataFrame:
    """END and START that tasks obey: none of a generation that was fenced in its partition."""
    earlier = Window.partitionBy("partition", "shard").orderBy("offset").rowsBetween(*_UNTIL_HERE)
    seen = markers.withColumn("newest", F.max("gen").over(earlier))
    return seen.where("gen >= newest and kind != 'fence'").drop("newest")


def _wrong_partitions(keyed: DataFrame, counted: DataFrame) -> DataFrame:
    places = (
        counted.where("kind = 'start'")
        .groupBy("key", "set_id")
        .agg(F.min("partition").alias("started"))
    )
    in_log = F.struct(*_LOG)
    begun = F.min_by("partition", in_log).over(Window.partitionBy("key", "set_id"))
    placed = (
        keyed.withColumns({"begun": begun, "number": F.coalesce("seq", "offset")})
        .join(places, ["key", "set_id"], "left")
        .withColumn("due", F.coalesce("started", "begun"))
        .where("partition != due")
    )
    wrong = placed.groupBy("key", "set_id", "partition", "due").agg(
        F.count("*").alias("records"),
        F.min("number").alias("number"),
        F.min_by("run", F.struct("number", *_LOG)).alias("run"),
    )
    detail = _text(
        *(F.col("records"), " records of set ", F.col("set_id")),
        *(" were applied on partition ", F.col("partition"), " instead of ", F.col("due")),
    )
    return wrong.select(
        *_finding(SetFindingKind.WRONG_PARTITION, at=F.col("number"), detail=detail)
    )


def _fallen_sets(keyed: DataFrame) -> DataFrame:
    written = Window.partitionBy("key", "log_partition").orderBy("log_offset")
    before = F.max("set_id").over(written.rowsBetween(*_BEFORE))
    fallen = keyed.withColumn("before", before).where("set_id < before")
    first = fallen.groupBy("key", "set_id").agg(
        F.min_by(F.struct("partition", "run", "before"), F.struct(*_LOG)).alias("first")
    )
    detail = _text(
        *("a record of set ", F.col("set_id"), " was applied after one of set "),
        F.col("first.before"),
    )
    return first.select(
        *_finding(
            SetFindingKind.SETS_FELL,
            at=F.col("set_id"),
            detail=detail,
            partition=F.col("first.partition"),
            run=F.col("first.run"),
        )
    )


def _fallen_markers(counted: DataFrame) -> DataFrame:
    along = Window.partitionBy("key", "partition").orderBy("offset").rowsBetween(*_BEFORE)
    seen = counted.withColumn("before", F.coalesce(F.max("set_id").over(along), F.lit(0)))
    name, set_id = F.upper("kind"), F.col("set_id")
    fell = _text(name, " of set ", set_id, " comes after a marker of set ", F.col("before"))
    back = _text("END leads from set ", F.col("old_set"), " to set ", set_id)
    why = F.when(set_id < F.col("before"), fell).when(
        (F.col("kind") == "end") & (F.col("old_set") >= set_id), back
    )
    first = (
        seen.withColumn("why", why)
        .where("why is not null")
        .groupBy("key", "partition", "set_id")
        .agg(F.min_by("why", "offset").alias("why"))
    )
    return first.select(
        *_finding(SetFindingKind.SETS_FELL, at=set_id, detail=F.col("why"), run=F.lit(None))
    )


# ------------------------------------------------------------ owners


def _two_owners(keyed: DataFrame, *, clock_skew_us: int) -> DataFrame:
    shared = (
        keyed.groupBy("key")
        .agg(F.min("incarnation").alias("one"), F.max("incarnation").alias("other"))
        .where("one != other")
        .select("key")
    )
    micros = {name: F.unix_micros(name) for name in ("started_ts", "finished_ts")}
    columns = ("partition", "offset", "run", "consumer", "incarnation", "started_ts", "finished_ts")
    worked = keyed.join(shared, "key", "left_semi").withColumns(micros).select("key", *columns)

    def judge(rows: pd.DataFrame) -> pd.DataFrame:
        key = bytes(rows["key"].iloc[0])
        given = [
            SetReceipt(key=key, seq=None, set_id=0, **dict(zip(columns, values, strict=True)))
            for values in zip(*(rows[name].tolist() for name in columns), strict=True)
        ]
        return _frame(map(_row, owner_findings(given, clock_skew_us=clock_skew_us)))

    return worked.groupBy("key").applyInPandas(judge, SET_FINDINGS)


def _row(finding: SetFinding) -> Mapping[str, Any]:
    return {
        "kind": str(finding.kind),
        "key": finding.key,
        "partition": finding.partition,
        "at": finding.at,
        "run": finding.run,
        "detail": finding.detail,
    }
