"""A member of a subscribed group, on a client that hands out what it is told to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from kafka import TopicPartition as TheirPartition
from kafka.admin import MemberToRemove
from kafka.errors import NoOffsetForPartitionError

from trimtab.apply.consumers.kafka import group_reader
from trimtab.apply.consumers.kafka.group_reader import open_group_reader
from trimtab.errors import ApplyError
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Client:
    """Hands out `found`; the logs end at `ends`."""

    def __init__(self, **_config: Any) -> None:
        self._fetcher = SimpleNamespace(PartitionRecords=None, _parse_fetched_data=None)
        self.found: dict[Any, list[Any]] = {}
        self.ends: dict[int, int] = {}
        self.positions: dict[int, int] = {}

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass

    def group_metadata(self) -> Any:
        return SimpleNamespace(state=None, member_id="m", generation_id=1)

    def committed(self, _place: Any, timeout_ms: int) -> int:
        return 0

    def seek(self, place: Any, offset: int) -> None:
        self.positions[place.partition] = offset

    def poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
        found, self.found = self.found, {}
        for place, records in found.items():
            self.positions[place.partition] = records[-1].offset + 1
        return found

    def position(self, place: Any, timeout_ms: int) -> int:
        return self.positions[place.partition]

    def close(self, *, autocommit: bool, timeout_ms: int) -> None:
        assert not autocommit

    def highwater(self, place: Any) -> int | None:
        return self.ends.get(place.partition)


def records(partition: int, *offsets: int) -> dict[Any, list[Any]]:
    found = [
        SimpleNamespace(
            topic="orders",
            partition=partition,
            offset=offset,
            key=None,
            value=b"v",
            headers=None,
            timestamp=1000,
        )
        for offset in offsets
    ]
    return {TheirPartition("orders", partition): found}


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Any]]]:
    """Who was taken off which group."""
    told: list[tuple[str, list[Any]]] = []

    class Admin:
        DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {"bootstrap_servers": None}

        def __init__(self, **_config: Any) -> None:
            pass

        def remove_group_members(self, group: str, members: list[Any]) -> None:
            told.append((group, members))

        def close(self) -> None:
            pass

    monkeypatch.setattr(group_reader, "KafkaConsumer", Client)
    monkeypatch.setattr(group_reader, "KafkaAdminClient", Admin)
    return told


def opened(instance: str | None = None) -> Any:
    line: Any = SimpleNamespace(longest_s=1.0)
    return open_group_reader(
        "pay",
        ["orders"],
        Cluster("x:1"),
        line=line,
        client_id="c",
        on_revoked=lambda _: None,
        instance=instance,
    )


def test_a_static_member_that_stops_takes_only_itself_off_the_group(removed: Any) -> None:
    reader = opened(instance="pod-1")
    reader.take([FIRST])
    reader.close()

    assert removed == [("pay", [MemberToRemove("m", "pod-1", reason="stopped")])]


@pytest.mark.parametrize(("instance", "joined"), [("pod-1", False), (None, True), (None, False)])
def test_a_member_that_never_joined_or_is_not_static_takes_nobody_off(
    removed: Any, instance: str | None, joined: bool
) -> None:
    reader = opened(instance)
    if joined:
        reader.take([FIRST])
    reader.close()

    assert removed == []


@pytest.mark.usefixtures("removed")
def test_a_partition_whose_leader_is_away_is_no_backlog() -> None:
    reader = opened()
    client = reader._consumer
    client.ends = {0: 5000, 1: 10}
    reader.take([FIRST, SECOND])
    client.found = records(0, 0) | records(1, 0, 1)
    assert [(r.partition, r.offset) for r in reader.read(0.0)] == [(0, 0), (1, 0), (1, 1)]
    assert reader.behind() == 4999 + 8

    client.found = records(1, 2)  # of the other nothing comes any more
    reader.read(0.0)

    assert reader.behind() == 7


def test_partitions_without_offsets_that_come_within_a_poll_are_sought_by_the_next(
    removed: Any,
) -> None:
    """With `auto_offset_reset=none` the client raises before the reader could seek."""
    reader = opened()
    client = reader._consumer

    def assigned_meanwhile(timeout_ms: int) -> Any:
        reader._owned = reader._without_position = frozenset({FIRST})
        raise NoOffsetForPartitionError("orders-0")

    client.poll = assigned_meanwhile
    assert reader.read(0.0) == []

    def lost(timeout_ms: int) -> Any:
        raise NoOffsetForPartitionError("orders-0")

    client.poll = lost
    with pytest.raises(ApplyError, match="committed an offset"):
        reader.read(0.0)
