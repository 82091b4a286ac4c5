"""Weights hold for as long as they say, whatever the clocks of two machines make of it."""

from __future__ import annotations

import threading

import pytest

from trimtab.model.weights import Weights
from trimtab.plan.records.live_weights import LiveWeights

SLOW_TWO = {1: 1.0, 2: 0.0}


class World:
    """Two machines: the clock here, and how far the clock of the steering process is behind."""

    def __init__(self, *, behind_s: float = 0.0) -> None:
        self.now_s = 1_000_000.0
        self.behind_s = behind_s
        self.live = LiveWeights(clock=lambda: self.now_s, wall_us=lambda: int(self.now_s * 1e6))

    def written(self, *, ago_s: float = 0.0, weights: dict[int, float] | None = None) -> Weights:
        ts = int((self.now_s - self.behind_s - ago_s) * 1e6)
        return Weights(ts=ts, valid_s=10, weights=SLOW_TWO if weights is None else weights)

    def hears(self, *, after_s: float = 0.0, ago_s: float = 0.0) -> None:
        self.now_s += after_s
        self.live.update(self.written(ago_s=ago_s))

    def knows(self, *, after_s: float = 0.0) -> bool:
        self.now_s += after_s
        return self.live.fresh and self.live() == SLOW_TWO


def test_before_anything_is_heard_all_brokers_are_equal():
    assert World().live() == {}
    assert not World().live.fresh


def test_weights_hold_until_they_are_as_old_as_they_say():
    world = World()
    world.hears()

    assert world.knows(after_s=9.9)
    assert not world.knows(after_s=0.2)


def test_a_record_found_at_the_start_is_judged_by_when_it_was_written():
    world = World()
    world.hears(ago_s=3600)

    assert not world.knows()


def test_a_record_found_at_the_start_holds_for_the_rest_of_its_time():
    world = World()
    world.hears(ago_s=4)

    assert world.knows(after_s=5.9)
    assert not world.knows(after_s=0.2)


@pytest.mark.parametrize("behind_s", [300.0, -300.0])
def test_clocks_that_differ_do_not_make_living_weights_stale(behind_s):
    world = World(behind_s=behind_s)
    for _ in range(3):
        world.hears(after_s=3)

    assert world.knows(after_s=9.9)
    assert not world.knows(after_s=0.2)


def test_with_a_clock_that_is_ahead_a_record_is_believed_for_its_time_and_no_longer():
    world = World(behind_s=-300)
    world.hears()

    assert world.knows(after_s=9.9)
    assert not world.knows(after_s=0.2)


def test_records_that_come_in_a_heap_after_a_gap_are_as_old_as_they_are():
    """Cut off for an hour: what was written meanwhile comes at once, its writer long dead."""
    world = World(behind_s=300)
    for _ in range(3):
        world.hears(after_s=3)
    world.hears(after_s=3600, ago_s=3597)
    world.hears(ago_s=3594)

    assert not world.knows()


@pytest.mark.parametrize("apart_s", [0.2, 0.5, 1.0, 3.0])
def test_old_records_that_a_new_producer_reads_at_once_are_not_believed(apart_s):
    world = World()
    for n in range(3, 0, -1):
        world.hears(after_s=0.01, ago_s=3600 + n * apart_s)

    assert not world.knows()


@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.4, 0.9, 2.0])
def test_partitions_that_end_at_different_old_records_are_not_taken_for_a_pace(after_s):
    """Steering wrote every 0.2 s and died between two brokers; one broker answers later."""
    world = World()
    world.hears(ago_s=3600)
    world.hears(after_s=after_s, ago_s=3599.8 + after_s)

    assert not world.knows()


@pytest.mark.parametrize("behind_s", [300.0, -300.0])
def test_records_in_quick_succession_are_a_pace_when_they_go_on(behind_s):
    world = World(behind_s=behind_s)
    for _ in range(8):
        world.hears(after_s=0.2)

    assert world.knows(after_s=9.9)
    assert not world.knows(after_s=0.2)


def test_each_record_may_come_from_several_brokers_and_some_of_them_late():
    world = World(behind_s=300)
    for _ in range(4):
        world.hears(after_s=0.9)
        world.hears(ago_s=0)
        world.hears(after_s=2.1, ago_s=2.1)

    assert world.knows(after_s=7.8)
    assert not world.knows(after_s=0.2)


def test_a_record_that_is_heard_again_is_believed_no_longer_for_it():
    world = World(behind_s=-300)
    world.hears()
    world.hears(after_s=10, ago_s=10)

    assert not world.knows()


def test_a_writer_that_comes_back_is_believed_at_once():
    world = World(behind_s=300)
    for _ in range(3):
        world.hears(after_s=3)
    assert not world.knows(after_s=3600)

    world.hears()

    assert world.knows()


def test_an_older_record_that_comes_late_from_elsewhere_changes_nothing():
    world = World()
    world.hears()
    world.live.update(world.written(ago_s=2, weights={1: 0.0}))

    assert world.knows()


def test_a_writer_whose_clock_went_back_is_believed_when_what_is_held_is_stale():
    world = World()
    world.hears()
    world.behind_s = 60
    world.hears(after_s=3)
    assert world.knows(after_s=6)

    world.hears(after_s=4)
    world.hears(after_s=3)
    assert world.knows()


def test_the_answer_is_the_same_object_while_nothing_changes():
    world = World()
    world.hears()

    assert world.live() is world.live()


def test_what_was_told_is_not_changed_from_outside():
    world, told = World(), {1: 1.0}
    world.live.update(world.written(weights=told))
    told[1] = 0.0

    assert world.live() == {1: 1.0}


def test_many_threads_may_tell_and_ask_at_once():
    live = LiveWeights()
    whole = [dict.fromkeys(range(8), 1.0 / k) for k in range(1, 9)]
    torn: list[object] = []

    def tell(weights: dict[int, float]) -> None:
        for n in range(300):
            live.update(Weights(ts=n, valid_s=10, weights=weights))
            if live() not in [{}, *whole]:
                torn.append(live())

    threads = [threading.Thread(target=tell, args=(w,)) for w in whole]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert torn == []


@pytest.mark.parametrize(
    ("valid_s", "weights"),
    [(0, {}), (-1, {}), (float("inf"), {}), (10, {1: -0.1}), (10, {1: float("nan")})],
)
def test_weights_that_mean_nothing_are_refused(valid_s, weights):
    with pytest.raises(ValueError, match=r"valid_s must be positive|weigh"):
        Weights(ts=1, valid_s=valid_s, weights=weights)
