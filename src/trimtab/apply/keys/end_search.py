"""Looks for the states of keys that have waited long: late, or lost for good?

Why      A new group, or one that slept longer than the topic is kept, may read START and never its
         END: the key would wait for ever.
Promise  No state is given up that may still come. The look-ups are made in the one order in which
         none can be overtaken: routes, repeated STARTs, the group's offset behind END, END among
         parked records, then the end of the hand-overs, up to which the task must have read them.
         That END is gone from its log is not enough: a task may have read it before that and not
         committed yet. The group must have committed an offset behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trimtab.apply.keys.key_entry import AwaitedEnd
from trimtab.apply.keys.task import end_is_unreadable
from trimtab.model.cluster import TopicPartition


class KeySet(NamedTuple):
    """A message set of a key."""

    key: bytes
    set_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueKey:
    """A key that waits for a state; `partition` is where it waits."""

    partition: TopicPartition
    key: bytes
    set_id: int
    awaited: AwaitedEnd

    @property
    def name(self) -> KeySet:
        """The set it waits for."""
        return KeySet(self.key, self.set_id)

    @property
    def source(self) -> TopicPartition:
        """The partition of END."""
        return TopicPartition(self.partition.topic, self.awaited.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCandidate:
    """A key whose state is lost unless `.handover` has it below `handover_end`.

    `end` is the last END that any START of the set names.
    """

    waiting: OverdueKey
    end: AwaitedEnd
    log_start: int
    group_committed: int
    handover_end: int

    def is_lost(self, handovers_read: int) -> bool:
        """Whether the state will never come, if the key still waits for it."""
        return end_is_unreadable(
            self.end,
            markers_final=True,
            log_start=self.log_start,
            group_committed=self.group_committed,
            end_parked=False,
            handovers_read=handovers_read >= self.handover_end,
        )


class EndSources(Protocol):
    """Where the look-ups are made; each answer is newer than the call.

    A source that cannot answer raises: nothing is then given up.
    """

    def stop(self) -> None:
        """Ends the look-up that is being made, from another thread."""
        ...

    def prepared(self, topic: str, keys: Collection[bytes]) -> Collection[KeySet]:
        """The migrations of these keys that `.assign` has as prepared."""
        ...

    def ends_of_starts(
        self, partition: TopicPartition, start: int | None, sets: Collection[KeySet]
    ) -> Mapping[KeySet, int]:
        """The largest END offset that STARTs of these sets name, from offset `start` to the end."""
        ...

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offsets of these partitions."""
        ...

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The group's offsets of these partitions, those it has."""
        ...

    def parked_ends(self, partition: TopicPartition, keys: Collection[bytes]) -> Collection[KeySet]:
        """The sets to which parked ENDs of these keys lead, all transactions begun included."""
        ...

    def handover_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends of these tasks' hand-overs, all transactions begun included."""
        ...


def lost_candidates(
    sources: EndSources, waiting: Sequence[OverdueKey], read_to: Mapping[TopicPartition, int]
) -> tuple[LostCandidate, ...]:
    """The keys whose state is lost unless it is among the hand-overs.

    `read_to` are offsets below which the tasks have read their partitions, as far as known.
    """
    found = [one for one in waiting if one.awaited.offset >= 0]
    if not found:
        return ()
    passed = sources.committed(_places(found))  # before anything costly is read
    found = [one for one in found if passed.get(one.source, -1) > one.awaited.offset]
    found = _without_prepared(sources, found)
    if not found:
        return ()
    ends = _final_ends(sources, found, read_to)
    starts, committed = sources.log_starts(_places(found)), sources.committed(_places(found))
    found = [one for one in found if committed.get(one.source, -1) > ends[one.partition, one.name]]
    found = _without_parked(sources, found)
    if not found:
        return ()
    handover_ends = sources.handover_ends(sorted({one.partition for one in found}))
    return tuple(
        LostCandidate(
            waiting=one,
            end=AwaitedEnd(one.awaited.partition, ends[one.partition, one.name]),
            log_start=starts[one.source],
            group_committed=committed[one.source],
            handover_end=handover_ends[one.partition],
        )
        for one in found
    )


def _places(waiting: Sequence[OverdueKey]) -> list[TopicPartition]:
    return sorted({one.source for one in waiting})


def _without_prepared(sources: EndSources, waiting: Sequence[OverdueKey]) -> list[OverdueKey]:
    """Without those whose END and START are sent again before their migration is done."""
    found = []
    for topic in sorted({one.partition.topic for one in waiting}):
        here = [one for one in waiting if one.partition.topic == topic]
        prepared = sources.prepared(topic, {one.key for one in here})
        found += [one for one in here if one.name not in prepared]
    return found


def _final_ends(
    sources: EndSources, waiting: Sequence[OverdueKey], read_to: Mapping[TopicPartition, int]
) -> dict[tuple[TopicPartition, KeySet], int]:
    """Where the last END of each set is: one that was fenced is sent again, with another START."""
    found = {}
    for partition in sorted({one.partition for one in waiting}):
        here = [one for one in waiting if one.partition == partition]
        sets = {one.name for one in here}
        ends = sources.ends_of_starts(partition, read_to.get(partition), sets)
        for one in here:
            found[partition, one.name] = max(one.awaited.offset, ends.get(one.name, -1))
    return found


def _without_parked(sources: EndSources, waiting: Sequence[OverdueKey]) -> list[OverdueKey]:
    """Without those whose END waits behind other records of the key."""
    found = []
    for source in _places(waiting):
        here = [one for one in waiting if one.source == source]
        parked = sources.parked_ends(source, {one.key for one in here})
        found += [one for one in here if one.name not in parked]
    return found
