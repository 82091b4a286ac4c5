"""Plan and apply against a live group: the present truth goes in, a changed one is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.kafka.streams import wait_until
from trimtab.cli import main
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.codec import dumps, measurement_to
from trimtab.model.load import Measurement, PartitionLoad, Source


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@contextmanager
def _members(cluster: LocalCluster, group: str, topic: str, count: int) -> Iterator[list[Consumer]]:
    """A live group whose members share the topic by range."""
    with ExitStack() as open_members:
        members = []
        for number in range(count):
            member = Consumer(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "group.id": group,
                    "client.id": f"m{number}",
                    "partition.assignment.strategy": "range",
                    "enable.auto.commit": False,
                }
            )
            open_members.callback(member.close)
            member.subscribe([topic])
            members.append(member)

        def settled() -> bool:
            for member in members:
                member.poll(0.1)
            return sum(len(m.assignment()) for m in members) == 4 and all(
                m.assignment() for m in members
            )

        wait_until(settled, what="the group")
        yield members


def _measured(topic: str, loads: dict[int, float]) -> str:
    return dumps(
        measurement_to(
            Measurement(
                cluster=None,
                from_ts=1,
                to_ts=2,
                window_s=30,
                rejects=0,
                partitions=tuple(
                    PartitionLoad(
                        topic=topic,
                        partition=p,
                        bytes_s=load,
                        records_s=None,
                        source=Source.LOG_DIRS,
                    )
                    for p, load in loads.items()
                ),
            )
        )
    )


def test_a_live_group_is_planned_for_and_a_changed_one_makes_the_plan_stale(
    cluster: LocalCluster,
    admin: KafkaAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group = f"planned-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    admin.create_topic(TopicSpec(name=topic, partitions=4, replication=3))
    loads, saved = tmp_path / "loads.json", tmp_path / "plan.json"
    loads.write_text(_measured(topic, {0: 60, 1: 60, 2: 10, 3: 10}))
    server = ("--bootstrap-server", cluster.bootstrap_servers)

    def run(*arguments: str) -> tuple[int, Any]:
        code = main.run([*arguments, *server, "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    with _members(cluster, group, topic, 2):
        # By range, one member has partitions 0 and 1 and carries 120 of the 100 that it can.
        capacity = ("--capacity", "100", "--group", group)
        code, plan = run("plan", "consumers", "--loads", str(loads), *capacity, "-o", str(saved))
        assert code == 0, plan
        assert plan["before"] == {"consumers": 2, "max_load": 120}
        assert plan["after"]["max_load"] <= 100
        [move] = plan["moves"]
        assert (move["from"], move["to"], move["load"], move["reason"]) == (0, 1, 60, "overload")
        assert {name["client_id"] for name in plan["members"].values()} == {"m0", "m1"}
        assert all(name["member_id"] and name["host"] for name in plan["members"].values())
        assert plan["scope"] == {"group": group, "topics": [topic]}
        assert run("apply", str(saved))[1] == {"v": 1, "plan": plan, "fresh": True}
    wait_until(lambda: not _live(admin, group), what="the end of the group")
    code, said = run("apply", str(saved))
    assert code == 5
    assert "made for snapshot" in said
    with _members(cluster, group, topic, 2):
        assert run("apply", str(saved))[0] == 0, "the same assignment is the same world"
        admin.add_partitions(topic, 5)
        wait_until(lambda: run("apply", str(saved))[0] != 0, within_s=180, what="a new partition")
        code, said = run("apply", str(saved))
        assert code == 5
        assert f"{topic}-4" in said
    admin.delete_topic(topic)


def _live(admin: KafkaAdmin, group: str) -> bool:
    return any(g.members for g in admin.groups([group]))
