"""The fluid world: who reads how much, what waits how long, what a group costs."""

from __future__ import annotations

from collections import deque
from random import Random

import numpy as np
import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.simulate.fluid import (
    FluidOrder,
    FluidView,
    FluidWorld,
    fluid,
    received,
    unchanged,
)
from trimtab.workload.rate_streams import RateSchedule, ezzeddine_workload_1

P = [TopicPartition("workload", n) for n in range(4)]


def at(*orders):
    """A controller that gives each order at its time."""

    def control(seen: FluidView, /) -> FluidOrder | None:
        return next((order for t_s, order in orders if t_s == pytest.approx(seen.t_s)), None)

    return control


def on(*consumers):
    return FluidOrder.using(Assignment(dict(zip(P, consumers, strict=False))))


def test_a_group_that_keeps_up_lets_nothing_wait():
    found = fluid(RateSchedule.constant([40, 60], duration_s=5), unchanged, world=FluidWorld())
    assert found.max_lag == pytest.approx(0)
    assert found.delays.maximum_s == 0
    assert found.delays.total == pytest.approx(500)
    assert found.replica_minutes == pytest.approx(5 / 60)


def test_time_is_shared_equally_and_none_is_wasted():
    """20/s and 180/s for one consumer of 100/s: the first needs 20, so the other gets 80."""
    found = fluid(RateSchedule.constant([20, 180], duration_s=10), unchanged, world=FluidWorld())
    assert found.lag[99] == pytest.approx(10 * (180 - 80))
    assert found.delays.maximum_s == pytest.approx(10, abs=0.2)
    assert found.times_s[-1] == pytest.approx(20, abs=0.2)


def test_the_run_goes_on_until_every_queue_is_empty_but_costs_only_until_the_workload_ends():
    found = fluid(RateSchedule.constant([150], duration_s=10), unchanged, world=FluidWorld())
    assert found.lag[-1] == 0
    assert found.delays.total == pytest.approx(1500)
    assert found.times_s[-1] == pytest.approx(15, abs=0.2)
    assert found.replica_minutes == pytest.approx(10 / 60)


def test_a_partition_that_changes_its_owner_is_not_read_for_a_while():
    found = fluid(
        RateSchedule.constant([10, 10], duration_s=10),
        at((4, on(0, 1))),
        world=FluidWorld(block_s=2.0),
    )
    assert found.max_lag == pytest.approx(10 * 2)
    assert found.delays.maximum_s == pytest.approx(2.0)
    (change,) = found.changes
    assert (change.t_s, change.action, change.moves) == (4, Action.SCALE_UP, 1)
    assert change.moved_load == pytest.approx(10)


def test_replicas_are_counted_while_they_live():
    found = fluid(
        RateSchedule.constant([1, 1, 1], duration_s=10),
        at((3, on(0, 1, 2)), (5, on(0, 0, 2)), (8, on(0, 0, 0))),
        world=FluidWorld(),
    )
    assert found.replica_minutes * 60 == pytest.approx(3 * 1 + 2 * 3 + 3 * 2 + 2 * 1)
    assert found.replica_schedule == ((3.0, 3), (5.0, 2), (8.0, 1))


def test_a_consumer_that_is_starting_costs_nothing_yet_and_the_old_owner_reads_on():
    found = fluid(
        RateSchedule.constant([10, 10], duration_s=10),
        at((2, on(0, 1))),
        world=FluidWorld(startup_s=3.0, block_s=0.0),
    )
    assert found.max_lag == pytest.approx(0)
    assert found.replica_minutes * 60 == pytest.approx(10 + 5)


def test_idle_consumers_cost_too():
    start = FluidOrder.of(Assignment({P[0]: 0}), 3)
    schedule = RateSchedule.constant([1], duration_s=6)
    found = fluid(schedule, unchanged, world=FluidWorld(), start=start)
    assert found.replica_minutes * 60 == pytest.approx(18)


def test_a_controller_sees_rates_since_its_last_look_and_lags():
    seen: list[FluidView] = []

    def watch(sight: FluidView, /) -> None:
        seen.append(sight)

    ramp = RateSchedule.ramp([0.0], [400.0], duration_s=4.0)
    fluid(ramp, watch, world=FluidWorld(decision_interval_s=2.0))

    assert [(s.t_s, s.decision) for s in seen] == [(2.0, 0)]
    assert seen[0].rates == {P[0]: pytest.approx(100)}
    assert seen[0].lags == {P[0]: pytest.approx(200 - 50 - 100, abs=5)}
    assert seen[0].since_scaling_s == float("inf")


def test_the_time_since_the_last_scaling_does_not_count_reassignments():
    seen: list[float] = []
    orders = at((2, on(0, 1)), (3, on(1, 0)))

    def watch(sight: FluidView, /) -> FluidOrder | None:
        seen.append(sight.since_scaling_s)
        order: FluidOrder | None = orders(sight)
        return order

    fluid(RateSchedule.constant([1, 1], duration_s=6), watch, world=FluidWorld())

    assert seen == [float("inf"), float("inf"), 1, 2, 3]


def test_what_waits_at_the_beginning_is_read_first():
    found = fluid(
        RateSchedule.constant([50], duration_s=4),
        unchanged,
        world=FluidWorld(),
        backlog={P[0]: 100.0},
    )
    assert found.delays.total == pytest.approx(300)
    assert found.lag[0] == pytest.approx(95)
    assert found.delays.maximum_s == pytest.approx(1.0, abs=0.1)


