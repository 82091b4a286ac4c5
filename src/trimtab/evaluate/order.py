"""The order audit: was every record processed, in order, and by one owner at a time?

This is the reference implementation; `evaluate.spark.order_audit` has the same rules on Spark.

Promise  Reports every violation that receipts can show, and nothing that at-least-once allows.
Cost     O(n log n) for n receipts; inversions O(r²) in the r records of one stream.

Streams and rules are explained at `RecordStream` and `ViolationKind`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Receipt


class ViolationKind(StrEnum):
    """The kinds of violations.

    A record may be processed again (at least once), by the same owner or after a crash by the next
    one; only the processing that started first counts, except where stated.

    lost: A sequence number between two others of its stream was not processed, or an expected
        record (for example an acknowledged one) was not processed. For topics with expected
        records only the latter rule applies: a number that was never acknowledged is not lost.
    repeat: A record was processed more than once. Counted; a finding only if requested.
    inversion: A record was first processed after a later one of its stream: the later one started
        first or finished first. A killed consumer loses receipts that it had not yet sent. The
        receipts of one key are sent in order, so a later receipt implies the earlier ones. Those
        of a whole partition are not; in streams of a partition a record of another incarnation
        therefore counts by its last processing: an owner that restarts at the committed offset
        processes everything after it again.
    two_owners: Two incarnations worked on a partition at once: one started a record before the
        other had finished one that it had started earlier. Reported once per pair.
    rewind: The committed offset went back: a consumer that gave up a partition reported a lower
        offset than had been reported before, or records below it were processed again later. Only
        the control topic shows this, not receipts.
    """

    LOST = "lost"
    REPEAT = "repeat"
    INVERSION = "inversion"
    TWO_OWNERS = "two_owners"
    REWIND = "rewind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation; `at` is the sequence number of the record if it has one, else its offset."""

    kind: ViolationKind
    topic: str
    partition: int
    key: bytes | None
    at: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRules:
    """How strict the audit is.

    `gaps`: sequence numbers have no gaps, so a gap is a loss. `from_first`: they begin at 1, so a
    stream that begins later has lost its beginning. `clock_skew_us`: the largest clock difference
    between two consumers; smaller violations between them do not count.
    """

    gaps: bool = True
    from_first: bool = False
    clock_skew_us: int = 0


class RecordPosition(NamedTuple):
    """The position of a record: topic, partition and offset."""

    topic: str
    partition: int
    offset: int


class Commit(NamedTuple):
    """A consumer's report at `ts` that all records below `committed` were processed."""

    topic: str
    partition: int
    ts: int
    committed: int


class RecordStream(NamedTuple):
    """Records among which order is guaranteed; `turn` counts restarts of the numbers.

    A record with a key and a sequence number belongs to the stream of its key, at its number. One
    with a number but no key belongs to the stream of its partition, at its number; one without a
    number to the stream of its partition, at its offset. If the number 1 occurs again at a later
    offset of the same partition, the numbers have restarted (as `trimtab load` does in every run),
    and a new stream begins.
    """

    topic: str
    key: bytes | None
    partition: int | None
    numbered: bool
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipInterval:
    """An interval in which only one incarnation started records of a partition."""

    incarnation: str
    consumer: int
    first_offset: int
    last_offset: int
    started_ts: int
    finished_ts: int


def audit(
    receipts: Iterable[Receipt],
    *,
    expected: Collection[RecordPosition] = (),
    commits: Collection[Commit] = (),
    rules: OrderRules | None = None,
) -> tuple[Violation, ...]:
    """All violations in the receipts of one group, repeats included."""
    chosen = rules or OrderRules()
    given = list(dict.fromkeys(receipts))  # a producer that retries may send a receipt twice
    covered = {place.topic for place in expected}
    found = [*missing(given, expected)]
    for stream, records in streams(given).items():
        if stream.numbered and chosen.gaps and stream.topic not in covered:
            found += _gaps(stream, records, from_first=chosen.from_first)
        found += _repeats(stream, records)
        found += _inversions(stream, records, chosen.clock_skew_us)
    for name, holds in holds_of(given).items():
        found += two_owners(name, holds, clock_skew_us=chosen.clock_skew_us)
    found += _rewinds(given, commits, chosen.clock_skew_us)
    return tuple(sorted(found, key=_place))


