"""Groups and pairs beyond what the laws and the paper's examples say."""

from __future__ import annotations

from itertools import islice

import numpy as np

from trimtab.audit.groups import (
    as_bits,
    count_pairs,
    heaviest_pairs,
    max_groups,
    pairs,
)
from trimtab.audit.layout import layout_of
from trimtab.audit.loads import sent_by_groups
from trimtab.testing.placements import led, random_placement


def test_pairs_are_made_one_by_one() -> None:
    found = max_groups(layout_of(random_placement(topics=400, brokers=30)))

    first = list(islice(pairs(found), 3))

    assert [(pair.first, pair.second) for pair in first] == [(0, 1), (0, 2), (0, 3)]
    assert count_pairs(found) > 70_000


def test_the_heaviest_pair_is_that_with_the_highest_rate_on_common_brokers() -> None:
    # A and B send 1 each to broker 2; C is fast, and meets B on broker 3 with a third of it.
    layout = layout_of(led({"A": {1: 1, 2: 1}, "B": {2: 1, 3: 1}, "C": {3: 1, 4: 2}}))
    groups = max_groups(layout)
    sent = sent_by_groups(layout, groups, np.array([2.0, 2.0, 30.0]))

    (heaviest,) = heaviest_pairs(groups, sent, limit=1)

    assert heaviest == (1, 2, (3,), 11.0)
    assert [p.rate for p in heaviest_pairs(groups, sent, limit=9)] == [11.0, 2.0]


def test_no_pair_is_kept_where_none_is_asked_for_or_there_is_none() -> None:
    groups = max_groups(layout_of(led({"A": {1: 1}, "B": {2: 1}})))
    sent = np.ones(groups.led.size)

    assert heaviest_pairs(groups, sent, limit=0) == []
    assert heaviest_pairs(groups, sent, limit=5) == []


def test_many_rows_are_packed_in_parts() -> None:
    rows = np.arange(10_000)

    assert as_bits(rows, rows % 70, rows=10_000, width=70) == [1 << (r % 70) for r in range(10_000)]
