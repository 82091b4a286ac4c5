"""The rules of the order audit, one small story each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trimtab.evaluate.order import (
    Commit,
    OrderRules,
    RecordPosition,
    Violation,
    ViolationKind,
    audit,
    findings,
)
from trimtab.evaluate.verdict import OrderAuditResult, audited_to
from trimtab.model.control import Receipt


def story(*lines: str, key: bytes | None = b"k", numbered: bool = True) -> list[Receipt]:
    """Receipts from lines such as `A 3 20-30`: who, which record, from when to when."""
    receipts = []
    for line in lines:
        who, at, span = line.split()
        started, finished = map(int, span.split("-"))
        receipts.append(
            Receipt(
                run="r",
                group="g",
                topic="t",
                partition=0,
                offset=int(at) - 1,
                key=key,
                seq=int(at) if numbered else None,
                consumer=ord(who) - ord("A"),
                incarnation=who,
                event_ts=0,
                started_ts=started,
                finished_ts=finished,
            )
        )
    return receipts


def told(violations: Sequence[Violation]) -> list[tuple[str, int]]:
    return [(str(v.kind), v.at) for v in violations]


CLEAN = ("A 1 0-10", "A 2 10-20", "A 3 20-30")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (CLEAN, []),
        # A batch handler has several in hand at once.
        (("A 1 0-30", "A 2 0-30", "A 3 0-30"), []),
        # B takes over where A was killed, and repeats what A had not committed.
        ((*CLEAN, "B 2 40-50", "B 3 50-60", "B 4 60-70"), [("repeat", 2), ("repeat", 3)]),
        # B has it for a while, and A gets it back.
        (("A 1 0-10", "B 2 10-20", "A 3 20-30"), []),
        (("A 1 0-10", "A 3 20-30"), [("lost", 2)]),
        (("A 1 0-10", "A 3 10-20", "A 2 20-30"), [("inversion", 2)]),
        # B repeats, but the number 2 was first processed after 3.
        (
            ("A 1 0-10", "A 3 10-20", "B 2 30-40", "B 3 40-50"),
            [("inversion", 2), ("repeat", 3)],
        ),
        # Started in order, finished out of order.
        (("A 1 0-10", "A 2 10-40", "A 3 20-30"), [("inversion", 2)]),
        (("A 1 0-10", "A 2 10-20", "B 3 19-30"), [("two_owners", 2)]),
        # A was frozen over its record, B took over, A woke up: what it did came after 2.
        (
            ("A 1 0-90", "B 1 40-50", "B 2 50-60"),
            [("two_owners", 0), ("inversion", 1), ("repeat", 1)],
        ),
    ],
)
def test_a_story_of_one_key_is_judged_right(
    lines: tuple[str, ...], found: list[tuple[str, int]]
) -> None:
    assert told(audit(story(*lines))) == found


def test_a_partitions_stream_forgives_receipts_that_died_with_their_consumer() -> None:
    # A processed 1, 2, 3 and was killed before its receipts of 1 and 2 were on their way.
    lines = ("A 3 20-30", "B 1 40-50", "B 2 50-60", "B 3 60-70")

    assert told(audit(story(*lines, key=None))) == [("repeat", 3)]
    assert told(audit(story(*lines, numbered=False))) == [("repeat", 2)]
    assert ("inversion", 1) in told(audit(story(*lines)))


def test_a_record_that_one_consumer_overtook_is_found_without_numbers_too() -> None:
    lines = ("A 1 0-10", "A 3 10-20", "A 2 20-30", "A 3 30-40")

    assert told(audit(story(*lines, numbered=False))) == [("inversion", 1), ("repeat", 2)]


def test_what_was_acknowledged_must_have_been_processed() -> None:
    sent = [RecordPosition("t", 0, offset) for offset in range(4)]

    assert told(audit(story(*CLEAN), expected=sent)) == [("lost", 3)]


def test_a_number_that_was_never_acknowledged_is_not_lost() -> None:
    sent = [RecordPosition("t", 0, 0), RecordPosition("t", 0, 2)]

    assert audit(story("A 1 0-10", "A 3 10-20"), expected=sent) == ()


def test_numbers_that_begin_anew_are_another_stream() -> None:
    again = [
        Receipt(**{name: getattr(r, name) for name in r.__slots__} | {"offset": r.offset + 3})
        for r in story("A 1 30-40", "A 3 50-60")
    ]

    assert told(audit([*story(*CLEAN), *again])) == [("lost", 2)]


def test_a_stream_may_begin_anywhere_unless_it_should_begin_at_one() -> None:
    late = story("A 3 0-10", "A 4 10-20")

    assert audit(late) == ()
    assert told(audit(late, rules=OrderRules(from_first=True))) == [("lost", 1)]
    assert audit(story("A 1 0-10", "A 9 10-20"), rules=OrderRules(gaps=False)) == ()


def test_clocks_that_are_apart_make_no_second_owner() -> None:
    lines = ("A 1 0-10", "A 2 10-20", "B 3 17-30")

    assert told(audit(story(*lines))) == [("two_owners", 2)]
    assert audit(story(*lines), rules=OrderRules(clock_skew_us=3)) == ()


def test_committed_offsets_never_go_back() -> None:
    commits = [Commit("t", 0, 30, 3), Commit("t", 0, 70, 2)]

    found = audit(story(*CLEAN, "B 3 40-50"), commits=commits)

    assert told(found) == [("rewind", 2), ("rewind", 2), ("repeat", 3)]
    assert [v.detail for v in found][:2] == [
        "B processed offset 2 after 3 had been committed",
        "2 was committed after 3 had been",
    ]


def test_the_same_receipt_twice_is_one_receipt() -> None:
    assert audit([*story(*CLEAN), *story(*CLEAN)]) == ()


def test_a_repeat_is_a_finding_only_for_those_who_allow_none() -> None:
    found = audit(story(*CLEAN, "A 3 30-40"))

    assert findings(found) == {}
    assert findings(found, no_repeats=True) == {ViolationKind.REPEAT: 1}


def test_the_document_of_an_audit_names_every_kind() -> None:
    audited = OrderAuditResult(
        run="r",
        group="g",
        receipts=4,
        records=3,
        expected=None,
        rejects=0,
        unnumbered=0,
        counts={ViolationKind.REPEAT: 1},
        first=audit(story(*CLEAN, "A 3 30-40")),
    )

    document = audited_to(audited, no_repeats=False)

    assert document["counts"] == {
        "lost": 0,
        "repeat": 1,
        "inversion": 0,
        "two_owners": 0,
        "rewind": 0,
    }
    assert document["findings"] == 0
    assert document["violations"][0]["key"] == "k"