def _place(one: Violation) -> tuple[str, int, int, str, bytes]:
    return (one.topic, one.partition, one.at, str(one.kind), one.key or b"")


def findings(
    violations: Iterable[Violation], *, no_repeats: bool = False
) -> Counter[ViolationKind]:
    """The number of violations of each kind that fail the audit; repeats only if not allowed."""
    return Counter(v.kind for v in violations if no_repeats or v.kind is not ViolationKind.REPEAT)


def missing(
    receipts: Iterable[Receipt], expected: Collection[RecordPosition]
) -> Iterator[Violation]:
    """The expected records that were not processed."""
    processed = {RecordPosition(r.topic, r.partition, r.offset) for r in receipts}
    for place in sorted(set(expected) - processed):
        yield Violation(
            kind=ViolationKind.LOST,
            topic=place.topic,
            partition=place.partition,
            key=None,
            at=place.offset,
            detail=f"the record at offset {place.offset} was expected and not processed",
        )


# ---------------------------------------------------------------- streams


def streams(receipts: Sequence[Receipt]) -> dict[RecordStream, dict[int, list[Receipt]]]:
    """The receipts of every record of every stream, by its position there."""
    begins = _beginnings(receipts)
    found: dict[RecordStream, dict[int, list[Receipt]]] = {}
    for r in receipts:
        keyed = r.key is not None and r.seq is not None
        ones = begins.get((r.topic, r.partition, r.key), ()) if r.seq is not None else ()
        stream = RecordStream(
            topic=r.topic,
            key=r.key if keyed else None,
            partition=None if keyed else r.partition,
            numbered=r.seq is not None,
            turn=max(0, sum(one <= r.offset for one in ones) - 1),
        )
        position = r.offset if r.seq is None else r.seq
        found.setdefault(stream, {}).setdefault(position, []).append(r)
    return found


def _beginnings(
    receipts: Iterable[Receipt],
) -> Mapping[tuple[str, int, bytes | None], Collection[int]]:
    """The offsets of sequence number 1, per partition and key."""
    found: dict[tuple[str, int, bytes | None], set[int]] = {}
    for r in receipts:
        if r.seq == 1:
            found.setdefault((r.topic, r.partition, r.key), set()).add(r.offset)
    return found


def first(receipts: Iterable[Receipt]) -> Receipt:
    """The first occurrence of a record."""
    return min(receipts, key=lambda r: (r.started_ts, r.finished_ts, r.incarnation))


def _at(
    kind: ViolationKind, stream: RecordStream, receipt: Receipt, at: int, detail: str
) -> Violation:
    return Violation(
        kind=kind,
        topic=receipt.topic,
        partition=receipt.partition,
        key=stream.key,
        at=at,
        detail=detail,
    )


def _gaps(
    stream: RecordStream, records: Mapping[int, list[Receipt]], *, from_first: bool
) -> Iterator[Violation]:
    before = 0 if from_first else min(records) - 1
    for position in sorted(records):
        if position > before + 1:
            span = f"{before + 1}" if position == before + 2 else f"{before + 1} to {position - 1}"
            detail = f"seq {span} was not processed, seq {position} was"
            yield _at(ViolationKind.LOST, stream, first(records[position]), before + 1, detail)
        before = max(before, position)


def _repeats(stream: RecordStream, records: Mapping[int, list[Receipt]]) -> Iterator[Violation]:
    for position, receipts in records.items():
        if len(receipts) > 1:
            detail = f"{_name(stream)} {position} was processed {len(receipts)} times"
            yield _at(ViolationKind.REPEAT, stream, first(receipts), position, detail)


def _inversions(
    stream: RecordStream, records: Mapping[int, list[Receipt]], skew: int
) -> Iterator[Violation]:
    for position, receipts in records.items():
        later = [(at, records[at]) for at in sorted(records) if at > position]
        mine = first(receipts)
        across = (at for at, theirs in later if _overtook(stream, mine, theirs, skew))
        within = (
            at
            for incarnation in {r.incarnation for r in receipts}
            for at, theirs in later
            if (own := [r for r in theirs if r.incarnation == incarnation])
            and _before(first(own), first(r for r in receipts if r.incarnation == incarnation))
        )
        witness = min([*across, *within], default=None)
        if witness is not None:
            name = _name(stream)
            detail = f"{name} {position} was processed after {name} {witness}"
            yield _at(ViolationKind.INVERSION, stream, mine, position, detail)


