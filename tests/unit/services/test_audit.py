"""The audit service, on snapshot files and on a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.services.listening import Told
from trimtab.audit.topology import Audit, AuditOptions
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps, loads_to, measurement_to, snapshot_to
from trimtab.model.load import Loads, LoadStep, Measurement, PartitionLoad, Source, Unit
from trimtab.services.audit import AuditRequest, LoadsFile, audit_cluster
from trimtab.testing.placements import placement

NOW = 2_000_000_000_000_000
PLACED = replace(placement({"A": [[1, 2], [2, 1]], "B": [[1, 2]]}, brokers=[1, 2]), cluster="here")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    file = tmp_path / "snapshot.json"
    file.write_text(dumps(snapshot_to(PLACED)))
    return file


def audited(source: Cluster | Path, told: Told | None = None, **asked: object) -> Audit:
    request = AuditRequest(source=source, options=AuditOptions(), **asked)  # type: ignore[arg-type]
    return audit_cluster(request, clock=lambda: NOW, listener=told or Told())


def measured(tmp_path: Path, *loads: PartitionLoad) -> Path:
    file = tmp_path / "measurement.json"
    found = Measurement(
        cluster="elsewhere",
        from_ts=NOW - 10**12,
        to_ts=NOW - 9 * 10**11,
        window_s=30.0,
        partitions=loads,
        rejects=0,
    )
    file.write_text(dumps(measurement_to(found)))
    return file


def load(topic: str, partition: int, bytes_s: float | None) -> PartitionLoad:
    return PartitionLoad(
        topic=topic,
        partition=partition,
        bytes_s=bytes_s,
        records_s=1.0,
        source=Source.LOG_DIRS,
        complete=partition == 0,
    )


def test_a_snapshot_file_is_audited(snapshot: Path) -> None:
    found = audited(snapshot)

    assert found.topics == ("A", "B")
    assert found.options.min_insync == {"A": 1, "B": 1}


def test_progress_is_told_failure_by_failure(snapshot: Path) -> None:
    told = Told()

    audited(snapshot, told)

    assert told.steps[-1] == ("failures", 2, 2)


def test_a_live_cluster_is_audited(cluster: Cluster) -> None:
    found = audited(cluster)

    assert found.topics == ("orders",)
    assert found.options.server == "in-memory:9092"


def test_topics_that_are_not_there_are_refused(cluster: Cluster, snapshot: Path) -> None:
    with pytest.raises(ConfigError, match='cluster has no topic "C"'):
        audited(cluster, topics=frozenset({"C"}))
    with pytest.raises(ConfigError, match=r'snapshot.json has no topic "C"'):
        audited(snapshot, topics=frozenset({"C"}))


def test_doubts_about_a_measurement_are_told(snapshot: Path, tmp_path: Path) -> None:
    told = Told()
    file = measured(tmp_path, load("A", 0, 5e6), load("A", 1, 5e6), load("C", 0, 5e6))

    found = audited(snapshot, told, loads=LoadsFile(path=file))

    assert found.rates is not None
    assert found.rates.by_partition.keys() == {TopicPartition("A", 0), TopicPartition("C", 0)}
    said = "\n".join(told.warnings + told.notes)
    assert "measured on cluster elsewhere, but here is audited" in said
    assert "1 of 3 rates have gaps" in said
    assert "1 partitions that the cluster does not have" in said


def test_a_loads_file_in_another_unit_is_refused(snapshot: Path, tmp_path: Path) -> None:
    file = tmp_path / "loads.json"
    step = LoadStep(loads={TopicPartition("A", 0): 1.0})
    file.write_text(dumps(loads_to(Loads(capacity=1.0, unit=Unit.RECORDS_S, steps=(step,)))))

    with pytest.raises(ConfigError, match="is records/s, not bytes/s"):
        audited(snapshot, loads=LoadsFile(path=file, unit=Unit.BYTES_S))


@pytest.mark.parametrize(
    ("domain", "complaint"), [("1,7", "no broker 7"), ("1,x", "takes broker ids such as 1,2,3")]
)
def test_domains_are_brokers_that_exist(snapshot: Path, domain: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        audited(snapshot, domains=(domain,))
