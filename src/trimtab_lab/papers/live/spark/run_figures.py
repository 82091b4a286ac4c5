"""Evaluates a run's receipts with Spark: latency, order, moves, and the curve of delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.evaluate.order import OrderRules
from trimtab.evaluate.spark.jobs import OutcomeParameters, ReplicasFrom, audit_receipts, judge
from trimtab.evaluate.spark.order_audit import distinct_receipts
from trimtab.evaluate.spark.outcomes import first_receipts
from trimtab.evaluate.spark.receipt_tables import (
    ReceiptQuery,
    ReceiptTables,
    expected_places,
    from_kafka,
)
from trimtab.evaluate.verdict import BlockingTimes
from trimtab.spark.session import Session, spark_errors
from trimtab_lab.papers.live.distributions import levels
from trimtab_lab.papers.live.kafka.live_site import LiveSite, RunObservations
from trimtab_lab.papers.live.plan import replica_minutes, unexplained

EDGES_S = tuple(round(0.02 * 10 ** (k / 12), 4) for k in range(48))
_GENEROUS_US = 60_000_000


def run_figures(session: Session, place: LiveSite, run: RunObservations) -> dict[str, Any]:
    """The figures of a run, as they are saved."""
    asked = ReceiptQuery(
        group=run.group,
        run=run.name,
        from_ts=run.ready_ts - _GENEROUS_US,
        to_ts=run.ended_ts + _GENEROUS_US,
    )
    with place.cluster.admin() as admin:
        with spark_errors("reading receipts"):
            given = _read_once(from_kafka(session, admin, place.cluster, asked))
        audit = audit_receipts(
            session,
            given,
            asked,
            rules=OrderRules(from_first=True),
            expected=expected_places(session, offsets=run.offsets),
        )
        # Records sent before the evaluated load are audited for order, but not counted otherwise.
        given = replace(given, receipts=given.receipts.where(_sent_since(run.began_ts)))
        outcome = judge(
            session,
            given,
            asked,
            OutcomeParameters(sla_s=run.sla_s, replicas_from=ReplicasFrom.RECEIPTS),
        )
        within = _shares_within_edges(given.receipts)
    ended_s = (outcome.to_ts - run.began_ts) / 1e6
    latency = outcome.latency
    return {
        "records": latency.events,
        "sla_share": latency.within_sla,
        **{f"{p}_s": getattr(latency, f"{p}_ms") / 1000 for p in ("p50", "p90", "p99", "max")},
        "replica_minutes": replica_minutes(run.replicas, ended_s),
        "most_replicas": max(n for _, n in run.replicas),
        "moves": outcome.moves.moves,
        "blocked": _blocking(outcome.moves),
        "handover": None if outcome.handovers is None else _blocking(outcome.handovers),
        "rebalance": _times(run.rebalances_s),
        "max_lag": max((n for _, n in run.lag), default=0),
        "order": {str(kind): count for kind, count in audit.counts.items() if count},
        "order_findings": audit.findings(no_repeats=False),
        "repeats": outcome.repeats,
        "decisions": len(run.decisions),
        "unexplained": unexplained(run.decisions),
        "refused": sum(d["action"] == "refuse" for d in run.decisions),
        "late": run.late,
        "max_late_ms": run.max_late_ms,
        "busiest_to_mean": outcome.busiest_to_mean,
        "ended_s": ended_s,
        "edges_s": list(EDGES_S),
        "within": within,
        "replicas": [list(change) for change in run.replicas],
        "lag": [list(sample) for sample in run.lag],
        "changes": [
            [(d["ts"] - run.began_ts) / 1e6, d["action"], d["from"], d["to"], d["reason"]]
            for d in run.decisions
            if d["action"] not in ("none", "refuse")
        ],
    }


def _shares_within_edges(receipts: DataFrame) -> list[float]:
    """The share of records whose latency does not exceed each edge."""
    with spark_errors("counting delays"):
        records = receipts.transform(distinct_receipts).transform(first_receipts)
        level = F.col("latency_ms")
        counts = [F.avg((level <= edge * 1000).cast("double")) for edge in EDGES_S]
        return list(records.agg(*counts).collect()[0])


def _sent_since(ts: int) -> Column:
    return F.unix_micros("event_ts") >= ts


def _read_once(given: ReceiptTables) -> ReceiptTables:
    """The same tables, cached in memory: a run is small, and many queries follow."""
    return ReceiptTables(
        receipts=given.receipts.localCheckpoint(),
        rejects=given.rejects,
        control=None if given.control is None else given.control.localCheckpoint(),
    )


def _times(seconds: Sequence[float]) -> dict[str, float | None] | None:
    found = levels(seconds)
    return {f"{name}_s": found[name] for name in ("p50", "p90", "max")} if found else None


def _blocking(found: BlockingTimes) -> dict[str, float | None]:
    return {"p50_s": found.p50_s, "p90_s": found.p90_s, "max_s": found.max_s, "moves": found.moves}