def _overtook(stream: RecordStream, mine: Receipt, theirs: Sequence[Receipt], skew: int) -> bool:
    if stream.key is not None:
        other = first(theirs)
        started, finished = other.started_ts, other.finished_ts
    else:
        started = max(r.started_ts for r in theirs)
        finished = max(r.finished_ts for r in theirs)
    return started + skew < mine.started_ts or finished + skew < mine.finished_ts


def _before(one: Receipt, other: Receipt) -> bool:
    return one.started_ts < other.started_ts or one.finished_ts < other.finished_ts


def _name(stream: RecordStream) -> str:
    return "seq" if stream.numbered else "offset"


# ---------------------------------------------------------------- owners


def holds_of(receipts: Iterable[Receipt]) -> dict[TopicPartition, list[OwnershipInterval]]:
    """The successive owners of each partition, by the start times of its records."""
    ordered = sorted(
        receipts,
        key=lambda r: (
            *(r.topic, r.partition),
            *(r.started_ts, r.finished_ts, r.offset, r.incarnation),
        ),
    )
    found: dict[TopicPartition, list[OwnershipInterval]] = {}
    for (topic, partition, incarnation), run in groupby(
        ordered, key=lambda r: (r.topic, r.partition, r.incarnation)
    ):
        held = list(run)
        hold = OwnershipInterval(
            incarnation=incarnation,
            consumer=held[0].consumer,
            first_offset=min(r.offset for r in held),
            last_offset=max(r.offset for r in held),
            started_ts=held[0].started_ts,
            finished_ts=max(r.finished_ts for r in held),
        )
        found.setdefault(TopicPartition(topic, partition), []).append(hold)
    return found


def two_owners(
    name: TopicPartition, holds: Sequence[OwnershipInterval], *, clock_skew_us: int = 0
) -> Iterator[Violation]:
    """The pairs of incarnations that worked on a partition at once."""
    busy: dict[str, OwnershipInterval] = {}  # the last interval of each incarnation
    seen: set[frozenset[str]] = set()
    for hold in holds:
        for incarnation, other in sorted(busy.items()):
            pair = frozenset((incarnation, hold.incarnation))
            overlap_us = other.finished_ts - hold.started_ts
            if incarnation != hold.incarnation and overlap_us > clock_skew_us and pair not in seen:
                seen.add(pair)
                detail = (
                    f"consumer {hold.consumer} ({hold.incarnation}) started "
                    f"{overlap_us / 1000:g} ms before consumer {other.consumer} ({incarnation}) "
                    "had finished"
                )
                yield Violation(
                    kind=ViolationKind.TWO_OWNERS,
                    topic=name.topic,
                    partition=name.partition,
                    key=None,
                    at=hold.first_offset,
                    detail=detail,
                )
        longest = busy.get(hold.incarnation)
        if longest is None or hold.finished_ts > longest.finished_ts:
            busy[hold.incarnation] = hold


def _rewinds(
    receipts: Iterable[Receipt], commits: Collection[Commit], skew: int
) -> Iterator[Violation]:
    again: dict[tuple[str, int, str], tuple[int, int]] = {}
    for r in receipts:
        done = _done(commits, r.topic, r.partition, before_ts=r.started_ts - skew)
        if r.offset < done:
            owner = (r.topic, r.partition, r.incarnation)
            again[owner] = min(again.get(owner, (r.offset, done)), (r.offset, done))
    for (topic, partition, incarnation), (offset, done) in again.items():
        detail = f"{incarnation} processed offset {offset} after {done} had been committed"
        yield _rewind(topic, partition, offset, detail)
    for topic, partition, ts, committed in commits:
        done = _done(commits, topic, partition, before_ts=ts - skew)
        if committed < done:
            detail = f"{committed} was committed after {done} had been"
            yield _rewind(topic, partition, committed, detail)


def _done(commits: Iterable[Commit], topic: str, partition: int, *, before_ts: int) -> int:
    named = (c for c in commits if (c.topic, c.partition) == (topic, partition))
    return max((c.committed for c in named if c.ts < before_ts), default=0)


def _rewind(topic: str, partition: int, at: int, detail: str) -> Violation:
    return Violation(
        kind=ViolationKind.REWIND, topic=topic, partition=partition, key=None, at=at, detail=detail
    )
