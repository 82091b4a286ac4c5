"""How a keyed group is doing: who owns its keys, which keys wait, and what they wait for.

Why      A key that moves waits until its old partition has read up to END. If nobody reads that
         partition, the key waits for ever; its own partition looks healthy all the while.
Promise  Everything follows from changelogs, hand-overs and offsets, so no consumer needs to run.
         Offsets that were looked up twice tell a slow reader from none.
Cost     One look at each waiting key and each hand-over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingKey:
    """A key whose state has not arrived; END is at an offset of its old partition, -1 if unknown.

    `since_ts` is the time of the changelog record that says so.
    """

    key: bytes
    set_id: int
    since_ts: int
    end_partition: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverUnderWay:
    """A state that was sent and not adopted yet; `size_bytes` as it is stored."""

    key: bytes
    set_id: int
    size_bytes: int
    since_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContents:
    """What a partition's changelog says; `state_bytes` are its live records as stored."""

    owned: int = 0
    left: int = 0
    waiting: tuple[WaitingKey, ...] = ()
    parked: Mapping[bytes, int] = field(default_factory=dict)
    parked_bytes: int = 0
    early: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """First and next offset of a partition, and the group's offset; None if not known."""

    begin: int | None
    end: int | None
    committed: int | None

    @property
    def lag_records(self) -> int | None:
        """What the group has not read yet."""
        if self.end is None:
            return None
        read = self.begin if self.committed is None else self.committed
        return None if read is None else max(0, self.end - read)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPartition:
    """All that is known of one partition.

    `still` says that the group's offset did not move between two looks although there was something
    to read. `owner` is the member that Kafka has assigned it to, if the group has members.
    """

    partition: int
    contents: PartitionContents
    under_way: tuple[HandoverUnderWay, ...] = ()
    data: ReadPosition
    handovers: ReadPosition
    still: bool = False
    owner: str | None = None

    @property
    def never_read(self) -> bool:
        """Whether the group has no offset here."""
        return self.data.committed is None


class WaitCause(StrEnum):
    """What a waiting key waits for."""

    END_NOT_READ = "end_not_read"
    END_PARKED = "end_parked"
    HANDOVER_NOT_READ = "handover_not_read"
    STATE_LOST = "state_lost"
    ON_ITS_WAY = "on_its_way"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """What a waiting key waits for, and the partition whose reader it depends on."""

    cause: WaitCause
    partition: int | None


@dataclass(frozen=True, slots=True)
class KeyWait:
    """A waiting key of a partition and its reason."""

    partition: int
    waiting: WaitingKey
    reason: WaitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStatus:
    """The state of a keyed group on one topic at one time; waits are sorted, oldest first."""

    group: str
    topic: str
    ts: int
    partitions: tuple[KeyedPartition, ...]
    waits: tuple[KeyWait, ...]

    def age_s(self, since_ts: int | None) -> float | None:
        """How long ago this was."""
        return None if since_ts is None else max(0, self.ts - since_ts) / 1e6


def keyed_status(
    group: str, topic: str, ts: int, partitions: Iterable[KeyedPartition]
) -> KeyedStatus:
    """The status from what is known of each partition."""
    ordered = tuple(sorted(partitions, key=lambda p: p.partition))
    by_number = {p.partition: p for p in ordered}
    waits = [
        KeyWait(p.partition, key, wait_reason(p, key, by_number))
        for p in ordered
        for key in p.contents.waiting
    ]
    waits.sort(key=lambda w: (w.waiting.since_ts, w.partition, w.waiting.key))
    return KeyedStatus(group=group, topic=topic, ts=ts, partitions=ordered, waits=tuple(waits))


def wait_reason(
    here: KeyedPartition, waiting: WaitingKey, partitions: Mapping[int, KeyedPartition]
) -> WaitReason:
    """Why a key of `here` waits: the first of these rules that holds."""
    if any(h.key == waiting.key and h.set_id == waiting.set_id for h in here.under_way):
        return WaitReason(WaitCause.HANDOVER_NOT_READ, here.partition)
    source = partitions.get(waiting.end_partition)
    if source is None or waiting.end_offset < 0:
        return WaitReason(WaitCause.UNKNOWN, None)
    if source.contents.parked.get(waiting.key):
        return WaitReason(WaitCause.END_PARKED, source.partition)
    begin, committed = source.data.begin, source.data.committed
    if begin is not None and begin > waiting.end_offset:
        return WaitReason(WaitCause.STATE_LOST, source.partition)
    if committed is None or committed <= waiting.end_offset:
        return WaitReason(WaitCause.END_NOT_READ, source.partition)
    return WaitReason(WaitCause.STATE_LOST, source.partition)


