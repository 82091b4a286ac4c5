"""The entry of a key at a task: what each record and hand-over does to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    AppliedRecord,
    AwaitedEnd,
    DroppedRecord,
    DropReason,
    EntryStatus,
    HeldHandover,
    KeyEntry,
    KeyHandover,
    ParkedRecord,
    RejectedRecord,
    RejectReason,
    SentHandover,
    UnparkedRecord,
)
from trimtab.apply.keys.message_sets import DataRecord, EndMarker, PlainRecord, StartMarker
from trimtab.apply.keys.task import (
    ABSENT,
    ParkingLimits,
    adopt_empty,
    can_forget,
    can_replay,
    end_is_unreadable,
    must_pause,
    read_record,
    replay_parked,
    take_handover,
)

HERE = 1


def listed(value, record):
    """The application of these tests: a list of what it was given."""
    return (*(value or ()), record.payload)


def data(src, *, set_id=None, gen=1, shard=0):
    return DataRecord(shard=shard, gen=gen, src=src, set_id=set_id, payload=src)


def end(next_set, to=0):
    return EndMarker(shard=0, gen=1, set_id=next_set - 1, next_set=next_set, to=to)


def start(set_id, source=0, end_offset=7):
    return StartMarker(shard=0, gen=1, set_id=set_id, source=source, end_offset=end_offset)


def read(entry, record):
    return read_record(entry, record, listed, HERE)


def replayed(entry, queue):
    """The entry after as much of the queue as can be processed, all effects, and the rest."""
    seen: list[object] = []
    while can_replay(entry):
        entry, effects = replay_parked(entry, queue[0], listed, HERE)
        queue = queue[1:]
        seen += effects
    return entry, seen, queue


def test_a_record_of_an_unknown_key_is_applied():
    entry, effects = read(ABSENT, data(4))

    assert entry == KeyEntry(value=(4,), last_src=((0, 4),))
    assert effects == (AppliedRecord(data(4), 0),)


@pytest.mark.parametrize(
    ("entry", "record", "reason"),
    [
        (KeyEntry(last_src=((0, 4),), value=(4,)), data(4), DropReason.REPLAYED),
        (KeyEntry(last_src=((0, 4),), value=(4,)), data(3), DropReason.REPLAYED),
        (KeyEntry(set_id=5), data(9, set_id=4), DropReason.EARLIER_SET),
        (KeyEntry(status=EntryStatus.LEFT, set_id=5), data(9), DropReason.LEFT),
        (KeyEntry(status=EntryStatus.LEFT, set_id=5), end(5), DropReason.REPEATED_END),
        (KeyEntry(set_id=5, value=(4,)), end(5), DropReason.REPEATED_END),  # it has come back
        (KeyEntry(set_id=5), start(5), DropReason.REPEATED_START),
        (KeyEntry(status=EntryStatus.WAIT, set_id=5), start(4), DropReason.REPEATED_START),
    ],
)
def test_what_came_before_is_dropped(entry, record, reason):
    assert read(entry, record) == (entry, (DroppedRecord(reason),))


def test_a_record_leaves_a_state_that_came_early_where_it_is():
    early: KeyHandover[Any] = KeyHandover(set_id=9, source=0, value=(7,))

    entry, _ = read(KeyEntry(early=(early,)), data(4))

    assert entry.early == (early,)


def test_source_offsets_are_compared_within_their_shard():
    entry, _ = read(KeyEntry(last_src=((0, 9),), value=(9,)), data(3, shard=1))

    assert entry.last_src == ((0, 9), (1, 3))
    assert entry.last_src_of(2) == -1


def test_end_sends_the_state_and_leaves_a_mark():
    entry, effects = read(KeyEntry(set_id=2, value=(1, 2), last_src=((0, 2),)), end(3, to=4))

    assert entry == KeyEntry(status=EntryStatus.LEFT, set_id=3)
    sent = KeyHandover(set_id=3, source=HERE, value=(1, 2), last_src=((0, 2),))
    assert effects == (SentHandover(4, sent),)


def test_end_of_a_key_that_was_never_seen_sends_the_empty_state():
    _, effects = read(ABSENT, end(3, to=4))

    assert effects == (SentHandover(4, KeyHandover(set_id=3, source=HERE)),)


# START, two records, then the state: the records wait and are applied in order


def test_records_of_a_waiting_key_are_parked_and_replayed_in_order():
    entry, effects = read(ABSENT, start(1))
    assert (entry.status, entry.awaited, effects) == (EntryStatus.WAIT, AwaitedEnd(0, 7), ())
    entry, first = read(entry, data(5, set_id=1))
    entry, second = read(entry, data(6, set_id=1))
    assert first + second == (
        ParkedRecord(0, data(5, set_id=1)),
        ParkedRecord(1, data(6, set_id=1)),
    )
    assert entry.parked == 2
    entry, effects = take_handover(
        entry, KeyHandover(set_id=1, source=0, value=(4,), last_src=((0, 4),))
    )
    assert effects == (AdoptedHandover(1),)

    entry, seen, rest = replayed(entry, [data(5, set_id=1), data(6, set_id=1)])

    assert entry == KeyEntry(set_id=1, value=(4, 5, 6), last_src=((0, 6),))
    assert [effect for effect in seen if isinstance(effect, UnparkedRecord)] == [
        UnparkedRecord(0),
        UnparkedRecord(1),
    ]
    assert rest == []


def test_a_record_that_comes_while_the_queue_is_half_empty_waits_behind_it():
    entry, _ = read(ABSENT, start(1))
    for src in (5, 6):
        entry, _ = read(entry, data(src))
    entry, _ = take_handover(entry, KeyHandover(set_id=1, source=0))
    entry, _ = replay_parked(entry, data(5), listed, HERE)

    entry, effects = read(entry, data(7))

    assert effects == (ParkedRecord(2, data(7)),)


# A→B→A→B: the task of B has START 1, records, END 2, START 3 before any state has come


def test_end_and_the_next_start_wait_behind_parked_records():
    entry, _ = read(ABSENT, start(1))
    queue = [data(5, set_id=1), end(2), start(3), data(8, set_id=3)]
    for record in queue:
        entry, _ = read(entry, record)

    entry, _ = take_handover(entry, KeyHandover(set_id=1, source=0, value=(4,)))
    entry, seen, rest = replayed(entry, queue)

    assert seen[2] == SentHandover(
        0, KeyHandover(set_id=2, source=HERE, value=(4, 5), last_src=((0, 5),))
    )
    assert (entry.status, entry.set_id, entry.parked) == (EntryStatus.WAIT, 3, 1)
    assert rest == [data(8, set_id=3)]


def test_a_state_that_comes_before_its_start_is_held_and_adopted():
    handover = KeyHandover(set_id=3, source=0, value=(1,), last_src=((0, 1),))
    entry, effects = take_handover(KeyEntry(status=EntryStatus.LEFT, set_id=2), handover)
    assert effects == (HeldHandover(handover),)
    assert take_handover(entry, handover)[1] == (DroppedRecord(DropReason.REPEATED_HANDOVER),)

    entry, effects = read(entry, start(3))

    assert entry == KeyEntry(set_id=3, value=(1,), last_src=((0, 1),))
    assert effects == (AdoptedHandover(3, held=True),)


def test_only_the_state_of_its_own_set_is_adopted():
    others: tuple[KeyHandover[Any], ...] = tuple(
        KeyHandover(set_id=set_id, source=0) for set_id in (4, 6)
    )
    held: KeyEntry[Any] = KeyEntry(set_id=2, value=(1,), last_src=((0, 1),), early=others)

    waiting, _ = read(held, start(5))

    assert waiting == KeyEntry(
        status=EntryStatus.WAIT, set_id=5, early=others, awaited=AwaitedEnd(0, 7)
    )
    for set_id, kept in ((4, 2), (7, 3)):
        after, _ = take_handover(waiting, KeyHandover(set_id=set_id, source=0))
        assert (after.status, len(after.early)) == (EntryStatus.WAIT, kept)
    assert take_handover(waiting, KeyHandover(set_id=5, source=0))[0].early == others


def test_end_leaves_a_state_that_came_early_where_it_is():
    early: KeyHandover[Any] = KeyHandover(set_id=4, source=0, value=(7,))

    left, _ = read(KeyEntry(set_id=2, value=(1,), early=(early,)), end(3))

    assert left.early == (early,)


def test_a_repeated_hand_over_changes_nothing():
    entry: KeyEntry[object] = KeyEntry(set_id=3, value=(1, 2), last_src=((0, 2),))

    older: KeyHandover[object] = KeyHandover(set_id=3, source=0, value=(1,))
    assert take_handover(entry, older) == (
        entry,
        (DroppedRecord(DropReason.REPEATED_HANDOVER),),
    )


def test_a_record_without_headers_is_applied_without_looking_for_repeats():
    entry, effects = read(KeyEntry(value=(4,), last_src=((0, 4),)), PlainRecord("x"))

    assert entry == KeyEntry(value=(4, "x"), last_src=((0, 4),))
    assert effects == (AppliedRecord(PlainRecord("x"), 0),)


def test_a_record_without_headers_does_not_begin_a_second_state():
    left: KeyEntry[object] = KeyEntry(status=EntryStatus.LEFT, set_id=2)

    assert read(left, PlainRecord("x")) == (left, (RejectedRecord(RejectReason.NO_STATE),))


def test_nothing_is_replayed_while_a_key_waits():
    with pytest.raises(ValueError, match="No parked record"):
        replay_parked(KeyEntry(status=EntryStatus.WAIT, next_parked=1), data(1), listed, HERE)


# ---------------------------------------------------------------- END that nobody can read


def test_a_waiting_key_can_adopt_the_empty_state():
    waiting, _ = read(ABSENT, start(1))

    entry, effects = adopt_empty(waiting)

    assert entry == KeyEntry(set_id=1)
    assert effects == (AdoptedHandover(1, lost=True),)
    with pytest.raises(ValueError, match="waiting"):
        adopt_empty(entry)


@pytest.mark.parametrize(
    ("changed", "unreadable"),
    [
        ({"log_start": 8}, True),  # retention has passed END
        ({"log_start": 7}, False),
        ({"group_committed": 8}, True),  # the group has passed END
        ({"group_committed": 7}, False),
        ({}, False),
        ({"group_committed": 8, "handovers_read": False}, False),  # its hand-over may be there
        ({"group_committed": 8, "end_parked": True}, False),  # it waits behind parked records
        ({"log_start": 8, "end_parked": True}, False),
        ({"group_committed": 8, "markers_final": False}, False),  # END may have been fenced
    ],
)
def test_when_an_end_counts_as_unreadable(changed, unreadable):
    found: dict[str, Any] = {
        "markers_final": True,
        "log_start": 0,
        "group_committed": None,
        "end_parked": False,
        "handovers_read": True,
    }

    assert end_is_unreadable(AwaitedEnd(0, 7), **(found | changed)) is unreadable
    assert not end_is_unreadable(AwaitedEnd(0, -1), **(found | changed))  # nobody knows where


def test_a_repeated_start_says_where_the_repeated_end_is():
    waiting, _ = read(ABSENT, start(1, end_offset=7))

    again, effects = read(waiting, start(1, end_offset=9))

    assert again == replace(waiting, awaited=AwaitedEnd(0, 9))
    assert effects == (DroppedRecord(DropReason.REPEATED_START),)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("records", "size", "pause"), [(9, 99, False), (10, 0, True), (0, 100, True)]
)
def test_a_task_pauses_at_either_limit(records, size, pause):
    assert must_pause(ParkingLimits(10, 100), records=records, size_bytes=size) is pause


def test_a_task_can_park_at_least_one_record():
    with pytest.raises(ValueError, match="at least one"):
        ParkingLimits(0, 100)


@pytest.mark.parametrize(
    ("entry", "forgotten"),
    [
        (KeyEntry(last_src=((0, 4),)), True),
        (KeyEntry(last_src=((0, 5),)), False),  # may be sent again
        (KeyEntry(last_src=((1, 4),)), False),  # of another shard
        (KeyEntry(last_src=((0, 4),), value=(4,)), False),
        (KeyEntry(status=EntryStatus.LEFT, set_id=1), False),
        (KeyEntry(last_src=((0, 4),), next_parked=1), False),
        (KeyEntry(last_src=((0, 4),), set_id=1), False),  # its START may come again
        (KeyEntry(last_src=((0, 4),), early=(KeyHandover(set_id=1, source=0),)), False),
    ],
)
def test_which_entries_a_fence_lets_go(entry, forgotten):
    assert can_forget(entry, 0, 5) is forgotten
    assert can_forget(entry, 0, None) is False
