"""Which keys wait in vain: each look-up can save a state that is only late."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from trimtab.apply.keys.end_search import KeySet, OverdueKey, lost_candidates
from trimtab.apply.keys.key_entry import AwaitedEnd
from trimtab.errors import BrokerUnavailable
from trimtab.model.cluster import TopicPartition

HERE, SOURCE = TopicPartition("orders", 2), TopicPartition("orders", 0)
WAITING = OverdueKey(partition=HERE, key=b"a", set_id=5, awaited=AwaitedEnd(0, 7))
SET = KeySet(b"a", 5)


@dataclass
class World:
    """A group that has passed END without a trace of the state, unless said otherwise."""

    routes: Collection[KeySet] = ()
    starts: Mapping[KeySet, int] = field(default_factory=dict)
    log_start: int = 20
    offset: int | None = 20
    parked: Collection[KeySet] = ()
    handover_end: int = 9
    asked: list[str] = field(default_factory=list)
    read_from: int | None = None

    def stop(self) -> None:
        pass

    def prepared(self, topic: str, keys: Collection[bytes]) -> Collection[KeySet]:
        self.asked.append("routes")
        return [name for name in self.routes if name.key in keys]

    def ends_of_starts(
        self, partition: TopicPartition, start: int | None, sets: Collection[KeySet]
    ) -> Mapping[KeySet, int]:
        assert (partition, set(sets)) == (HERE, {SET})
        self.asked.append("starts")
        self.read_from = start
        return self.starts

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append("log start")
        return dict.fromkeys(partitions, self.log_start)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append("committed")
        return {} if self.offset is None else dict.fromkeys(partitions, self.offset)

    def parked_ends(self, partition: TopicPartition, keys: Collection[bytes]) -> Collection[KeySet]:
        assert (partition, set(keys)) == (SOURCE, {b"a"})
        self.asked.append("parked")
        return self.parked

    def handover_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append("hand-overs")
        return dict.fromkeys(partitions, self.handover_end)


def test_a_state_is_lost_when_the_group_has_passed_end_and_nothing_has_it() -> None:
    world = World()
    (candidate,) = lost_candidates(world, [WAITING], {HERE: 33})
    assert candidate.waiting == WAITING
    assert not candidate.is_lost(handovers_read=8)
    assert candidate.is_lost(handovers_read=9)
    assert world.read_from == 33


def test_what_may_change_is_looked_up_before_what_follows_from_it() -> None:
    world = World()
    lost_candidates(world, [WAITING], {})
    assert world.asked == [
        *("committed", "routes", "starts", "log start", "committed", "parked", "hand-overs"),
    ]


@pytest.mark.parametrize(
    "world",
    [
        World(routes=[SET]),  # END and START will be sent again
        World(starts={SET: 30}),  # END was sent again, and nobody has read that one
        World(offset=7),  # END is the next record to read
        World(offset=None, log_start=0),  # the partition of END has no reader yet
        World(offset=None, log_start=20),  # END is gone, but a task may have read it before
        World(offset=5, log_start=20),
        World(parked=[SET]),  # END waits behind other records of its key
    ],
)
def test_a_state_that_is_only_late_is_not_given_up(world: World) -> None:
    assert lost_candidates(world, [WAITING], {}) == ()


@pytest.mark.parametrize(
    "world",
    [
        World(routes=[KeySet(b"a", 6), KeySet(b"b", 5)]),  # another migration
        World(starts={SET: 3}),  # an earlier START
        World(starts={SET: 12}),  # a repeated one whose END was passed as well
        World(parked=[KeySet(b"a", 6)]),
        World(log_start=0, offset=8),  # the offsets were moved past END
    ],
)
def test_what_concerns_other_sets_saves_no_state(world: World) -> None:
    (candidate,) = lost_candidates(world, [WAITING], {})
    assert candidate.is_lost(handovers_read=9)


def test_an_end_whose_place_is_unknown_is_waited_for() -> None:
    unknown = OverdueKey(partition=HERE, key=b"a", set_id=5, awaited=AwaitedEnd(0, -1))
    world = World()
    assert lost_candidates(world, [unknown], {}) == ()
    assert world.asked == []


def test_nothing_costly_is_read_while_the_group_has_not_passed_end() -> None:
    world = World(offset=7)
    lost_candidates(world, [WAITING], {})
    assert world.asked == ["committed"]


def test_a_source_that_cannot_answer_gives_up_nothing() -> None:
    class Silent(World):
        def parked_ends(
            self, partition: TopicPartition, keys: Collection[bytes]
        ) -> Collection[KeySet]:
            raise BrokerUnavailable("no answer")

    with pytest.raises(BrokerUnavailable):
        lost_candidates(Silent(), [WAITING], {})