def losses(status: KeyedStatus) -> frozenset[tuple[int, bytes, int]]:
    """Partition, key and set of the waits for a state that seems to be lost."""
    return frozenset(
        (wait.partition, wait.waiting.key, wait.waiting.set_id)
        for wait in status.waits
        if wait.reason.cause is WaitCause.STATE_LOST
    )


def confirmed(first: KeyedStatus, second: KeyedStatus) -> KeyedStatus:
    """The second status, in which a state counts as lost only if both say so.

    Topics are read one after another: a state that arrives meanwhile may be seen neither in
    `.handover` nor in `.state`. What was lost before the second look began stays lost.
    """
    doubtful = losses(second) - losses(first)
    waits = tuple(
        replace(wait, reason=WaitReason(WaitCause.ON_ITS_WAY, wait.partition))
        if (wait.partition, wait.waiting.key, wait.waiting.set_id) in doubtful
        else wait
        for wait in second.waits
    )
    return replace(second, waits=waits)


def holding_up(status: KeyedStatus) -> frozenset[int]:
    """The partitions whose readers others wait for."""
    reading = {WaitCause.END_NOT_READ, WaitCause.HANDOVER_NOT_READ}
    found = (wait.reason for wait in status.waits if wait.reason.cause in reading)
    return frozenset(r.partition for r in found if r.partition is not None)


# ------------------------------------------------------------ in plain words


def summary(status: KeyedStatus) -> tuple[str, ...]:
    """What an operator must know, in sentences; the most urgent first."""
    return tuple(_sentences(status))


def _sentences(status: KeyedStatus) -> Iterator[str]:
    if status.waits:
        yield _waiting(status)
    else:
        yield "No key waits."
    under_way = [h for p in status.partitions for h in p.under_way]
    if under_way:
        oldest = _time(status.age_s(min(h.since_ts for h in under_way)))
        size = sum(h.size_bytes for h in under_way)
        yield (
            f"{_count(len(under_way), 'state is', 'states are')} under way ({size:,} bytes), "
            f"the oldest for {oldest}."
        )
    never = [p.partition for p in status.partitions if p.never_read]
    if never and len(never) == len(status.partitions):
        yield "No partition was ever read by this group."
    elif never:
        yield f"{_partitions(never)} never read by this group."


def _waiting(status: KeyedStatus) -> str:
    oldest = _time(status.age_s(status.waits[0].waiting.since_ts))
    by_number = {p.partition: p for p in status.partitions}
    reasons = Counter(wait.reason for wait in status.waits)
    keys = len(status.waits)
    most = [
        (f"{count} of them: " if len(reasons) > 1 else "") + _why(reason, by_number)
        for reason, count in sorted(reasons.items(), key=lambda r: (-r[1], str(r[0])))
    ]
    verb = "key waits" if keys == 1 else "keys wait, the oldest"
    return f"{keys} {verb} for {oldest}: {'; '.join(most)}."


def _why(reason: WaitReason, partitions: Mapping[int, KeyedPartition]) -> str:
    number = reason.partition
    there = None if number is None else partitions.get(number)
    match reason.cause:
        case WaitCause.END_NOT_READ if there is not None:
            return _reader(there, there.data)
        case WaitCause.HANDOVER_NOT_READ if there is not None:
            return f"the state was sent, and {_reader(there, there.handovers)}"
        case WaitCause.END_PARKED:
            return f"partition {number} waits for the state of the same key itself"
        case WaitCause.STATE_LOST:
            return (
                f"the state seems to be lost: partition {number} was read beyond END, or does not "
                "have it any more; a reader that finds the same goes on without the state"
            )
        case WaitCause.ON_ITS_WAY:
            return "the state is on its way"
        case _:
            return "it is not known what for"


def _reader(there: KeyedPartition, position: ReadPosition) -> str:
    name = f"partition {there.partition}"
    if position.committed is None and there.owner is None:
        return f"{name} was never read"
    behind = "" if position.lag_records is None else f", {position.lag_records} records behind"
    if there.owner is not None:
        state = "makes no progress" if there.still else "is on its way"
        return f"the reader of {name} ({there.owner}) {state}{behind}"
    parked = sum(there.contents.parked.values())
    if there.still and parked:
        paused = f"or it is paused with {parked} parked records"
        return f"{name} makes no progress{behind}: it has no reader, {paused}"
    if there.still:
        return f"{name} has no reader{behind}"
    return f"{name} is read, but is{behind.removeprefix(',') or ' late'}"


def _partitions(numbers: Collection[int]) -> str:
    listed = ", ".join(map(str, sorted(numbers)))
    return f"Partition {listed} was" if len(numbers) == 1 else f"Partitions {listed} were"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _time(seconds: float | None) -> str:
    """A time in words.

    >>> [_time(s) for s in (0.31, 12.4, 200, 9000)]
    ['0.3 s', '12 s', '3 min', '2.5 h']
    """
    if seconds is None:
        return "an unknown time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
