"""Consumers at work, simulated: runs as at-least-once allows them, and faults planted in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from trimtab.evaluate.order import Commit, RecordPosition, ViolationKind
from trimtab.model.control import Receipt

Fault = tuple[ViolationKind, str, int, bytes | None, int]
"""Kind, topic, partition, key and position of a violation."""

STEP = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record of a partition's log."""

    offset: int
    key: bytes | None
    seq: int | None


def log_of(rng: Random, partition: int, records: int, *, turns: int = 1) -> list[Written]:
    """A partition's log: keyed with numbers, numbered only, or neither."""
    style = rng.choice(("keys", "numbers", "nothing"))
    written: list[Written] = []
    for _ in range(turns):
        numbers: dict[bytes | None, int] = {}
        for _ in range(records):
            key = f"{partition}-{rng.randrange(3)}".encode() if style != "numbers" else None
            numbers[key] = numbers.get(key, 0) + 1
            seq = None if style == "nothing" else numbers[key]
            written.append(Written(offset=len(written), key=key, seq=seq))
    return written


def run_of(
    rng: Random, log: Sequence[Written], partition: int
) -> tuple[list[Receipt], list[Commit]]:
    """What is left of a run over one partition: moves, returns, crashes, repeats, lost receipts."""
    receipts: list[Receipt] = []
    commits: list[Commit] = []
    committed, now, born = 0, 1_000_000, 0
    alive: list[str] = []
    while committed < len(log):
        if not alive or rng.random() < 0.5:
            born += 1
            alive.append(f"p{partition}-{born}")
        owner = rng.choice(alive)
        until = rng.randint(committed, len(log))
        done: list[Receipt] = []
        for record in log[committed:until]:
            now += rng.randint(0, 2) * STEP
            started, now = now, now + rng.randint(0, 2) * STEP
            done.append(_receipt(record, partition, owner, started, now))
        if rng.random() < 0.4:  # it is killed: some is committed, and receipts beyond may be gone
            alive.remove(owner)
            safe = rng.randint(0, len(done))
            committed += safe
            receipts += done[:safe] + _arrived(rng, done[safe:])
        else:
            # A commit may fail and its owner live on: the next one repeats.
            committed += len(done) if rng.random() < 0.8 else rng.randint(0, len(done))
            receipts += done
            commits.append(Commit("t", partition, now, committed))
    return receipts, commits


def _receipt(record: Written, partition: int, owner: str, started: int, finished: int) -> Receipt:
    return Receipt(
        run="r",
        group="g",
        topic="t",
        partition=partition,
        offset=record.offset,
        key=record.key,
        seq=record.seq,
        consumer=int(owner.rpartition("-")[2]),
        incarnation=owner,
        event_ts=0,
        started_ts=started,
        finished_ts=finished,
    )


def _arrived(rng: Random, receipts: list[Receipt]) -> list[Receipt]:
    """Receipts of one key arrive in order; of others, any may be the one that did not."""
    gone: set[bytes] = set()
    kept = []
    for receipt in receipts:
        if rng.random() < 0.3:
            if receipt.key is not None:
                gone.add(receipt.key)
        elif receipt.key not in gone:
            kept.append(receipt)
    return kept


def places(log: Sequence[Written], partition: int) -> list[RecordPosition]:
    """All records of a log, as the producer had them acknowledged."""
    return [RecordPosition("t", partition, record.offset) for record in log]


# ---------------------------------------------------------------- faults


def _position(receipt: Receipt) -> int:
    return receipt.offset if receipt.seq is None else receipt.seq


def _key(receipt: Receipt) -> bytes | None:
    return receipt.key if receipt.seq is not None else None


def steady(log: Sequence[Written], partition: int, *, service: int = STEP) -> list[Receipt]:
    """One owner, everything once, one record after the other."""
    return [
        _receipt(record, partition, f"p{partition}-1", at * service, (at + 1) * service)
        for at, record in enumerate(log)
    ]


def lose(receipts: list[Receipt], at: int) -> tuple[list[Receipt], set[Fault]]:
    """Nobody processes the record at a place."""
    gone = receipts[at]
    return receipts[:at] + receipts[at + 1 :], {
        (ViolationKind.LOST, "t", gone.partition, None, gone.offset)
    }


def swap(receipts: list[Receipt], at: int) -> tuple[list[Receipt], set[Fault]]:
    """A record and the next one of its stream are processed the other way round."""
    following = [i for i in range(at + 1, len(receipts)) if _key(receipts[i]) == _key(receipts[at])]
    if not following:
        return receipts, set()
    early, late = receipts[at], receipts[following[0]]
    changed = list(receipts)
    changed[at] = replace(early, started_ts=late.started_ts, finished_ts=late.finished_ts)
    changed[following[0]] = replace(
        late, started_ts=early.started_ts, finished_ts=early.finished_ts
    )
    return changed, {(ViolationKind.INVERSION, "t", early.partition, _key(early), _position(early))}


def intrude(receipts: list[Receipt], at: int) -> tuple[list[Receipt], set[Fault]]:
    """Another consumer processes a record again before its owner has finished it."""
    mine = receipts[at]
    middle = (mine.started_ts + mine.finished_ts) // 2
    intruder = replace(
        mine, incarnation="intruder", consumer=99, started_ts=middle, finished_ts=mine.finished_ts
    )
    return [*receipts, intruder], {
        (ViolationKind.TWO_OWNERS, "t", mine.partition, None, mine.offset),
        (ViolationKind.REPEAT, "t", mine.partition, _key(mine), _position(mine)),
    }


FAULTS = {"lose": lose, "swap": swap, "intrude": intrude}
