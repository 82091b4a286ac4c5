"""The part of the set audit that judges moves: markers, adoptions, and the state at rest.

Promise  Markers that a gateway repeated after a crash count once, markers of a fenced generation do
         not count. What retention may have deleted is never missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.evaluate.key_history import (
    KeptEntry,
    KeptStatus,
    KeyHistory,
    KeySetPlace,
    SetFinding,
    SetFindingKind,
    SetMarker,
    SetMarkerKind,
)


def counted_markers(markers: Iterable[SetMarker]) -> tuple[SetMarker, ...]:
    """END and START that tasks obey, by partition and offset.

    A record of an earlier generation than one before it in its partition was fenced: every
    generation begins with FENCE.
    """
    newest: dict[tuple[int, int], int] = {}
    found = []
    for marker in sorted(markers, key=lambda m: (m.partition, m.offset)):
        writer = (marker.partition, marker.shard)
        gen = newest.get(writer, marker.gen)
        if marker.gen < gen:
            continue
        newest[writer] = marker.gen
        if marker.kind is not SetMarkerKind.FENCE:
            found.append(marker)
    return tuple(found)


@dataclass(slots=True)
class KeyMoves:
    """What is known of the moves of one key; `adopted` are the partitions that adopted a set."""

    ends: dict[int, list[SetMarker]] = field(default_factory=dict)
    starts: dict[int, list[SetMarker]] = field(default_factory=dict)
    adopted: dict[int, set[int]] = field(default_factory=dict)
    entries: list[KeptEntry] = field(default_factory=list)
    parked: dict[int, int] = field(default_factory=dict)
    early: set[tuple[int, int]] = field(default_factory=set)
    handovers: set[tuple[int, int]] = field(default_factory=set)
    chain: str | None = None

    @property
    def sets(self) -> tuple[int, ...]:
        """All sets above 0."""
        return tuple(sorted({*self.ends, *self.starts, *self.adopted}))

    def place_of(self, set_id: int) -> int | None:
        """The partition that START gives for a set; None if there is no START."""
        return min((m.partition for m in self.starts.get(set_id, ())), default=None)

    def is_adopted(self, set_id: int) -> bool:
        """Whether the state of a set has arrived, as far as the partition of its START knows.

        An entry of a later set there was reached through this one.
        """
        place = self.place_of(set_id)
        return bool(self.adopted.get(set_id)) or any(
            e.partition == place and e.set_id > set_id for e in self.entries
        )


def moves_by_key(history: KeyHistory, markers: Iterable[SetMarker]) -> dict[bytes, KeyMoves]:
    """The moves of every key that has moved or has an entry; `markers` are the counted ones."""
    found: defaultdict[bytes, KeyMoves] = defaultdict(KeyMoves)
    for marker in markers:
        moves = found[marker.key]
        side = moves.ends if marker.kind is SetMarkerKind.END else moves.starts
        side.setdefault(marker.set_id, []).append(marker)
    for entry in history.entries:
        found[entry.key].entries.append(entry)
    for key, set_id, partition in _adoptions(history):
        found[key].adopted.setdefault(set_id, set()).add(partition)
    for (partition, key), count in history.parked.items():
        found[key].parked[partition] = count
    for key, set_id, partition in history.early:
        found[key].early.add((set_id, partition))
    for key, set_id, partition in history.handovers:
        found[key].handovers.add((set_id, partition))
    return dict(found)


def _adoptions(history: KeyHistory) -> Iterator[KeySetPlace]:
    """What shows that a set was adopted: a tombstone, an applied record, or the owner's entry."""
    yield from history.adopted
    for receipt in history.receipts:
        if receipt.set_id:
            yield KeySetPlace(receipt.key, receipt.set_id, receipt.partition)
    for entry in history.entries:
        if entry.status is KeptStatus.OWN and entry.set_id:
            yield KeySetPlace(entry.key, entry.set_id, entry.partition)


def is_moving(moves: KeyMoves) -> bool:
    """Whether a move of the key is under way."""
    return bool(
        moves.parked
        or moves.early
        or moves.handovers
        or any(e.status is KeptStatus.WAIT for e in moves.entries)
        or any(not moves.is_adopted(s) for s in {*moves.starts, *moves.ends})
    )


# ------------------------------------------------------------ V4


def adoption_findings(
    key: bytes, moves: KeyMoves, log_starts: Mapping[int, int], *, at_rest: bool
) -> Iterator[SetFinding]:
    """V4: each set is adopted once; END, START and adoption agree."""
    newest = max(moves.sets, default=0)
    for set_id in moves.sets:
        ends, starts = moves.ends.get(set_id, []), moves.starts.get(set_id, [])
        adopted = moves.adopted.get(set_id, set())
        under_way = not at_rest and set_id == newest
        if ends and not starts and not under_way and not log_starts.get(ends[-1].other):
            detail = f"set {set_id} has END on partition {ends[-1].partition} and no START"
            yield _found(SetFindingKind.END_ALONE, key, ends[-1].partition, set_id, detail)
        if starts and not ends and not under_way and _is_readable(starts[-1], log_starts):
            detail = f"set {set_id} has START on partition {starts[-1].partition} and no END"
            yield _found(SetFindingKind.START_ALONE, key, starts[-1].partition, set_id, detail)
        if starts and ends and (why := _disagreement(ends, starts, log_starts)):
            partition = starts[-1].partition
            yield _found(SetFindingKind.MARKERS_DISAGREE, key, partition, set_id, why)
        if starts and at_rest and not moves.is_adopted(set_id):
            detail = f"the state of set {set_id} was never adopted"
            yield _found(SetFindingKind.NOT_ADOPTED, key, starts[-1].partition, set_id, detail)
        if len(adopted) > 1:
            places = " and ".join(map(str, sorted(adopted)))
            detail = f"set {set_id} was adopted on the partitions {places}"
            yield _found(SetFindingKind.ADOPTED_TWICE, key, max(adopted), set_id, detail)
        if adopted and not starts and not any(log_starts.get(p) for p in adopted):
            detail = f"set {set_id} was adopted, and no START has opened it"
            yield _found(SetFindingKind.ADOPTED_UNSTARTED, key, min(adopted), set_id, detail)


