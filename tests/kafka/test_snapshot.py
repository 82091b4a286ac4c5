"""The snapshot verb: what it writes is a snapshot file."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.kafka.streams import produce
from trimtab.cli import main
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.codec import read_snapshot


def test_a_snapshot_of_the_cluster_is_a_file_that_the_codec_reads(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, file = f"seen-{uuid.uuid4().hex[:8]}", tmp_path / "snapshot.json"
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        admin.create_topic(TopicSpec(name=topic, partitions=2, replication=2))
        produce(cluster.bootstrap_servers, topic, [(1_000, b"k", 10)] * 5)
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        code = main.run(["snapshot", "--topic", topic, "-o", str(file), *server])
        admin.delete_topic(topic)
    said = capsys.readouterr()
    assert code == 0, said.err
    taken, warnings = read_snapshot(file)
    assert warnings == []
    assert [(b.id, b.rack) for b in taken.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    assert sum(p.end_offset or 0 for p in taken.partitions) == 5
    assert sum(p.log_bytes or 0 for p in taken.partitions) > 5 * 10
    assert f"{topic}-1" in said.out


def test_a_topic_that_does_not_exist_is_said_to(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", f"s{uuid.uuid4().hex[:8]}.")
    assert main.run(["snapshot", "--topic", "no-such-topic", *server]) == 2
    assert 'The cluster has no topic "no-such-topic".' in capsys.readouterr().err
    assert main.run(["monitor", "--topic", "no-such-topic", "--for", "1s", *server]) == 0
    assert "topic no-such-topic does not exist yet" in capsys.readouterr().err
