"""Histories of keys that move: legal ones at random, and ways to spoil them.

A gateway writes records and markers, crashes and repeats markers; tasks apply records in order and
change their owner; some handlers fail; a second run goes on where the first one ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from trimtab.evaluate.key_history import (
    KeptEntry,
    KeptStatus,
    KeyHistory,
    KeySetPlace,
    NumberedKey,
    SetFindingKind,
    SetMarker,
    SetMarkerKind,
    SetReceipt,
)
from trimtab.model.key_chain import next_chain

END, START, FENCE = SetMarkerKind.END, SetMarkerKind.START, SetMarkerKind.FENCE


@dataclass
class HistoryWriter:
    """Writes a legal history, step by step; `history` is what the topics say afterwards."""

    partitions: int = 3
    run: str = "r1"
    gen: int = 1
    next_set: int = 1
    now: int = 0
    ends: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    owners: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    numbers: defaultdict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    chains: defaultdict[bytes, str] = field(default_factory=lambda: defaultdict(str))
    routes: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    left: dict[tuple[int, bytes], int] = field(default_factory=dict)
    receipts: list[SetReceipt] = field(default_factory=list)
    markers: list[SetMarker] = field(default_factory=list)
    adopted: list[KeySetPlace] = field(default_factory=list)
    dead: set[NumberedKey] = field(default_factory=set)

    def route(self, key: bytes) -> tuple[int, int]:
        return self.routes.setdefault(key, (key[0] % self.partitions, 0))

    def _append(self, partition: int) -> int:
        self.ends[partition] += 1
        return self.ends[partition] - 1

    def record(
        self, key: bytes, *, seq: int | None = None, fails: bool = False, rejected: bool = False
    ) -> None:
        partition, set_id = self.route(key)
        number = (self.numbers[key] or [0])[-1] + 1 if seq is None else seq
        self.numbers[key].append(number)
        offset = self._append(partition)
        rejected = rejected and number > 1
        if fails or rejected:
            self.dead.add(NumberedKey(key, number))
        if rejected:
            return
        if not fails:
            self.chains[key] = next_chain(self.chains[key], number)
        self.now += 10
        self.receipts.append(
            SetReceipt(
                key=key,
                seq=number,
                set_id=set_id,
                partition=partition,
                offset=offset,
                chain=None if fails else self.chains[key],
                run=self.run,
                consumer=partition,
                incarnation=f"{partition}-{self.owners[partition]}",
                started_ts=self.now,
                finished_ts=self.now + 5,
                log_partition=key[0] % 2,
                log_offset=len(self.receipts),
            )
        )

    def _end(self, key: bytes, source: int, old: int, new: int, to: int) -> int:
        offset = self._append(source)
        marker = self._marker(END, key, source, offset, new, to)
        self.markers.append(replace(marker, old_set=old))
        return offset

    def _start(self, key: bytes, target: int, new: int, source: int, end: int) -> None:
        marker = self._marker(START, key, target, self._append(target), new, source)
        self.markers.append(replace(marker, end_offset=end))

    def _marker(
        self, kind: SetMarkerKind, key: bytes, partition: int, offset: int, new: int, other: int
    ) -> SetMarker:
        return SetMarker(
            kind=kind,
            partition=partition,
            offset=offset,
            shard=0,
            gen=self.gen,
            key=key,
            set_id=new,
            other=other,
        )

    def crash(self) -> None:
        """A new gateway fences the one before."""
        self.gen += 1
        for partition in range(self.partitions):
            offset = self._append(partition)
            self.markers.append(
                SetMarker(kind=FENCE, partition=partition, offset=offset, shard=0, gen=self.gen)
            )

    def move(self, key: bytes, to: int, *, crash: str | None = None) -> None:
        """A move; `crash` is "before" or "after" START, or "late" if END is stored fenced."""
        source, old = self.route(key)
        if to == source:
            return
        new, self.next_set = self.next_set, self.next_set + 1
        if crash == "late":  # START was stored before FENCE, END behind it
            end = self.ends[source] + 1
            self._start(key, to, new, source, end)
            self.crash()
            self.gen -= 1
            self._end(key, source, old, new, to)
            self.gen += 1
        else:
            end = self._end(key, source, old, new, to)
            if crash == "after":
                self._start(key, to, new, source, end)
            if crash is not None:
                self.crash()
        if crash is not None:
            end = self._end(key, source, 0, new, to)
        self._start(key, to, new, source, end)
        self.left[source, key] = new
        self.left.pop((to, key), None)
        self.routes[key] = (to, new)
        self.adopted.append(KeySetPlace(key, new, to))

    def history(self) -> KeyHistory:
        entries = [
            KeptEntry(partition=p, key=key, status=KeptStatus.LEFT, set_id=set_id)
            for (p, key), set_id in self.left.items()
        ]
        entries += [
            KeptEntry(
                partition=p,
                key=key,
                status=KeptStatus.OWN,
                set_id=set_id,
                has_value=bool(self.chains[key]),
                chain=self.chains[key] or None,
            )
            for key, (p, set_id) in self.routes.items()
        ]
        return KeyHistory(
            acknowledged=dict(self.numbers),
            receipts=tuple(self.receipts),
            markers=tuple(self.markers),
            entries=tuple(entries),
            adopted=tuple(self.adopted),
            dead=frozenset(self.dead),
        )


KEYS = [b"a", b"b", b"c", b"d"]


def legal_history(rng: Random, *, steps: int = 40) -> KeyHistory:
    """A history without any violation, at rest, with moves between two runs."""
    made = HistoryWriter()
    between = rng.randrange(steps)
    for step in range(steps):
        key = rng.choice(KEYS)
        if step == between:
            made.run = "r2"
            for moved in KEYS[:2]:
                made.move(moved, rng.randrange(3))
            for partition in range(3):
                made.owners[partition] += 1
            if rng.random() < 0.3:  # the source counts from 1 again
                for known in KEYS:
                    made.record(known, seq=1)
        chance = rng.random()
        if chance < 0.6:
            made.record(key, fails=rng.random() < 0.05, rejected=rng.random() < 0.05)
        elif chance < 0.9:
            crash = rng.choice(["before", "after", "late"]) if rng.random() < 0.3 else None
            made.move(key, rng.randrange(3), crash=crash)
        elif chance < 0.95:
            made.owners[rng.randrange(3)] += 1
        else:
            made.crash()
    found = made.history()
    kept = [place for place in found.adopted if rng.random() < 0.7]  # others were compacted
    return replace(found, adopted=tuple(kept))


# ------------------------------------------------------------ spoilt


def _replaced(history: KeyHistory, old: SetReceipt, *new: SetReceipt) -> KeyHistory:
    at = history.receipts.index(old)
    return replace(history, receipts=(*history.receipts[:at], *new, *history.receipts[at + 1 :]))


def _any(history: KeyHistory, rng: Random) -> SetReceipt:
    """A receipt of a record that is not dead, and whose number is unique in its key."""
    found = [
        r
        for r in history.receipts
        if NumberedKey(r.key, r.seq or 0) not in history.dead
        and list(history.acknowledged[r.key]).count(r.seq or 0) == 1
    ]
    return rng.choice(found)


def dropped(history: KeyHistory, rng: Random) -> KeyHistory:
    return _replaced(history, _any(history, rng))


def repeated(history: KeyHistory, rng: Random) -> KeyHistory:
    one = _any(history, rng)
    return replace(history, receipts=(*history.receipts, replace(one, log_offset=10_000)))


def _neighbours(history: KeyHistory, rng: Random) -> tuple[SetReceipt, SetReceipt]:
    first = _any(history, rng)
    later = [
        r
        for r in history.receipts
        if r.key == first.key
        and r.log_offset > first.log_offset
        and list(history.acknowledged[r.key]).count(r.seq or 0) == 1
    ]
    return first, later[0]


def swapped(history: KeyHistory, rng: Random) -> KeyHistory:
    one, other = _neighbours(history, rng)
    spoilt = _replaced(history, one, replace(one, seq=other.seq))
    return _replaced(spoilt, other, replace(other, seq=one.seq))


def written_late(history: KeyHistory, rng: Random) -> KeyHistory:
    one, _ = _neighbours(history, rng)
    return _replaced(history, one, replace(one, log_offset=10_000))


def earlier_set_later(history: KeyHistory, rng: Random) -> KeyHistory:
    both = [
        (r, s)
        for r in history.receipts
        for s in history.receipts
        if r.key == s.key and (r.set_id or 0) < (s.set_id or 0)
    ]
    one, other = rng.choice(both)
    return _replaced(history, one, replace(one, log_offset=other.log_offset + 10_000))


def elsewhere(history: KeyHistory, rng: Random) -> KeyHistory:
    one = rng.choice([r for r in history.receipts if r.set_id])
    return _replaced(history, one, replace(one, partition=(one.partition + 1) % 3))


def other_chain(history: KeyHistory, rng: Random) -> KeyHistory:
    one = rng.choice([r for r in history.receipts if r.chain is not None])
    return _replaced(history, one, replace(one, chain="0" * 16))


def invented(history: KeyHistory, rng: Random) -> KeyHistory:
    one = _any(history, rng)
    return replace(
        history,
        receipts=(
            *history.receipts,
            replace(one, seq=1_000_000, offset=one.offset + 10_000, log_offset=10_000),
        ),
    )


def at_once(history: KeyHistory, rng: Random) -> KeyHistory:
    one, other = _neighbours(history, rng)
    return _replaced(history, one, replace(one, incarnation="x", finished_ts=other.started_ts + 1))


def _owner(history: KeyHistory, rng: Random) -> KeptEntry:
    return rng.choice([e for e in history.entries if e.status is KeptStatus.OWN and e.has_value])


def _entry_replaced(history: KeyHistory, old: KeptEntry, **changes: object) -> KeyHistory:
    entries = [replace(e, **changes) if e is old else e for e in history.entries]  # type: ignore[arg-type]
    return replace(history, entries=tuple(entries))


def second_owner(history: KeyHistory, rng: Random) -> KeyHistory:
    one = _owner(history, rng)
    other = replace(one, partition=(one.partition + 1) % 3)
    kept = [e for e in history.entries if (e.partition, e.key) != (other.partition, other.key)]
    return replace(history, entries=(*kept, other))


def nobody_owns(history: KeyHistory, rng: Random) -> KeyHistory:
    return _entry_replaced(history, _owner(history, rng), status=KeptStatus.LEFT)


def value_lost(history: KeyHistory, rng: Random) -> KeyHistory:
    return _entry_replaced(history, _owner(history, rng), has_value=False, chain=None)


def owner_behind(history: KeyHistory, rng: Random) -> KeyHistory:
    one = _owner(history, rng)
    left = replace(one, partition=(one.partition + 1) % 3, status=KeptStatus.LEFT, set_id=10_000)
    return replace(history, entries=(*history.entries, left))


def other_state(history: KeyHistory, rng: Random) -> KeyHistory:
    return _entry_replaced(history, _owner(history, rng), chain="0" * 16)


def still_waiting(history: KeyHistory, rng: Random) -> KeyHistory:
    return _entry_replaced(history, _owner(history, rng), status=KeptStatus.WAIT)


def still_parked(history: KeyHistory, rng: Random) -> KeyHistory:
    return replace(history, parked={(0, rng.choice(KEYS)): 2})


def held_early(history: KeyHistory, rng: Random) -> KeyHistory:
    return replace(history, early=(KeySetPlace(rng.choice(KEYS), 10_000, 0),))


def on_its_way(history: KeyHistory, rng: Random) -> KeyHistory:
    return replace(history, handovers=(KeySetPlace(rng.choice(KEYS), 10_000, 0),))


def _set_of(history: KeyHistory, rng: Random) -> tuple[bytes, int]:
    found = sorted({(m.key, m.set_id) for m in history.markers if m.kind is START})
    return rng.choice(found)


def _without(history: KeyHistory, kind: SetMarkerKind, key: bytes, set_id: int) -> KeyHistory:
    kept = [m for m in history.markers if (m.kind, m.key, m.set_id) != (kind, key, set_id)]
    return replace(history, markers=tuple(kept))


def start_lost(history: KeyHistory, rng: Random) -> KeyHistory:
    return _without(history, START, *_set_of(history, rng))


def end_lost(history: KeyHistory, rng: Random) -> KeyHistory:
    return _without(history, END, *_set_of(history, rng))


def other_target(history: KeyHistory, rng: Random) -> KeyHistory:
    key, set_id = _set_of(history, rng)
    return replace(
        history,
        markers=tuple(
            replace(m, other=(m.other + 1) % 3)
            if (m.kind, m.key, m.set_id) == (END, key, set_id)
            else m
            for m in history.markers
        ),
    )


def other_end(history: KeyHistory, rng: Random) -> KeyHistory:
    key, set_id = _set_of(history, rng)
    return replace(
        history,
        markers=tuple(
            replace(m, end_offset=100_000)
            if (m.kind, m.key, m.set_id) == (START, key, set_id)
            else m
            for m in history.markers
        ),
    )


def _more(history: KeyHistory, rng: Random, set_id: int) -> KeyHistory:
    """One more move, with both markers; nobody adopts it."""
    key = rng.choice(KEYS)
    end = SetMarker(
        kind=END,
        partition=0,
        offset=50_000,
        shard=0,
        gen=10_000,
        key=key,
        set_id=set_id,
        other=1,
    )
    start = replace(end, kind=START, partition=1, other=0, end_offset=50_000)
    return replace(history, markers=(*history.markers, end, start))


def nobody_adopts(history: KeyHistory, rng: Random) -> KeyHistory:
    return _more(history, rng, 20_000)


def adopted_elsewhere(history: KeyHistory, rng: Random) -> KeyHistory:
    key, set_id = _set_of(history, rng)
    places = [KeySetPlace(key, set_id, p) for p in range(2)]
    return replace(history, adopted=(*history.adopted, *places))


def adopted_without_start(history: KeyHistory, rng: Random) -> KeyHistory:
    place = KeySetPlace(rng.choice(KEYS), 20_000, 0)
    return replace(history, adopted=(*history.adopted, place))


def old_set_again(history: KeyHistory, rng: Random) -> KeyHistory:
    """The last marker of a partition opens an earlier set than one before it."""
    place = rng.choice([m for m in history.markers if m.kind is START])
    later = replace(place, offset=60_000, gen=10_000, set_id=20_000)
    last = replace(place, offset=60_001, gen=10_000)
    return replace(history, markers=(*history.markers, later, last))


Spoil = Callable[[KeyHistory, Random], KeyHistory]
K = SetFindingKind

SPOILT: dict[Spoil, frozenset[SetFindingKind]] = {
    dropped: frozenset({K.MISSING}),
    repeated: frozenset({K.REPEATED}),
    swapped: frozenset({K.OUT_OF_ORDER}),
    written_late: frozenset({K.OUT_OF_ORDER}),
    earlier_set_later: frozenset({K.SETS_FELL}),
    elsewhere: frozenset({K.WRONG_PARTITION}),
    other_chain: frozenset({K.WRONG_CHAIN}),
    invented: frozenset({K.UNEXPECTED}),
    at_once: frozenset({K.TWO_OWNERS}),
    second_owner: frozenset({K.TWO_STATES}),
    nobody_owns: frozenset({K.NO_OWNER}),
    value_lost: frozenset({K.NO_VALUE}),
    owner_behind: frozenset({K.OLD_OWNER}),
    other_state: frozenset({K.WRONG_CHAIN}),
    still_waiting: frozenset({K.WAITING}),
    still_parked: frozenset({K.PARKED}),
    held_early: frozenset({K.EARLY_HANDOVER}),
    on_its_way: frozenset({K.OPEN_HANDOVER}),
    start_lost: frozenset({K.END_ALONE, K.ADOPTED_UNSTARTED}),
    end_lost: frozenset({K.START_ALONE}),
    other_target: frozenset({K.MARKERS_DISAGREE}),
    other_end: frozenset({K.MARKERS_DISAGREE}),
    nobody_adopts: frozenset({K.NOT_ADOPTED}),
    adopted_elsewhere: frozenset({K.ADOPTED_TWICE}),
    adopted_without_start: frozenset({K.ADOPTED_UNSTARTED}),
    old_set_again: frozenset({K.SETS_FELL}),
}
"""Each spoils a history in one place; one of the kinds is found then."""


def spoil(history: KeyHistory, how: Spoil, rng: Random) -> KeyHistory | None:
    """The spoilt history; None if there is nothing to spoil in this way."""
    try:
        return how(history, rng)
    except IndexError:
        return None
