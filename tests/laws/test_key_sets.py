"""The set audit finds nothing in a legal history, and every single fault in a spoilt one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.laws.key_histories import SPOILT, Spoil, legal_history, spoil
from trimtab.evaluate.key_history import SetFindingKind
from trimtab.evaluate.key_sets import SetAuditRules, audit_sets

AT_REST = SetAuditRules(at_rest=True)


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 80))
def test_a_legal_history_has_no_finding(seed: int, steps: int) -> None:
    history = legal_history(Random(seed), steps=steps)

    for rules in (AT_REST, SetAuditRules()):
        found = audit_sets(history, rules)
        assert found.findings == ()
        assert found.unsettled == ()


@pytest.mark.parametrize("how", SPOILT, ids=lambda how: how.__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_a_spoilt_history_is_found_out(how: Spoil, seed: int) -> None:
    rng = Random(seed)
    spoilt = spoil(legal_history(rng, steps=60), how, rng)
    assume(spoilt is not None)
    assert spoilt is not None

    found = {finding.kind for finding in audit_sets(spoilt, AT_REST).findings}

    assert found & SPOILT[how]


def test_every_kind_of_finding_has_a_fault_that_shows_it() -> None:
    assert frozenset().union(*SPOILT.values()) == set(SetFindingKind)
