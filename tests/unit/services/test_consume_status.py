"""The status of a keyed group, from offsets of a fake cluster and counted changelogs."""

from __future__ import annotations

import pytest

from trimtab.apply.keys.chunks import state_key
from trimtab.apply.keys.kafka.tally_reader import GroupTallies
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry
from trimtab.apply.keys.state_layout import entry_text
from trimtab.apply.keys.state_tally import HandoverTally, StateTally
from trimtab.errors import ConfigError
from trimtab.evaluate.keyed_status import summary
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.report.keyed_status import status_document
from trimtab.services.consume_status import ConsumeStatusRequest, partitions_of, status_of
from trimtab.testing.fakes import FakeAdmin

ONE = BrokerId(1)
REQUEST = ConsumeStatusRequest(group="pay", topic="orders", watch_s=2.0)
OLD = TopicPartition("orders", 1)


def admin(*names: str, committed: dict[TopicPartition, int] | None = None) -> FakeAdmin:
    return FakeAdmin(
        brokers=[Broker(id=ONE)],
        partitions=[
            Replicas(
                topic=name,
                partition=number,
                leader=ONE,
                replicas=(ONE,),
                isr=(ONE,),
                begin_offset=0,
                end_offset=100,
            )
            for name in names
            for number in range(2)
        ],
        groups=[Group(name="pay", state="Empty", committed=committed or {})],
    )


def tallies() -> GroupTallies:
    """Key a waits at partition 0 for the END at offset 50 of partition 1."""
    found = GroupTallies(
        states={0: StateTally(), 1: StateTally()},
        handovers={0: HandoverTally(), 1: HandoverTally()},
    )
    wait: KeyEntry[bytes] = KeyEntry(status=EntryStatus.WAIT, set_id=7, awaited=AwaitedEnd(1, 50))
    found.states[0].add(state_key(b"a", 0), entry_text(wait), 1_000)
    return found


ALL = ("orders", "orders.state.pay", "orders.handover.pay")


def test_offsets_that_stand_still_while_watched_tell_that_nobody_reads() -> None:
    cluster = admin(*ALL, committed={TopicPartition("orders", 0): 100, OLD: 40})
    pauses: list[float] = []

    found = status_of(
        cluster, REQUEST, tallies, range(2), clock=lambda: 13_000_000, pause=pauses.append
    )

    assert pauses == [2.0]
    assert summary(found) == (
        "1 key waits for 12 s: partition 1 has no reader, 60 records behind.",
    )


def test_offsets_that_move_while_watched_tell_of_a_late_reader() -> None:
    cluster = admin(*ALL, committed={TopicPartition("orders", 0): 100, OLD: 40})

    def read_on(_pause_s: float) -> None:
        cluster.described["pay"] = Group(name="pay", state="Empty", committed={OLD: 45})

    found = status_of(cluster, REQUEST, tallies, range(2), pause=read_on)

    assert "partition 1 is read, but is 60 records behind" in summary(found)[0]


def test_the_member_that_kafka_has_assigned_a_partition_to_is_named() -> None:
    cluster = admin(*ALL)
    member = Member(member_id="m", client_id="shop-1", host="h", partitions=frozenset({OLD}))
    cluster.described["pay"] = Group(
        name="pay", state="Stable", members=(member,), committed={OLD: 40}
    )

    found = status_of(cluster, REQUEST, tallies, range(2), pause=lambda _: None)

    assert "the reader of partition 1 (shop-1) makes no progress" in summary(found)[0]


def test_without_anything_to_wait_for_nothing_is_watched() -> None:
    cluster = admin(*ALL, committed={OLD: 51})

    def never(_pause_s: float) -> None:
        raise AssertionError

    found = status_of(cluster, REQUEST, tallies, range(2), pause=never)
    document = status_document(found)

    assert document["partitions"][0]["never_read"] is True
    assert document["total"]["lag_records"] == 149
    assert document["waiting"][0]["cause"] == "state_lost"


def test_a_state_that_arrives_while_topics_are_read_is_not_taken_for_lost() -> None:
    """END was passed and no hand-over is there: the second look finds the key at its new place."""
    cluster = admin(*ALL, committed={OLD: 51})
    arrived = tallies()
    arrived.states[0].add(state_key(b"a", 0), entry_text(KeyEntry(value=b"1", set_id=7)), 2_000)
    looks = [tallies(), arrived]

    found = status_of(cluster, REQUEST, lambda: looks.pop(0), range(2), pause=lambda _: None)

    assert (found.waits, looks) == ((), [])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("orders.state.pay", "orders.handover.pay"), 'no topic "orders"'),
        (("orders", "orders.handover.pay"), "there is no topic orders.state.pay"),
        (("orders", "orders.state.pay"), "there is no topic orders.handover.pay"),
    ],
)
def test_a_missing_topic_is_named_with_what_to_do(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        partitions_of(admin(*names), *ALL, "pay")

    assert raised.value.hint
