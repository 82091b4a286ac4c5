"""The live comparison, shortened: what holds whatever the machine's mood is.

Judged here by the plain auditor; Spark's is held to it elsewhere, and judges the experiments.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from pyspark.sql import SparkSession

from trimtab.evaluate.order import OrderRules, audit, findings
from trimtab.evaluate.order import RecordPosition as Expected
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_from
from trimtab.model.json_reader import parse
from trimtab_lab.papers.live.kafka.live_run import conduct
from trimtab_lab.papers.live.kafka.live_site import LiveSite, RunObservations
from trimtab_lab.papers.live.kafka.run_records import run_records
from trimtab_lab.papers.live.plan import LiveRun, LiveWorkload, Strategy, runs_of, unexplained
from trimtab_lab.papers.live.response import response_times
from trimtab_lab.papers.live.spark.measuring import measured_here

SLA_S = 3.0


def run(strategy: Strategy) -> LiveRun:
    return LiveRun(
        strategy=strategy,
        workload=LiveWorkload.SHORT,
        sla_s=SLA_S,
        most=2,
        max_quiet_s=600.0,  # it stays as it is while it waits for the load
        settled=True,
    )


def receipts_of(bootstrap: str, topic: str, run: str) -> list[Receipt]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([Place(topic, p, 0) for p in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the receipts did not end"
        if message.error():
            ended += 1
            continue
        found.append(receipt_from(parse(message.value() or b"", origin=topic)))
    consumer.close()
    return [receipt for receipt in found if receipt.run == run]


def within(receipts: list[Receipt], conducted: RunObservations, sla_s: float) -> float:
    """The share of the load, without what was sent to settle the group, that was done in time."""
    first: dict[tuple[int, int], int] = {}
    judged = [r for r in receipts if r.event_ts >= conducted.began_ts]
    for r in sorted(judged, key=lambda r: r.finished_ts):
        first.setdefault((r.partition, r.offset), r.finished_ts - r.event_ts)
    return sum(waited <= sla_s * 1e6 for waited in first.values()) / len(first)


def order_findings(receipts: list[Receipt], conducted: RunObservations) -> dict[str, int]:
    expected = [
        Expected(p.topic, p.partition, offset)
        for p, (start, end) in conducted.offsets.items()
        for offset in range(start, end)
    ]
    assert expected
    found = audit(receipts, expected=expected, rules=OrderRules(from_first=True))
    return {str(kind): count for kind, count in findings(found).items()}


@pytest.fixture
def place(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSite:
    own = OwnTopics(f"t{uuid4().hex[:6]}.")
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", own.prefix)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    return LiveSite(
        cluster=Cluster(cluster.bootstrap_servers, topics=own), folder=tmp_path / "runs"
    )


def receipts_in(place: LiveSite, conducted: RunObservations) -> list[Receipt]:
    return receipts_of(place.cluster.servers, place.cluster.topics.receipts, conducted.name)


@pytest.mark.timeout(900)  # a machine that is busy with other things takes its time
def test_ours_keeps_order_explains_itself_and_is_ahead_of_sticky_dealing(
    place: LiveSite, spark: SparkSession
) -> None:
    with measured_here(spark, place):
        ours = conduct(run(Strategy.OURS), place)
        spans = response_times(run_records(place, ours))
    sticky = conduct(run(Strategy.STICKY), place, replay=ours.replicas)

    mine, theirs = (receipts_in(place, each) for each in (ours, sticky))
    assert order_findings(mine, ours) == {}
    assert order_findings(theirs, sticky) == {}
    assert ours.sent == sticky.sent
    assert {n for _, n in ours.replicas} == {2}
    assert within(mine, ours, SLA_S) > within(theirs, sticky, SLA_S)
    assert len(ours.decisions) > 1
    assert unexplained(ours.decisions) == 0
    assert spans["measure"]
    assert spans["decide"]
    assert spans["hand over"]


def _conduct_until_scaled(run: LiveRun, place: LiveSite) -> list[RunObservations]:
    """Runs until the group grew; on a starved machine the load may not reach the consumers."""
    conducted = [conduct(run, place)]
    while not _has_grown(conducted[-1]) and len(conducted) < 3:
        conducted.append(conduct(replace(run, seed=run.seed + len(conducted)), place))
    return conducted


def _has_grown(conducted: RunObservations) -> bool:
    return any(d["action"] == "scale_up" for d in conducted.decisions)


@pytest.mark.timeout(1500)
def test_the_loops_of_both_papers_scale_a_real_group_in_bytes_and_by_its_leader(
    place: LiveSite, spark: SparkSession
) -> None:
    """Landau's loop packs bytes/s of records that differ in size; Ezzeddine's leader asks."""
    asking = LiveRun(
        strategy=Strategy.LL_FFD_GROUP, workload=LiveWorkload.SHORT, sla_s=SLA_S, most=2
    )
    [packing] = runs_of([LiveWorkload.BYTES_5], [Strategy.MWF], seeds=1, stretch=0.03)
    with measured_here(spark, place), ThreadPoolExecutor(2) as pool:
        groups, landaus = pool.map(_conduct_until_scaled, (asking, packing), (place, place))

    for conducted in (*groups, *landaus):
        assert order_findings(receipts_in(place, conducted), conducted) == {}
        assert unexplained(conducted.decisions) == 0
    group, landau = groups[-1], landaus[-1]
    assert _has_grown(group)
    assert _has_grown(landau)
    assert max(n for _, n in group.replicas) == 2
    assert group.rebalances_s  # a member that joins takes everybody's partitions for a moment
    reasons = [d["reason"] for d in landau.decisions if d["action"] == "scale_up"]
    assert any("bytes/s" in reason for reason in reasons)
    assert landau.rebalances_s == ()
