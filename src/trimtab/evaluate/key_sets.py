"""The set audit: were the records of every key applied once and in order, wherever the key went?

This is the reference implementation; `evaluate.spark.set_audit` has the rules for records on Spark.

Promise  Finds every violation of V1 to V6 that the topics can show (see `SetRule`), and nothing in
         a legal history: chains of moves, markers repeated after a crash, moves between two runs.
         A key that is still moving is unsettled, not a violation, unless all must be at rest.
Limit    Numbers that begin anew are told apart only if source and receipts are complete.
Cost     O(n log n) for n receipts, and a hash per record of a key with chains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple

from trimtab.evaluate.key_history import (
    KeptStatus,
    KeyHistory,
    NumberedKey,
    SetAudit,
    SetFinding,
    SetFindingKind,
    SetReceipt,
)
from trimtab.evaluate.key_moves import (
    KeyMoves,
    adoption_findings,
    counted_markers,
    is_moving,
    marker_order_findings,
    moves_by_key,
    rest_findings,
)
from trimtab.evaluate.order import OwnershipInterval, two_owners
from trimtab.model.cluster import TopicPartition
from trimtab.model.key_chain import next_chain


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAuditRules:
    """How the audit judges.

    `at_rest`: sources and gateway have stopped and everything was read, so whatever is left undone
    is a finding. `clock_skew_us`: the largest clock difference between two consumers.
    """

    at_rest: bool = False
    clock_skew_us: int = 0


def audit_sets(history: KeyHistory, rules: SetAuditRules | None = None) -> SetAudit:
    """All findings in the history of a topic and a group."""
    chosen = rules or SetAuditRules()
    moves = moves_by_key(history, counted_markers(history.markers))
    receipts: dict[bytes, list[SetReceipt]] = {}
    for receipt in history.receipts:
        receipts.setdefault(receipt.key, []).append(receipt)
    keys = sorted({*history.acknowledged, *receipts, *moves})
    found: list[SetFinding] = []
    unsettled: list[bytes] = []
    for key in keys:
        of_key = moves.get(key, KeyMoves())
        records = KeyRecords.of(key, history, receipts.get(key, ()))
        of_key.chain = records.last_chain
        found += _findings(key, records, of_key, history, chosen)
        if not chosen.at_rest and (records.is_behind or is_moving(of_key)):
            unsettled.append(key)
    keyed = [r for r in history.receipts if r.set_id is not None]
    return SetAudit(
        findings=tuple(sorted(found, key=_place)),
        keys=len({*history.acknowledged, *receipts}),
        records=sum(map(len, history.acknowledged.values())),
        applied=len(keyed),
        unnumbered=sum(r.seq is None for r in keyed),
        sets=sum(len(m.sets) for m in moves.values()),
        adoptions=sum(m.is_adopted(s) for m in moves.values() for s in m.sets),
        chains=sum(r.chain is not None for r in keyed),
        dead=len(history.dead),
        unsettled=tuple(unsettled),
        complete=history.complete,
        at_rest=chosen.at_rest,
    )


def _place(one: SetFinding) -> tuple[str, str, bytes, int, int, str]:
    partition = -1 if one.partition is None else one.partition
    return (str(one.kind.rule), str(one.kind), one.key, one.at, partition, one.detail)


def _findings(
    key: bytes, records: KeyRecords, moves: KeyMoves, history: KeyHistory, rules: SetAuditRules
) -> Iterator[SetFinding]:
    yield from order_findings(records, at_rest=rules.at_rest)
    yield from chain_findings(records)
    yield from place_findings(
        records.receipts,
        {s: place for s in moves.starts if (place := moves.place_of(s)) is not None},
    )
    yield from set_order_findings(records.receipts)
    yield from marker_order_findings(key, moves)
    yield from owner_findings(records.receipts, clock_skew_us=rules.clock_skew_us)
    yield from adoption_findings(key, moves, history.log_starts, at_rest=rules.at_rest)
    if rules.at_rest:
        yield from rest_findings(key, moves)
        yield from _kept_chain_findings(records, moves)


# ------------------------------------------------------------ V1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecords:
    """The records of one key: numbers of the source, and receipts by set and offset.

    `positions` has the place in the source of every receipt, None if the source does not have it
    (again). `excused` are places whose records need no receipt and no part in the chain: dead
    letters, and records that a consumer without keyed state has processed.
    """

    key: bytes
    numbers: Sequence[int]
    receipts: Sequence[SetReceipt]
    positions: Sequence[int | None]
    excused: frozenset[int]
    complete: bool

    @classmethod
    def of(cls, key: bytes, history: KeyHistory, receipts: Iterable[SetReceipt]) -> KeyRecords:
        """The records of a key, matched."""
        given = list(receipts)
        keyed = sorted((r for r in given if r.set_id is not None), key=_applied_order)
        plain = {r.seq for r in given if r.set_id is None}
        numbers = tuple(history.acknowledged.get(key, ()))
        positions = _matched(numbers, keyed)
        chained = {at for at, r in zip(positions, keyed, strict=True) if r.chain is not None}
        matched = set(positions)
        excused = frozenset(
            at
            for at, seq in enumerate(numbers)
            if (NumberedKey(key, seq) in history.dead and at not in chained)
            or (seq in plain and at not in matched)
        )
        return cls(
            key=key,
            numbers=numbers,
            receipts=keyed,
            positions=positions,
            excused=excused,
            complete=history.complete,
        )

    @property
    def is_behind(self) -> bool:
        """Whether the last records of the source were not applied yet."""
        last = max((at for at in self.positions if at is not None), default=-1)
        return any(at not in self.excused for at in range(last + 1, len(self.numbers)))

    @property
    def last_chain(self) -> str | None:
        """The chain of the last receipt that has one."""
        return next((r.chain for r in reversed(self.receipts) if r.chain is not None), None)


def _applied_order(receipt: SetReceipt) -> tuple[int, int, int, int, int]:
    r = receipt
    return (r.set_id or 0, r.offset, r.partition, r.log_partition, r.log_offset)


def _log_order(receipt: SetReceipt) -> tuple[int, int]:
    return (receipt.log_partition, receipt.log_offset)


def _matched(numbers: Sequence[int], receipts: Sequence[SetReceipt]) -> list[int | None]:
    """The place in the source of every receipt.

    Where the source begins with 1 anew, a new turn begins; within a turn, the first receipt of a
    number is that of its record.
    """
    places: dict[tuple[int, int], deque[int]] = {}
    turns = _turns(numbers)
    for at, name in enumerate(zip(turns, numbers, strict=True)):
        places.setdefault(name, deque()).append(at)
    most = max(turns, default=0)
    found: list[int | None] = []
    for turn, receipt in zip(_turns([r.seq for r in receipts]), receipts, strict=True):
        left = None if receipt.seq is None else places.get((min(turn, most), receipt.seq))
        found.append(left.popleft() if left else None)
    return found


def _turns(numbers: Sequence[int | None]) -> list[int]:
    return [max(0, ones - 1) for ones in accumulate(int(seq == 1) for seq in numbers)]


def order_findings(records: KeyRecords, *, at_rest: bool) -> Iterator[SetFinding]:
    """V1: the receipts, by set and offset and as they were written, are those of the source."""
    known = set(records.numbers)
    pairs = list(zip(records.receipts, records.positions, strict=True))
    by_log = sorted(pairs, key=lambda pair: _log_order(pair[0]))
    late = {*_late(pairs)}
    for _, run in groupby(by_log, key=lambda pair: pair[0].log_partition):
        late |= {*_late(run)}
    for receipt, at in pairs:
        seq = receipt.seq
        if seq is None:
            continue
        if at is not None:
            if at in late:
                kind, detail = SetFindingKind.OUT_OF_ORDER, f"record {seq} came after a later one"
                yield _at(kind, receipt, seq, detail)
        elif seq in known:
            kind, detail = SetFindingKind.REPEATED, f"record {seq} was applied again"
            yield _at(kind, receipt, seq, detail)
        elif records.complete:
            detail = f"record {seq} was applied, and the source does not have it"
            yield _at(SetFindingKind.UNEXPECTED, receipt, seq, detail)
    yield from _missing(records, at_rest=at_rest)


def _late(pairs: Iterable[tuple[SetReceipt, int | None]]) -> Iterator[int]:
    highest = -1
    for _, at in pairs:
        if at is None:
            continue
        if at < highest:
            yield at
        highest = max(highest, at)


def _missing(records: KeyRecords, *, at_rest: bool) -> Iterator[SetFinding]:
    got = {at for at in records.positions if at is not None}
    numbers = records.numbers
    end = len(numbers) if at_rest else max(got, default=0)
    start = 0 if records.complete else min(got, default=len(numbers))
    absent = [at for at in range(start, end) if at not in got and at not in records.excused]
    for _, island in groupby(enumerate(absent), key=lambda pair: pair[1] - pair[0]):
        places = [at for _, at in island]
        first, last = numbers[places[0]], numbers[places[-1]]
        told = f"record {first} was" if len(places) == 1 else f"records {first} to {last} were"
        yield SetFinding(
            kind=SetFindingKind.MISSING,
            key=records.key,
            partition=None,
            at=first,
            detail=f"{told} not applied",
        )


def _at(kind: SetFindingKind, receipt: SetReceipt, at: int, detail: str) -> SetFinding:
    return SetFinding(
        kind=kind,
        key=receipt.key,
        partition=receipt.partition,
        at=at,
        detail=detail,
        run=receipt.run,
    )


# ------------------------------------------------------------ V2


class ChainStep(NamedTuple):
    """A record of the source in its place: the chain of its receipt, None without one."""

    seq: int
    chain: str | None
    excused: bool = False


def broken_links(steps: Iterable[ChainStep], *, from_first: bool) -> Iterator[int]:
    """The steps whose chain does not follow from the chain before them.

    Without `from_first` the first chain that is known is taken as right.
    """
    chain: str | None = "" if from_first else None
    for number, step in enumerate(steps):
        if not step.excused and chain is not None:
            chain = next_chain(chain, step.seq)
        if step.chain is not None:
            if chain is not None and chain != step.chain:
                yield number
            chain = step.chain


def chain_findings(records: KeyRecords) -> Iterator[SetFinding]:
    """V2: every chain follows from the one before it by the records of the source between them.

    So the last chain is the one computed from the source, and a break is found where it is.
    """
    by_place = {
        at: r
        for at, r in zip(records.positions, records.receipts, strict=True)
        if at is not None and r.chain is not None
    }
    if not by_place:
        return
    steps = [
        ChainStep(seq, by_place[at].chain if at in by_place else None, at in records.excused)
        for at, seq in enumerate(records.numbers[: max(by_place) + 1])
    ]
    for at in broken_links(steps, from_first=records.complete):
        yield _at(
            SetFindingKind.WRONG_CHAIN,
            by_place[at],
            steps[at].seq,
            f"the chain at record {steps[at].seq} does not follow from the source",
        )


def _kept_chain_findings(records: KeyRecords, moves: KeyMoves) -> Iterator[SetFinding]:
    """V2 at rest: the stored state is the one after the last record."""
    last = records.last_chain
    for entry in moves.entries:
        if entry.status is not KeptStatus.OWN or entry.chain is None:
            continue
        if last is not None and entry.chain != last:
            yield SetFinding(
                kind=SetFindingKind.WRONG_CHAIN,
                key=records.key,
                partition=entry.partition,
                at=max((r.seq or 0 for r in records.receipts), default=0),
                detail="the chain of the stored state is not that of the last receipt",
            )


# ------------------------------------------------------------ V5, V6, owners


def place_findings(
    receipts: Iterable[SetReceipt], places: Mapping[int, int]
) -> Iterator[SetFinding]:
    """V5: records are applied on the partition of their set's START; `places` has it by set.

    Set 0 has no START, and that of a set may be gone: then all its records must be on the
    partition of the first one.
    """
    by_set: dict[int, list[SetReceipt]] = {}
    for receipt in sorted(receipts, key=_log_order):
        by_set.setdefault(receipt.set_id or 0, []).append(receipt)
    for set_id, found in sorted(by_set.items()):
        place = places.get(set_id, found[0].partition)
        wrong = [r for r in found if r.partition != place]
        for partition in sorted({r.partition for r in wrong}):
            there = [r for r in wrong if r.partition == partition]
            first = min(there, key=lambda r: (_number(r), _log_order(r)))
            detail = (
                f"{len(there)} records of set {set_id} were applied on partition {partition} "
                f"instead of {place}"
            )
            yield _at(SetFindingKind.WRONG_PARTITION, first, _number(first), detail)


def _number(receipt: SetReceipt) -> int:
    return receipt.offset if receipt.seq is None else receipt.seq


def set_order_findings(receipts: Iterable[SetReceipt]) -> Iterator[SetFinding]:
    """V6 for records: as the receipts were written, the sets of a key do not fall."""
    highest: dict[int, int] = {}
    fallen: set[int] = set()
    for receipt in sorted(receipts, key=_log_order):
        set_id, before = receipt.set_id or 0, highest.get(receipt.log_partition, 0)
        if set_id < before and set_id not in fallen:
            fallen.add(set_id)
            detail = f"a record of set {set_id} was applied after one of set {before}"
            yield _at(SetFindingKind.SETS_FELL, receipt, set_id, detail)
        highest[receipt.log_partition] = max(set_id, before)


def owner_findings(receipts: Iterable[SetReceipt], *, clock_skew_us: int) -> Iterator[SetFinding]:
    """Pairs of consumer processes that worked on the key at once."""
    ordered = sorted(
        receipts,
        key=lambda r: (r.started_ts, r.finished_ts, r.partition, r.offset, r.incarnation),
    )
    name = TopicPartition("", 0)  # not told: a key may be on several partitions
    for overlap in two_owners(name, _holds(ordered), clock_skew_us=clock_skew_us):
        later = ordered[overlap.at]
        yield _at(SetFindingKind.TWO_OWNERS, later, later.offset, overlap.detail)


def _holds(ordered: Sequence[SetReceipt]) -> list[OwnershipInterval]:
    """The successive consumer processes of a key; places in `ordered` stand for offsets."""
    found = []
    for incarnation, run in groupby(enumerate(ordered), key=lambda pair: pair[1].incarnation):
        held = list(run)
        found.append(
            OwnershipInterval(
                incarnation=incarnation,
                consumer=held[0][1].consumer,
                first_offset=held[0][0],
                last_offset=held[-1][0],
                started_ts=held[0][1].started_ts,
                finished_ts=max(r.finished_ts for _, r in held),
            )
        )
    return found
