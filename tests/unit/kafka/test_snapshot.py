"""The cluster at one moment."""

from __future__ import annotations

from dataclasses import replace

from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.snapshot import take_placement, take_snapshot
from trimtab.model.cluster import NO_LEADER, Broker, BrokerId, TopicPartition
from trimtab.testing.fakes import FakeAdmin


def test_a_snapshot_holds_brokers_partitions_and_groups(world: FakeAdmin) -> None:
    snapshot = take_snapshot(world, clock=lambda: 42)

    assert (snapshot.ts, snapshot.cluster) == (42, "fake")
    assert [(b.id, b.rack) for b in snapshot.brokers] == [(1, "a"), (2, "b")]
    assert snapshot.partitions == (
        world.partitions[TopicPartition("orders", 0)],
        world.partitions[TopicPartition("orders", 1)],
    )
    assert snapshot.groups == (world.described["g"],)


def test_internal_topics_are_seen_only_when_named(world: FakeAdmin) -> None:
    snapshot = take_snapshot(
        world, topics=["__consumer_offsets", "trimtab.telemetry"], clock=lambda: 0
    )

    assert snapshot.topics == ("__consumer_offsets", "trimtab.telemetry")


def test_topics_beside_a_keyed_topic_are_left_out(world: FakeAdmin) -> None:
    for name in ("orders.assign", "orders.handover.pay", "orders.in", "bills.state.pay"):
        world.create_topic(TopicSpec(name=name, partitions=1, replication=1))

    kept = ("bills.state.pay", "orders", "orders.in")
    assert take_snapshot(world, clock=lambda: 0).topics == kept
    assert take_placement(world, clock=lambda: 0)[0].topics == kept
    everything, _ = take_placement(world, internal=True, clock=lambda: 0)
    assert "orders.assign" in everything.topics


def test_an_offline_partition_has_neither_size_nor_offsets(world: FakeAdmin) -> None:
    name = TopicPartition("orders", 0)
    world.partitions[name] = replace(world.partitions[name], leader=NO_LEADER, isr=())

    offline, alive = take_snapshot(world, clock=lambda: 0).partitions

    assert (offline.log_bytes, offline.begin_offset, offline.end_offset) == (None, None, None)
    assert (alive.log_bytes, alive.end_offset) == (200, 20)


def test_a_silent_broker_costs_only_what_it_leads(world: FakeAdmin) -> None:
    world.silent = {BrokerId(2)}

    heard, silent = take_snapshot(world, clock=lambda: 0).partitions

    assert (heard.log_bytes, heard.end_offset) == (100, 10)
    assert (silent.log_bytes, silent.end_offset) == (None, None)


def test_a_topic_deleted_between_two_questions_is_unknown_not_a_crash(world: FakeAdmin) -> None:
    world.before["log_dirs"] = lambda: world.delete_topic("orders")

    partitions = take_snapshot(world, clock=lambda: 0).partitions

    assert [(p.log_bytes, p.end_offset) for p in partitions] == [(None, None)] * 2


def test_committed_offsets_are_read_before_end_offsets(world: FakeAdmin) -> None:
    asked: list[str] = []
    world.before["committed"] = lambda: asked.append("committed")
    world.before["offsets"] = lambda: asked.append("offsets")

    take_snapshot(world, clock=lambda: 0)

    assert asked == ["committed", "offsets"]


def test_a_broker_known_only_from_replica_lists_stands_in_the_snapshot(world: FakeAdmin) -> None:
    name = TopicPartition("orders", 0)
    world.partitions[name] = replace(world.partitions[name], replicas=(BrokerId(1), BrokerId(9)))

    snapshot = take_snapshot(world, clock=lambda: 0)

    assert snapshot.brokers[-1] == Broker(id=BrokerId(9), alive=False)


def test_only_the_groups_asked_for_are_described(world: FakeAdmin) -> None:
    assert take_snapshot(world, groups=["nobody"], clock=lambda: 0).groups == ()


def test_a_placement_asks_for_no_size_offset_or_group(world: FakeAdmin) -> None:
    asked: list[str] = []
    for heavy in ("log_dirs", "offsets", "group_names", "groups", "committed", "eligible"):
        world.before[heavy] = lambda heavy=heavy: asked.append(heavy)  # type: ignore[misc]

    seen, down = take_placement(world, clock=lambda: 42)

    assert (seen.ts, seen.topics, asked) == (42, ("orders",), [])
    assert down == frozenset()


def test_a_placement_knows_who_is_down_and_who_is_eligible(world: FakeAdmin) -> None:
    name = TopicPartition("orders", 0)
    one, two, nine = BrokerId(1), BrokerId(2), BrokerId(9)
    world.partitions[name] = replace(
        world.partitions[name], replicas=(one, two, nine), isr=(one,), elr=(two,)
    )
    world.silent = {two}

    seen, down = take_placement(world, clock=lambda: 0)

    assert [p.elr for p in seen.partitions] == [(two,), ()]
    assert down == {two, nine}
    alive = {broker.id: broker.alive for broker in seen.brokers}
    assert alive == {one: True, two: False, nine: False}
    assert take_snapshot(world, clock=lambda: 0).brokers == seen.brokers
