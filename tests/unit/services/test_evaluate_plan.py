"""A plan's forecast beside the group as it is, without brokers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.golden import samples
from trimtab.errors import ConfigError, ThinData
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.model.load import Measurement, PartitionLoad, Source
from trimtab.services.evaluate_plan import evaluate_plan
from trimtab.testing.fakes import FakeAdmin

PLAN = samples.readme_plan("trim", group="pay")
CLUSTER = Cluster("nowhere:1")
ONE = (BrokerId(1),)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """A group whose members read what the plan gives them."""
    shares: dict[int, set[TopicPartition]] = {}
    for partition, consumer in PLAN.assignment.items():
        shares.setdefault(consumer, set()).add(partition)
    members = tuple(
        Member(member_id=str(c), client_id="", host="", partitions=frozenset(share))
        for c, share in shares.items()
    )
    admin = FakeAdmin(
        brokers=[Broker(id=ONE[0])],
        partitions=[
            Replicas(topic="orders", partition=n, leader=ONE[0], replicas=ONE, isr=ONE)
            for n in range(4)
        ],
        groups=[Group(name="pay", state="STABLE", members=members)],
    )
    monkeypatch.setattr(Cluster, "admin", lambda *_, **__: nullcontext(admin))
    return admin


def measured(*bytes_s: float) -> Measurement:
    return Measurement(
        cluster=None,
        from_ts=1,
        to_ts=2,
        window_s=1.0,
        rejects=0,
        partitions=tuple(
            PartitionLoad(
                topic="orders", partition=n, bytes_s=load, records_s=1.0, source=Source.EVENTS
            )
            for n, load in enumerate(bytes_s)
        ),
    )


def test_the_error_is_what_was_found_above_the_forecast(live: FakeAdmin) -> None:
    found = evaluate_plan(PLAN, CLUSTER, measured(863461, 1236539, 400000, 500000))

    heaviest = max(PLAN.assignment.loads(found_loads(863461, 1236539, 400000, 500000)).values())
    assert found.check.forecast == PLAN.after
    assert found.check.observed.max_load == heaviest
    assert found.check.error == {
        "consumers": 0,
        "max_load": pytest.approx(heaviest - PLAN.after.max_load),
    }
    assert found.journal is None


def found_loads(*bytes_s: float) -> dict[TopicPartition, float]:
    return {TopicPartition("orders", n): load for n, load in enumerate(bytes_s)}


def test_a_partition_of_unknown_load_is_named(live: FakeAdmin) -> None:
    with pytest.raises(ThinData, match="orders-3"):
        evaluate_plan(PLAN, CLUSTER, measured(1, 1, 1))


def test_a_group_that_reads_nothing_is_refused(live: FakeAdmin) -> None:
    live.described["pay"] = Group(name="pay", state="EMPTY", members=())

    with pytest.raises(ThinData, match="group pay"):
        evaluate_plan(PLAN, CLUSTER, measured(1, 1, 1, 1))


def test_a_plan_without_a_group_and_one_of_another_layer_are_refused() -> None:
    with pytest.raises(ConfigError, match="names no group"):
        evaluate_plan(samples.readme_plan("trim"), CLUSTER)
    with pytest.raises(ConfigError, match="Plans for keys"):
        evaluate_plan(samples._key_plan(), CLUSTER)
