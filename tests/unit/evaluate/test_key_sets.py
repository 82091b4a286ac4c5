"""The set audit: what it finds, and above all what it leaves alone.

Partitions are 0 to 2; the home of `a` is 1 (its first byte modulo three). Faults of every kind are
planted in `tests/laws/test_key_sets.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tests.laws.key_histories import HistoryWriter
from trimtab.evaluate.key_history import (
    KeptEntry,
    KeptStatus,
    KeyHistory,
    KeySetPlace,
    SetFindingKind,
    SetMarkerKind,
    SetRule,
)
from trimtab.evaluate.key_sets import SetAuditRules, audit_sets
from trimtab.model.key_chain import chain_after

AT_REST = SetAuditRules(at_rest=True)
A = b"a"


def kinds(history: KeyHistory, rules: SetAuditRules = AT_REST) -> list[tuple[str, int]]:
    return [(str(f.kind), f.at) for f in audit_sets(history, rules).findings]


def moved(*places: int, crash: str | None = None) -> HistoryWriter:
    """Two records at home and on every one of the places, which the key goes to in turn."""
    made = HistoryWriter()
    for place in (1, *places):
        made.move(A, place, crash=crash)
        made.record(A)
        made.record(A)
    return made


def test_a_key_that_never_moved_has_set_0_and_no_finding() -> None:
    found = audit_sets(moved().history(), AT_REST)

    assert found.findings == ()
    assert (found.keys, found.records, found.applied, found.chains) == (1, 2, 2, 2)
    assert (found.sets, found.adoptions) == (0, 0)


def test_chains_of_moves_have_no_finding() -> None:
    for places in ((2, 1), (2, 0), (0, 2, 0, 1)):
        found = audit_sets(moved(*places).history(), AT_REST)

        assert found.findings == ()
        assert (found.sets, found.adoptions) == (len(places), len(places))


def test_markers_repeated_after_a_crash_count_once() -> None:
    for crash in ("before", "after", "late"):
        found = audit_sets(moved(2, 1, crash=crash).history(), AT_REST)

        assert found.findings == ()
        assert (found.sets, found.adoptions) == (2, 2)


def test_a_key_may_pass_through_a_partition_without_a_record_there() -> None:
    made = moved()
    made.move(A, 2)
    made.move(A, 0)
    history = replace(made.history(), adopted=())  # the tombstones were compacted

    assert kinds(history) == []


def test_keys_that_moved_between_two_runs_have_no_finding() -> None:
    made = moved(2)
    made.run = "r2"
    made.move(A, 0)
    made.record(A)

    assert kinds(made.history()) == []


def test_numbers_that_begin_anew_are_no_repeats() -> None:
    made = moved(2)
    made.run = "r2"
    for seq in (1, 2, 3):
        made.record(A, seq=seq)

    assert kinds(made.history()) == []


def test_a_missing_repeated_or_late_record_is_told_apart() -> None:
    history = moved(2, 0).history()
    one, two, three, four, five, six = history.receipts
    again = replace(two, offset=90, log_offset=90)
    swapped = (one, replace(two, seq=3), replace(three, seq=2))

    assert kinds(replace(history, receipts=(one, two, five, six))) == [("missing", 3)]
    assert kinds(replace(history, receipts=(*history.receipts, again)))[0] == ("repeated", 2)
    late = replace(history, receipts=(*swapped, four, five, six))
    assert ("out_of_order", 2) in kinds(late)
    assert audit_sets(late, AT_REST).findings[0].kind.rule is SetRule.V1


def test_dead_letters_count_as_present_and_are_not_in_the_chain() -> None:
    made = moved(2)
    made.record(A, fails=True)
    made.record(A, rejected=True)
    made.record(A)

    assert kinds(made.history()) == []


def test_records_before_the_group_was_keyed_are_present_but_not_in_its_state() -> None:
    made = HistoryWriter()
    made.record(A)
    made.receipts = [replace(made.receipts[0], set_id=None, chain=None)]
    made.chains[A] = ""
    made.record(A)

    assert kinds(made.history()) == []
    assert made.receipts[-1].chain != chain_after(2)


def test_the_end_of_the_source_may_be_unread_while_things_move() -> None:
    history = moved(2).history()
    behind = replace(history, receipts=history.receipts[:-1])

    found = audit_sets(behind, SetAuditRules())

    assert found.findings == ()
    assert found.unsettled == (A,)
    assert ("missing", 4) in kinds(behind)


def test_a_key_on_its_way_is_unsettled_unless_all_must_be_at_rest() -> None:
    made = moved()
    made.move(A, 2)
    entries = (
        KeptEntry(partition=1, key=A, status=KeptStatus.LEFT, set_id=1),
        KeptEntry(partition=2, key=A, status=KeptStatus.WAIT, set_id=1),
    )
    history = replace(
        made.history(),
        entries=entries,
        adopted=(),
        handovers=(KeySetPlace(A, 1, 2),),
        parked={(2, A): 3},
    )

    assert audit_sets(history).findings == ()
    assert audit_sets(history).unsettled == (A,)
    assert {kind for kind, _ in kinds(history)} == {
        *("no_owner", "waiting", "parked", "open_handover", "not_adopted")
    }


def test_markers_behind_retention_are_not_missed() -> None:
    history = replace(moved(2, 0).history(), markers=(), log_starts={0: 5, 1: 5, 2: 5})
    begun = moved(2, 0).history()
    only_start = replace(
        begun,
        markers=tuple(m for m in begun.markers if (m.kind, m.set_id) != (SetMarkerKind.END, 1)),
        log_starts={1: 5},
    )

    assert kinds(history) == []
    assert kinds(only_start) == []


def test_a_key_is_judged_from_its_first_receipt_on_if_the_beginning_is_gone() -> None:
    history = moved(2, 0).history()
    cut = replace(
        history, acknowledged={A: (2, 3, 4, 5, 6)}, receipts=history.receipts[2:], complete=False
    )
    without_start = replace(cut, receipts=history.receipts[1:])
    spoilt = replace(cut, receipts=(*history.receipts[2:4], *history.receipts[5:]))

    assert kinds(cut) == []
    assert kinds(without_start) == []
    assert kinds(spoilt) == [("missing", 5)]


def test_different_keys_may_have_the_same_sets() -> None:
    made = moved(2)
    made.next_set = 1
    made.record(b"b")
    made.move(b"b", 0)
    made.record(b"b")

    assert kinds(made.history()) == []


def test_clocks_that_differ_are_no_second_owner() -> None:
    history = moved(2).history()
    one, two, three, four = history.receipts
    overlapping = replace(
        history, receipts=(one, replace(two, finished_ts=three.started_ts + 3), three, four)
    )

    assert kinds(overlapping) == [("two_owners", three.offset)]
    assert kinds(overlapping, replace(AT_REST, clock_skew_us=3)) == []


def test_a_record_in_an_earlier_set_after_a_later_one_is_found() -> None:
    history = moved(2).history()
    one, two, three, four = history.receipts
    zombie = replace(history, receipts=(one, replace(two, log_offset=9), three, four))

    assert ("sets_fell", 0) in kinds(zombie)


def test_a_finding_names_the_run_of_its_receipt() -> None:
    made = moved(2)
    made.run = "r2"
    made.record(A)
    made.receipts[-1] = replace(made.receipts[-1], chain="0" * 16)
    made.chains[A] = "0" * 16

    (found,) = audit_sets(made.history(), AT_REST).findings

    assert (found.kind, found.run, found.partition) == (SetFindingKind.WRONG_CHAIN, "r2", 2)
