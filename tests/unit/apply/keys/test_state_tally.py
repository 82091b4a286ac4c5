"""Counting changelogs and hand-overs without keeping states."""

from __future__ import annotations

from trimtab.apply.keys.chunks import state_key
from trimtab.apply.keys.handover_layout import (
    handover_tombstones,
    handover_writes,
    held_tombstones,
    held_writes,
)
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry, KeyHandover
from trimtab.apply.keys.partition_fences import PartitionFences
from trimtab.apply.keys.state_layout import (
    FENCE_KEY,
    entry_text,
    entry_writes,
    fence_text,
    parked_key,
    parked_text,
)
from trimtab.apply.keys.state_tally import HandoverTally, StateTally
from trimtab.model.record import Record

WAIT: KeyEntry[bytes] = KeyEntry(status=EntryStatus.WAIT, set_id=7, awaited=AwaitedEnd(3, 150))
LEFT: KeyEntry[bytes] = KeyEntry(status=EntryStatus.LEFT, set_id=7)
OWN: KeyEntry[bytes] = KeyEntry(value=b"state", last_src=((0, 5),))


def entry(tally: StateTally, key: bytes, found: KeyEntry[bytes], ts: int = 1) -> None:
    text = entry_text(found)
    for name, value in entry_writes(key, found, text, chunks_before=1, limit_bytes=1000):
        tally.add(name, value, ts)


def test_the_newest_record_of_a_key_counts() -> None:
    tally = StateTally()
    entry(tally, b"a", WAIT, ts=5)
    entry(tally, b"b", WAIT, ts=6)
    entry(tally, b"c", OWN)
    entry(tally, b"d", LEFT)
    entry(tally, b"a", OWN)
    entry(tally, b"d", OWN)
    entry(tally, b"c", LEFT)
    tally.add(state_key(b"gone", 0), entry_text(OWN), 1)
    tally.add(state_key(b"gone", 0), None, 2)

    found = tally.contents()

    assert (found.owned, found.left) == (2, 1)
    assert [(w.key, w.set_id, w.since_ts) for w in found.waiting] == [(b"b", 7, 6000)]
    assert (found.waiting[0].end_partition, found.waiting[0].end_offset) == (3, 150)


def test_a_state_of_several_chunks_is_one_key_with_all_its_bytes() -> None:
    tally, large = StateTally(), KeyEntry(value=bytes(2500))
    writes = dict(entry_writes(b"a", large, entry_text(large), chunks_before=1, limit_bytes=1000))
    for name, value in writes.items():
        tally.add(name, value, 1)

    assert len(writes) == 3
    assert tally.contents().owned == 1
    assert tally.contents().state_bytes == sum(len(k) + len(v or b"") for k, v in writes.items())


def test_parked_records_are_counted_by_key_with_the_size_that_counts_for_the_limit() -> None:
    tally = StateTally()
    record = Record("orders", 0, 9, b"a", b"12345", (("tt-src", bytes(8)),), 1)
    for number in range(3):
        tally.add(parked_key(b"a", number), parked_text(record), 1)
    tally.add(parked_key(b"a", 0), None, 2)

    found = tally.contents()

    assert found.parked == {b"a": 2}
    assert found.parked_bytes == 2 * record.size
    stored = len(parked_key(b"a", 1)) + len(parked_text(record))
    assert found.state_bytes == 2 * stored


def test_an_early_handover_of_several_chunks_counts_once_until_it_is_adopted() -> None:
    tally = StateTally()
    early = KeyHandover(set_id=7, source=3, value=bytes(2500))
    for name, text in held_writes(b"a", early, 3):
        tally.add(name, text, 1)
    tally.add(FENCE_KEY, fence_text(PartitionFences()), 1)

    assert (tally.contents().early, tally.contents().owned) == (1, 0)

    for name, text in held_tombstones(b"a", 7, 3):
        tally.add(name, text, 2)

    assert tally.contents().early == 0


def test_a_handover_is_under_way_until_all_its_chunks_have_tombstones() -> None:
    tally = HandoverTally()
    large = handover_writes(b"a", KeyHandover(set_id=7, source=3, value=bytes(2500)), 1000)
    small = handover_writes(b"b", KeyHandover(set_id=8, source=3, value=b"x"), 1000)
    for ts, (name, text) in enumerate([*large, *small], 1):
        tally.add(name, text, ts)

    found = tally.under_way()

    assert [(h.key, h.set_id, h.since_ts) for h in found] == [(b"a", 7, 1000), (b"b", 8, 4000)]
    assert found[0].size_bytes == sum(len(k) + len(v or b"") for k, v in large)

    for name, text in handover_tombstones(b"a", 7, 3):
        tally.add(name, text, 9)
    tally.add(*handover_tombstones(b"never-sent", 1, 1)[0], 9)

    assert [h.key for h in tally.under_way()] == [b"b"]
