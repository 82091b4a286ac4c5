"""The order audit finds what was planted, and nothing in what at-least-once allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.processing import (
    FAULTS,
    Fault,
    Written,
    log_of,
    lose,
    places,
    run_of,
    steady,
    swap,
)
from trimtab.evaluate.order import Violation, ViolationKind, audit, findings

SEEDS = st.integers(0, 2**32)


def faults(violations: tuple[Violation, ...]) -> set[Fault]:
    return {(v.kind, v.topic, v.partition, v.key, v.at) for v in violations}


@given(seed=SEEDS, records=st.integers(0, 25), turns=st.integers(1, 2))
def test_a_run_as_at_least_once_allows_it_has_no_findings(
    seed: int, records: int, turns: int
) -> None:
    rng = Random(seed)
    log = log_of(rng, 0, records, turns=turns)
    receipts, commits = run_of(rng, log, 0)
    rng.shuffle(receipts)

    found = audit(receipts, expected=places(log, 0), commits=commits)

    assert findings(found) == {}
    seen = [r.offset for r in set(receipts)]  # equal ones are one that was sent twice
    assert {v.kind for v in found} == (
        {ViolationKind.REPEAT} if len(seen) > len(set(seen)) else set()
    )


@given(seed=SEEDS, records=st.integers(8, 20), fault=st.sampled_from(sorted(FAULTS)))
def test_what_was_planted_is_found_and_nothing_else(seed: int, records: int, fault: str) -> None:
    rng = Random(seed)
    log = log_of(rng, 0, records)
    receipts, planted = FAULTS[fault](steady(log, 0), rng.randrange(records))
    rng.shuffle(receipts)

    assert faults(audit(receipts, expected=places(log, 0))) == planted


@given(seed=SEEDS)
def test_owners_are_two_at_once_just_when_two_of_their_records_overlap(seed: int) -> None:
    rng = Random(seed)
    log = [Written(offset=i, key=None, seq=None) for i in range(8)]
    receipts = [r for n in range(3) for r in run_of(rng, log, n)[0]]
    mixed = [r for r in receipts if rng.random() < 0.6]
    # Three runs of their own, told as one: their incarnations know nothing of each other.
    told = [replace(r, partition=0) for r in mixed]

    overlapping = {
        frozenset((a.incarnation, b.incarnation))
        for a, b in combinations(told, 2)
        if a.incarnation != b.incarnation
        and a.started_ts < b.finished_ts
        and b.started_ts < a.finished_ts
    }

    found = [v for v in audit(told) if v.kind is ViolationKind.TWO_OWNERS]
    assert len(found) == len(overlapping)


def _keyed(*seqs: int) -> list[Written]:
    return [Written(offset=i, key=b"k", seq=seq) for i, seq in enumerate(seqs)]


def test_a_hole_in_the_numbers_is_a_loss_even_when_nobody_says_what_was_sent() -> None:
    receipts, _ = lose(steady(_keyed(1, 2, 3, 4, 5), 0), 2)

    assert faults(audit(receipts)) == {(ViolationKind.LOST, "t", 0, b"k", 3)}


@pytest.mark.parametrize("at", range(3))
def test_what_finished_too_early_is_found_wherever_it_stands(at: int) -> None:
    receipts, planted = swap(steady(_keyed(1, 2, 3, 4), 0), at)

    assert faults(audit(receipts)) == planted
