"""Landau's latency model against the same formulas, byte by byte."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.simulate.consumers import kafka_default, landau

P = [TopicPartition("t", n) for n in range(9)]


def byte_by_byte(loads, assignments, rate, iteration_s, rebalance_s):
    """Eqs 16 to 27 with a loop for every byte."""
    samples, starved = [], 0
    carried: dict[int, float] = {}
    for k in range(1, len(loads)):
        before, after, ends = assignments[k - 1], assignments[k], {}
        for c in sorted(set(after.values())):
            mine = [p for p in sorted(after) if after[p] == c]
            wf = sum(loads[k][p] for p in mine if before.get(p) == c)
            wr = sum(loads[k][p] for p in mine if before.get(p) != c)
            rf = rate if wr == 0 else min(rate, wf)
            rr = rate - rf
            ends[c] = 0.0
            if wf:
                m, b = 1 / rf - 1 / wf, carried.get(c, 0.0)
                samples += [max(m * i + b, 0) for i in range(int(iteration_s * wf))]
                ends[c] = max(m * iteration_s * wf + b, 0)
            if wr and rr:
                m = 1 / rr - 1 / wr
                samples += [max(m * i + rebalance_s, 0) for i in range(int(iteration_s * wr))]
            elif wr:
                waits = [iteration_s - i / wr for i in range(int(iteration_s * wr))]
                samples += waits
                starved += len(waits)
            if wr:
                ends[c] += max(iteration_s * wr - rr * (iteration_s - rebalance_s), 0) / rate
        carried = ends
    return np.array(samples), starved


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_those_of_brute_force(seed):
    rng = Random(seed)
    loads, assignments = [], []
    for _ in range(6):
        there = [p for p in P if rng.random() < 0.9]
        loads.append({p: rng.choice([0, 1, 5, 9.5, 20, 40]) for p in there})
        assignments.append(Assignment({p: rng.randrange(3) for p in there}))
    found = landau(loads, assignments, capacity=40, capacity_ratio=0.8)
    samples, starved = byte_by_byte(loads, assignments, 50.0, 30, 5)
    assert (found.ramps.samples, found.starved) == (samples.size, starved)
    assert found.ramps.maximum == pytest.approx(samples.max())
    for percent in (10, 50, 90, 99):
        expected = np.percentile(samples, percent)
        assert found.ramps.percentile(percent, positive=False) == pytest.approx(expected)


def test_a_queue_that_was_moved_starts_with_the_rebalance_and_falls_in_a_straight_line():
    before, after = Assignment({P[0]: 0, P[1]: 1}), Assignment({P[0]: 0, P[1]: 0})
    loads = [{P[0]: 40, P[1]: 20}] * 2
    found = landau(loads, [before, after], capacity=80, capacity_ratio=0.8)
    # 60 are left for the moved queue of 20: it is read three times as fast as it is written.
    assert found.ramps.maximum == 5
    assert found.ramps.positive == pytest.approx(5 / (1 / 20 - 1 / 60), abs=1)


def test_the_first_iteration_has_no_samples():
    found = landau([{P[0]: 50}], [Assignment({P[0]: 0})], capacity=10)
    assert found.ramps.samples == 0


def test_a_consumer_that_falls_behind_goes_on_from_there():
    stays = Assignment({P[0]: 0})
    found = landau([{P[0]: 15}] * 3, [stays] * 3, capacity=10, capacity_ratio=1)
    # 15 in and 10 out: 15 s behind after the first 30 s, and 30 s after the second.
    assert found.ramps.starts.tolist() == pytest.approx([0, 15])
    assert found.ramps.maximum == pytest.approx(30, abs=0.1)


def test_a_moved_queue_that_nobody_can_read_waits_until_the_iteration_ends():
    before, after = Assignment({P[0]: 0, P[1]: 1}), Assignment({P[0]: 0, P[1]: 0})
    found = landau([{P[0]: 20, P[1]: 2}] * 2, [before, after], capacity=10, capacity_ratio=1)
    assert found.starved == 60
    assert found.ramps.maximum == 30


def test_what_was_not_read_of_a_moved_queue_waits_in_the_next_iteration():
    before, after = Assignment({P[0]: 0}), Assignment({P[0]: 1})
    found = landau(
        [{P[0]: 10}] * 3, [before, after, after], capacity=10, capacity_ratio=1, rebalance_s=6
    )
    assert found.ramps.starts.tolist() == pytest.approx([6, 6])


def test_kafka_deals_partitions_by_their_place_in_order():
    assert [kafka_default(P[::-1], 4)[p] for p in P] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    "how", [{"capacity": 0}, {"capacity_ratio": 1.5}, {"rebalance_s": 30}, {"rebalance_s": -1}]
)
def test_a_world_that_makes_no_sense_is_refused(how):
    with pytest.raises(ValueError, match="capacity must be positive"):
        landau([], [], **{"capacity": 10, **how})