def test_consumers_may_be_unequally_fast():
    found = fluid(
        RateSchedule.constant([100, 100], duration_s=10),
        unchanged,
        world=FluidWorld(service_rates={1: 200.0}, service_rate=50.0),
        start=on(0, 1),
    )
    assert found.lag[99] == pytest.approx(500)


def test_what_arrives_is_the_integral_of_the_rate():
    schedule = ezzeddine_workload_1()
    times = np.array([0.0, 60.0, 131.3, 165.0, 300.0, 480.0, 599.9, 600.0, 700.0])
    found = received(schedule, times)
    for row, t_s in zip(found, times.tolist(), strict=True):
        assert row.tolist() == pytest.approx([schedule.cumulative(p, t_s) for p in range(5)])


def queue_by_queue(rates, rate, steps_of_work, owner):
    """The same world with a list for every queue: constant rates, no controller."""
    queues: list[deque[list[float]]] = [deque() for _ in rates]
    waited: dict[float, float] = {}
    step = 0
    while step < steps_of_work or any(queues):
        for queue, arriving in zip(queues, rates, strict=True):
            if step < steps_of_work and arriving:
                queue.append([step, arriving])
        for c in set(owner):
            room = rate
            waiting = [q for q, o in zip(queues, owner, strict=True) if o == c and q]
            waiting.sort(key=lambda q: sum(amount for _, amount in q))
            for place, queue in enumerate(waiting):
                share = min(room / (len(waiting) - place), sum(amount for _, amount in queue))
                room -= share
                while queue and share > 1e-9:
                    taken = min(share, queue[0][1])
                    waited[step - queue[0][0]] = waited.get(step - queue[0][0], 0) + taken
                    share -= taken
                    queue[0][1] -= taken
                    if queue[0][1] < 1e-9:
                        queue.popleft()
        step += 1
    return waited


@pytest.mark.parametrize("seed", range(5))
def test_delays_are_those_of_queues_kept_as_lists(seed):
    rng = Random(seed)
    rates = [float(rng.randrange(0, 90)) for _ in P]
    owner = [rng.randrange(2) for _ in P]
    found = fluid(
        RateSchedule.constant(rates, duration_s=20),
        unchanged,
        world=FluidWorld(service_rate=70.0),
        start=on(*owner),
    )
    expected = queue_by_queue([r / 10 for r in rates], 7.0, 200, owner)
    for waited, amount in enumerate(found.delays.amounts.tolist()):
        assert amount == pytest.approx(expected.get(waited, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    "order",
    [
        FluidOrder.using(Assignment({P[0]: 0})),
        FluidOrder(Assignment({P[0]: 0, P[1]: 1}), frozenset({0})),
    ],
    ids=["a partition without owner", "an owner that is not to live"],
)
def test_an_order_that_cannot_be_obeyed_is_refused(order):
    schedule = RateSchedule.constant([1, 1], duration_s=4)
    with pytest.raises(ValueError, match="order"):
        fluid(schedule, at((2, order)), world=FluidWorld())
    with pytest.raises(ValueError, match="must start with a running consumer"):
        fluid(schedule, unchanged, world=FluidWorld(), start=order)


@pytest.mark.parametrize(
    "how",
    [
        {"service_rate": 0.0},
        {"service_rates": {1: float("inf")}},
        {"step_s": 0.0},
        {"step_s": 2.0},
        {"block_s": -1.0},
    ],
)
def test_a_world_that_makes_no_sense_is_refused(how):
    with pytest.raises(ValueError, match=r"service rate|step|times"):
        FluidWorld(**how)


def test_every_partition_needs_a_name_of_its_own():
    schedule = RateSchedule.constant([1, 1], duration_s=1)
    with pytest.raises(ValueError, match="name"):
        fluid(schedule, unchanged, world=FluidWorld(), names=[P[0], P[0]])


@pytest.mark.parametrize("capacity", [1.0, 100.0, 333.3, 2e6, 3e12])
@pytest.mark.parametrize("partitions", [2, 3, 5])
def test_a_constant_load_is_seen_as_no_more_than_it_is(capacity, partitions):
    rate = capacity / partitions
    seen = []

    def watch(sight: FluidView, /) -> None:
        seen.append(sum(sight.rates.values()))

    schedule = RateSchedule.from_steps(10.0, [[rate] * partitions] * 6)
    fluid(schedule, watch, world=FluidWorld(service_rate=2 * capacity))
    assert max(seen) <= capacity
    assert min(seen) == pytest.approx(capacity, rel=1e-7)


def test_the_time_since_a_scaling_is_exact_to_the_step():
    since = {}

    def control(seen: FluidView, /) -> FluidOrder | None:
        since[seen.t_s] = seen.since_scaling_s
        return on(0, 1) if seen.t_s == 0.3 else None

    world = FluidWorld(decision_interval_s=0.1)
    fluid(RateSchedule.constant([1, 1], duration_s=2.0), control, world=world)
    assert [since[t_s] for t_s in (0.4, 0.7, 1.1)] == [0.1, 0.4, 0.8]


def test_progress_ends_with_the_workload():
    heard = []
    fluid(
        RateSchedule.constant([1], duration_s=2.0),
        unchanged,
        world=FluidWorld(),
        on_step=lambda done, of: heard.append((done, of)),
    )
    assert heard[-1] == (20, 20)