def _is_readable(start: SetMarker, log_starts: Mapping[int, int]) -> bool:
    """Whether the END of a START would be there if it had been written."""
    return start.end_offset >= log_starts.get(start.other, 0) or not log_starts.get(start.other)


def _disagreement(
    ends: Sequence[SetMarker], starts: Sequence[SetMarker], log_starts: Mapping[int, int]
) -> str | None:
    pairs = {(m.partition, m.other) for m in ends} | {(m.other, m.partition) for m in starts}
    set_id = starts[-1].set_id
    if len(pairs) > 1:
        told = ", ".join(f"{source} to {target}" for source, target in sorted(pairs))
        return f"END and START of set {set_id} name different partitions: {told}"
    last = max(starts, key=lambda m: m.offset)
    known = {m.offset for m in ends}
    if last.end_offset >= log_starts.get(last.other, 0) and last.end_offset not in known:
        return f"START of set {set_id} names END at offset {last.end_offset}, where it is not"
    return None


# ------------------------------------------------------------ V6


def marker_order_findings(key: bytes, moves: KeyMoves) -> Iterator[SetFinding]:
    """V6 for markers: along every partition the sets of a key do not fall."""
    every = [m for side in (moves.ends, moves.starts) for of_set in side.values() for m in of_set]
    highest: dict[int, int] = {}
    found: dict[tuple[int, int], str] = {}
    for marker in sorted(every, key=lambda m: (m.partition, m.offset)):
        place = (marker.partition, marker.set_id)
        before = highest.get(marker.partition, 0)
        name = marker.kind.upper()
        if marker.set_id < before:
            why = f"{name} of set {marker.set_id} comes after a marker of set {before}"
            found.setdefault(place, why)
        elif marker.kind is SetMarkerKind.END and marker.old_set >= marker.set_id:
            found.setdefault(place, f"END leads from set {marker.old_set} to set {marker.set_id}")
        highest[marker.partition] = max(before, marker.set_id)
    for (partition, set_id), why in found.items():
        yield _found(SetFindingKind.SETS_FELL, key, partition, set_id, why)


# ------------------------------------------------------------ V3


def rest_findings(key: bytes, moves: KeyMoves) -> Iterator[SetFinding]:
    """V3: one owner with a value; nothing waits, is parked or on its way."""
    yield from _owner_findings(key, moves)
    for entry in moves.entries:
        if entry.status is KeptStatus.WAIT:
            detail = f"the key waits for the state of set {entry.set_id}"
            yield _found(SetFindingKind.WAITING, key, entry.partition, entry.set_id, detail)
    newest = max((e.set_id for e in moves.entries), default=0)
    for partition, count in sorted(moves.parked.items()):
        detail = f"{count} records are parked"
        yield _found(SetFindingKind.PARKED, key, partition, newest, detail)
    for set_id, partition in sorted(moves.early):
        detail = f"the state of set {set_id} came early and was not adopted"
        yield _found(SetFindingKind.EARLY_HANDOVER, key, partition, set_id, detail)
    for set_id, partition in sorted(moves.handovers):
        detail = f"the state of set {set_id} is on its way to partition {partition}"
        yield _found(SetFindingKind.OPEN_HANDOVER, key, partition, set_id, detail)


def _owner_findings(key: bytes, moves: KeyMoves) -> Iterator[SetFinding]:
    owners = sorted(
        (e for e in moves.entries if e.status is KeptStatus.OWN), key=lambda e: e.partition
    )
    newest = max((e.set_id for e in moves.entries), default=0)
    if len(owners) > 1:
        places = " and ".join(str(e.partition) for e in owners)
        detail = f"the partitions {places} own the state"
        yield _found(SetFindingKind.TWO_STATES, key, owners[-1].partition, newest, detail)
    if not owners and (moves.entries or moves.chain is not None):
        yield _found(SetFindingKind.NO_OWNER, key, None, newest, "no partition owns the state")
    if len(owners) != 1:
        return
    owner = owners[0]
    if owner.set_id < newest:
        detail = f"the owner has set {owner.set_id}, another partition knows of set {newest}"
        yield _found(SetFindingKind.OLD_OWNER, key, owner.partition, owner.set_id, detail)
    if not owner.has_value and moves.chain is not None:
        detail = "records were applied, and the owner has no value"
        yield _found(SetFindingKind.NO_VALUE, key, owner.partition, owner.set_id, detail)


def _found(
    kind: SetFindingKind, key: bytes, partition: int | None, set_id: int, detail: str
) -> SetFinding:
    return SetFinding(kind=kind, key=key, partition=partition, at=set_id, detail=detail)
