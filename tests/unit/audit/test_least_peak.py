"""The least possible peak where it is not obvious; the laws compare it with the formula."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from trimtab.audit.groups import max_groups
from trimtab.audit.layout import layout_of
from trimtab.audit.least_peak import least_peak, least_peak_of
from trimtab.testing.placements import random_placement


def test_nothing_to_carry_has_no_peak() -> None:
    assert least_peak([], []) == (0.0, (), ())
    assert least_peak([0.0], [[3]]) == (0.0, (), ())


def test_the_bottleneck_may_be_several_items_that_share_few_brokers() -> None:
    found = least_peak([2.0, 2.0, 2.0, 1.0], [[0, 1], [0, 1], [0, 1], [0, 1, 2, 3]])

    assert found == (3.0, (0, 1, 2), (0, 1))


def test_rates_of_any_size_are_exact() -> None:
    tiny, huge = 5e-324, 1.7e300

    assert least_peak([tiny, huge], [[0], [1]]).peak == huge
    assert least_peak([0.1, 0.2], [[0], [0]]).peak == float(Fraction(0.1) + Fraction(0.2))


def test_a_large_cluster_agrees_with_linear_programming() -> None:
    groups = max_groups(layout_of(random_placement(topics=60, brokers=20, partitions=4)))
    rng = random.Random(3)
    rates = np.array([rng.lognormvariate(0, 2) for _ in groups.masks])

    found = least_peak_of(rates, groups.led, groups.start)

    # Variables: what each row carries, and the peak.
    rows = groups.led.size
    item = np.repeat(np.arange(len(groups.masks)), np.diff(groups.start))
    carried = np.zeros((20, rows + 1))
    carried[groups.led, np.arange(rows)] = 1.0
    carried[:, -1] = -1.0
    split = np.zeros((len(rates), rows + 1))
    split[item, np.arange(rows)] = 1.0
    cost = np.zeros(rows + 1)
    cost[-1] = 1.0
    best = linprog(cost, A_ub=carried, b_ub=np.zeros(20), A_eq=split, b_eq=rates)
    assert best.fun == pytest.approx(found.peak, rel=1e-9)
