"""When waiting keys are looked up, and what happens to those whose state is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import wait

import pytest

from tests.unit.apply.keys.test_end_search import World
from trimtab.apply.keys.handover_layout import handover_writes
from trimtab.apply.keys.kafka.lost_ends import LostEnds
from trimtab.apply.keys.key_entry import KeyHandover
from trimtab.apply.keys.keyed_handler import counting_handler
from trimtab.apply.keys.message_sets import DataRecord, StartMarker
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.state_layout import RestoredState
from trimtab.apply.keys.task_round import TaskHandling
from trimtab.errors import BrokerUnavailable
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

HERE = TopicPartition("orders", 2)
START = StartMarker(shard=0, gen=1, set_id=5, source=0, end_offset=7)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Setting:
    """A task whose key waits, and what looks after it."""

    def __init__(self, world: World | None = None) -> None:
        self.clock = Clock()
        self.world = world or World()
        handling = TaskHandling(handler=counting_handler(), clock=self.clock)
        self.task = PartitionTask(HERE, RestoredState(), handling, partitions=3)
        self.lost_ends = LostEnds(self.world, after_s=30.0, clock=self.clock)
        self.offset = 0

    def read(self, record: StartMarker | DataRecord) -> None:
        headers = headers_for(record)
        self.task.read(Record(*HERE, self.offset, b"a", b"", headers, 0))
        self.offset += 1

    def look(self, *, after_s: float = 0.0, handovers_read: int = 9) -> None:
        self.clock.now += after_s
        self.lost_ends.look(
            {HERE: self.task}, read_to={HERE: 1}, handovers_read={HERE: handovers_read}
        )
        if self.lost_ends._look is not None:
            wait([self.lost_ends._look])

    def close(self) -> None:
        self.lost_ends.close()


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    made.close()


def test_a_key_whose_state_is_lost_goes_on_with_the_empty_state(setting: Setting) -> None:
    setting.read(START)
    setting.read(DataRecord(shard=0, gen=1, src=1, set_id=5))
    setting.look(after_s=31)
    assert setting.task.counts.waiting == 1
    setting.look()
    assert (setting.task.counts.waiting, setting.task.counts.lost_states) == (0, 1)
    setting.task.replay(lambda: False)
    assert setting.task.counts.applied == 1
    (adoption,) = setting.task.finish_round().adoptions
    assert adoption.lost


def test_a_key_that_has_not_waited_long_is_left_alone(setting: Setting) -> None:
    setting.look(after_s=20)
    setting.read(START)
    setting.look(after_s=20)
    setting.look()
    assert setting.world.asked == []


def test_keys_are_looked_up_again_only_after_a_while(setting: Setting) -> None:
    setting.world.offset = 7
    setting.read(START)
    for _ in range(10):
        setting.look(after_s=11)
    assert setting.world.asked == ["committed"] * 3


def test_hand_overs_are_read_up_to_their_end_first(setting: Setting) -> None:
    setting.read(START)
    setting.look(after_s=31)
    for _ in range(3):
        setting.look(after_s=31, handovers_read=8)
    assert setting.task.counts.waiting == 1
    setting.look(handovers_read=9)
    assert setting.task.counts.lost_states == 1


def test_a_state_that_arrives_at_the_last_moment_is_kept(setting: Setting) -> None:
    setting.read(START)
    setting.look(after_s=31, handovers_read=0)
    setting.look(handovers_read=8)
    state = KeyHandover(set_id=5, source=0, value=b"41")
    writes: Sequence[tuple[bytes, bytes | None]] = handover_writes(b"a", state, 1000)
    for offset, (key, text) in enumerate(writes, 8):
        setting.task.read_handover(Record("handovers", 2, offset, key, text, (), 0))
    setting.look(handovers_read=9)
    assert (setting.task.counts.waiting, setting.task.counts.lost_states) == (0, 0)
    assert setting.task.counts.handovers_in == 1


def test_another_start_begins_the_search_anew(setting: Setting) -> None:
    setting.read(START)
    setting.look(after_s=31)
    setting.read(StartMarker(shard=0, gen=1, set_id=5, source=0, end_offset=25))
    setting.look()
    assert setting.task.counts.waiting == 1
    setting.look(after_s=31)
    setting.look()
    assert setting.task.counts.waiting == 1, "the group has not passed the second END"


def test_a_task_that_has_gone_is_forgotten(setting: Setting) -> None:
    setting.read(START)
    setting.look(after_s=31)
    setting.lost_ends.look({}, read_to={}, handovers_read={})
    assert setting.task.counts.waiting == 1
    assert setting.lost_ends._candidates == ()


def test_brokers_that_do_not_answer_give_up_nothing() -> None:
    class Silent(World):
        def stop(self) -> None:
            self.asked.append("stop")

        def handover_ends(self, partitions: object) -> dict[TopicPartition, int]:
            raise BrokerUnavailable("no answer")

    setting = Setting(Silent())
    setting.read(START)
    setting.look(after_s=31)
    setting.look()
    assert setting.task.counts.waiting == 1
    setting.close()
    assert setting.world.asked[-1] == "stop"
