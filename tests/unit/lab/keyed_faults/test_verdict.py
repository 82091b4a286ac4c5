"""The verdict of a campaign: states, times, and what is printed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from trimtab.evaluate.key_history import KeyHistory, SetReceipt
from trimtab.model.key_chain import chain_after, next_chain
from trimtab_lab.keyed_faults.verdict import (
    BlockedTimes,
    CampaignVerdict,
    judged,
    wrong_states,
)


class Counts(NamedTuple):
    count: int  # type: ignore[assignment]
    chain: str


GOOD = Counts(2, chain_after(2))


def test_a_state_that_equals_a_single_run_is_right() -> None:
    assert not list(wrong_states({b"a": 2}, {b"a": GOOD}))


@pytest.mark.parametrize(
    ("truth", "found", "told"),
    [
        ({b"a": 3}, {b"a": GOOD}, "a counts 2 records, its input has 3"),
        ({b"a": 2}, {}, "a has no state, its input has 2 records"),
        ({}, {b"a": GOOD}, "a has a state and no input"),
        (
            {b"a": 2},
            {b"a": Counts(2, next_chain(next_chain("", 2), 1))},
            "a was not counted in the order of its input",
        ),
    ],
)
def test_a_state_that_differs_is_told(truth, found, told) -> None:
    assert list(wrong_states(truth, found)) == [told]


def test_quantiles_of_blocked_times() -> None:
    times = BlockedTimes.of([n / 100 for n in range(101)])

    assert (times.number, times.p50_s, times.p99_s) == (101, 0.5, 0.99)
    assert BlockedTimes.of([]).p50_s is None


def verdict(receipts: tuple[SetReceipt, ...], unhealed: tuple[str, ...] = ()) -> CampaignVerdict:
    history = KeyHistory(acknowledged={b"a": (1, 2)}, receipts=receipts)
    none = BlockedTimes.of([])
    return CampaignVerdict(audit=judged(history), blocked=none, from_end=none, unhealed=unhealed)


def receipt(seq: int) -> SetReceipt:
    return SetReceipt(key=b"a", seq=seq, set_id=0, partition=0, offset=seq, started_ts=seq)


def test_a_missing_record_is_a_finding_and_a_group_that_does_not_recover_too() -> None:
    stuck = verdict((receipt(1), receipt(2)), unhealed=("it stands still",))
    lost = verdict((receipt(1),))

    assert not stuck.is_clean
    assert "FOUND not healed: it stands still" in list(stuck.lines())
    assert not lost.is_clean
    assert any("missing" in line for line in lost.lines())
    assert lost.node()["findings"]
