"""The evaluating services, up to the point where Spark would be started."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import BadFile, ConfigError
from trimtab.evaluate.order import OrderRules
from trimtab.evaluate.spark import jobs, receipt_tables
from trimtab.kafka.cluster import Cluster
from trimtab.services.evaluate import (
    GroupReceipts,
    NumberedRecords,
    OrderRequest,
    OutcomeRequest,
    ReplicaSource,
    evaluate_order,
    evaluate_outcome,
)
from trimtab.spark import session as spark


class SparkStarted(Exception):
    """Everything before Spark was in order."""


def start_spark() -> Any:
    raise SparkStarted


def no_session() -> Any:
    """Stands in for a session that no job uses."""


def receipts(source: Cluster | Path, **more: Any) -> GroupReceipts:
    return GroupReceipts(source=source, group="g", from_ts=0, to_ts=1, **more)


def records(source: Cluster, topic: str = "orders", **more: Any) -> NumberedRecords:
    return NumberedRecords(source=source, topics=frozenset({topic}), from_ts=0, to_ts=1, **more)


def test_what_can_be_read_starts_spark(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "receipts.json").touch()

    for source in (cluster, tmp_path):
        with pytest.raises(SparkStarted):
            evaluate_order(
                OrderRequest(audited=receipts(source), warehouse="w"), start_spark=start_spark
            )
        with pytest.raises(SparkStarted):
            evaluate_outcome(
                OutcomeRequest(receipts=receipts(source), warehouse="w"), start_spark=start_spark
            )
    with pytest.raises(SparkStarted):
        evaluate_order(
            OrderRequest(audited=records(cluster, header="n"), warehouse="w"),
            start_spark=start_spark,
        )


def test_what_cannot_be_read_is_refused_before_spark_is_started(
    cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(BadFile, match="no such file or folder"):
        evaluate_outcome(
            OutcomeRequest(receipts=receipts(tmp_path / "missing"), warehouse="w"),
            start_spark=start_spark,
        )
    with pytest.raises(ConfigError, match="There is no topic ordres"):
        evaluate_order(
            OrderRequest(audited=records(cluster, "ordres", header="n"), warehouse="w"),
            start_spark=start_spark,
        )


def test_a_recording_is_for_exactly_one_topic(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exactly one topic"):
        OrderRequest(audited=receipts(cluster), acknowledged=tmp_path, warehouse="w")


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is not there, and has done three of its five tasks."""

    def watched(_: Any, on_tasks: Any) -> Any:
        on_tasks(3, 5)
        return nullcontext()

    monkeypatch.setattr(spark, "watched", watched)


@pytest.mark.usefixtures("watching")
def test_receipts_are_audited_by_the_rules_and_progress_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    told = Told()
    monkeypatch.setattr(receipt_tables, "expected_places", lambda *_, **more: seen.update(more))
    monkeypatch.setattr(receipt_tables, "from_kafka", lambda *_: "tables")

    def audit_receipts(_: Any, tables: Any, query: receipt_tables.ReceiptQuery, **more: Any) -> Any:
        seen.update(more, tables=tables, query=query)
        return "audited"

    monkeypatch.setattr(jobs, "audit_receipts", audit_receipts)
    request = OrderRequest(
        audited=receipts(cluster, run="r", topics=frozenset({"orders"})),
        rules=OrderRules(gaps=False),
        acknowledged=Path("recording"),
        warehouse="/w",
    )

    found: Any = evaluate_order(request, start_spark=no_session, listener=told)

    assert (found.audited, found.table) == ("audited", "/w/violations")
    assert (seen["tables"], seen["rules"].gaps, seen["topic"]) == ("tables", False, "orders")
    assert (seen["query"].group, seen["query"].run, seen["query"].to_ts) == ("g", "r", 1)
    assert told.steps == [("auditing (tasks)", 0, None), ("auditing (tasks)", 3, 5)]


@pytest.mark.usefixtures("watching")
@pytest.mark.parametrize(
    ("where", "number"),
    [({"header": "n"}, "header n"), ({"json_field": "order.seq"}, "field order.seq")],
)
def test_the_number_of_a_record_is_in_a_header_or_in_a_field(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, where: dict[str, str], number: str
) -> None:
    monkeypatch.setattr(receipt_tables, "expected_places", lambda *_, **__: None)
    monkeypatch.setattr(receipt_tables, "seq_in_header", lambda name: f"header {name}")
    monkeypatch.setattr(receipt_tables, "seq_in_json", lambda name: f"field {name}")
    monkeypatch.setattr(receipt_tables, "records_of", lambda *_, seq, **__: seq)
    monkeypatch.setattr(jobs, "audit_log", lambda _, found, *, label, **__: (found, label))

    found: Any = evaluate_order(
        OrderRequest(audited=records(cluster, **where), warehouse="/w"),
        start_spark=no_session,
    )

    assert found.audited == (number, "topic-orders")


@pytest.mark.usefixtures("watching")
def test_an_outcome_is_judged_by_what_the_request_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "receipts.json").touch()
    monkeypatch.setattr(receipt_tables, "from_files", lambda _, path, query: (path, query.group))
    monkeypatch.setattr(jobs, "judge", lambda _, given, asked, how, __: (given, asked.run, how))
    request = OutcomeRequest(
        receipts=receipts(tmp_path, run="r"),
        sla_s=2.0,
        replicas_from=ReplicaSource.DECISIONS,
        warehouse="/w",
    )

    found: Any = evaluate_outcome(request, start_spark=no_session)

    given, run, how = found
    assert (given, run) == ((tmp_path, "g"), "r")
    assert (how.sla_s, how.window_s, how.replicas_from) == (2.0, 60.0, jobs.ReplicasFrom.DECISIONS)
