"""A forwarder's books against a naive model: every record by itself, nothing remembered."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimtab.apply.records.forwarding import ForwardProgress
from trimtab.model.cluster import TopicPartition

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]


class Books(RuleBasedStateMachine):
    """Takes, arrivals in any order, commits and partitions that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = ForwardProgress()
        self.taken: dict[TopicPartition, dict[int, bool]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.arrived: set[tuple[TopicPartition, int]] = set()

    @rule(partition=st.sampled_from(PARTITIONS), gap=st.integers(0, 3))
    def take(self, partition: TopicPartition, gap: int) -> None:
        mine = self.taken.setdefault(partition, {})
        offset = max(mine, default=self.committed.get(partition, 0) - 1) + 1 + gap
        mine[offset] = False
        self.progress.taken(partition, offset, size=1)

    @precondition(lambda self: any(self.taken.values()))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from([p for p in PARTITIONS if self.taken.get(p)]))
        offset = data.draw(st.sampled_from(sorted(self.taken[partition])))
        self.taken[partition][offset] = True
        self.arrived.add((partition, offset))
        self.progress.acknowledged(partition, offset)

    @rule(data=st.data(), kept=st.booleans())
    def commit(self, data: st.DataObject, kept: bool) -> None:
        safe = self.progress.safe()
        for partition, offset in safe.items():
            assert all(done for at, done in self.taken[partition].items() if at < offset)
            assert offset >= self.committed.get(partition, 0)
        if kept:
            self.committed |= safe
        else:
            self.progress.not_committed(safe)

    @rule(partition=st.sampled_from(PARTITIONS))
    def leave(self, partition: TopicPartition) -> None:
        self.taken.pop(partition, None)
        self.progress.forget([partition])

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 50))
    def late_news(self, partition: TopicPartition, offset: int) -> None:
        if offset not in self.taken.get(partition, {}):
            self.progress.acknowledged(partition, offset)

    @invariant()
    def counts_what_is_under_way(self) -> None:
        open_now = sum(not done for mine in self.taken.values() for done in mine.values())
        assert self.progress.records == self.progress.bytes == open_now
        assert self.progress.under_way(PARTITIONS) == open_now


TestBooks = Books.TestCase
