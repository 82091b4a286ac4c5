"""As even as it gets over a given number of consumers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.plan.consumers.levelling import level


def p(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def of(*loads: float) -> dict[TopicPartition, float]:
    return {p(n): load for n, load in enumerate(loads)}


def on(*owners: int | None) -> Assignment:
    return Assignment({p(n): c for n, c in enumerate(owners) if c is not None})


def test_what_is_level_stays() -> None:
    assert level(of(60, 60, 60, 60), on(5, 5, 9, 9), 2) == on(5, 5, 9, 9)


def test_only_what_relieves_the_heaviest_moves() -> None:
    loads, now = of(60, 50, 10, 10), on(0, 0, 1, 1)

    after = level(loads, now, 2)

    assert moved(now, after) == (p(1),)
    assert sorted(after.loads(loads).values()) == [60, 70]


def test_who_carries_most_stays_where_there_are_too_many() -> None:
    after = level(of(60, 50, 40), on(4, 5, 6), 2)

    assert after == on(4, 5, 5)


def test_nobody_is_idle_while_somebody_has_two() -> None:
    after = level(of(0, 0, 0), on(0, 0, 0), 3)

    assert len(after.consumers) == 3


def test_without_partitions_nobody_reads() -> None:
    assert level({}, Assignment(), 3) == Assignment()


@pytest.mark.parametrize("load", [-1.0, float("nan")])
def test_unsound_loads_are_refused(load: float) -> None:
    with pytest.raises(ValueError, match="t-0"):
        level(of(load), Assignment(), 1)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(0, 5)), max_size=20),
    st.integers(1, 6),
)
def test_everything_is_placed_on_so_many_and_no_single_move_would_help(
    drawn: list[tuple[int, int | None]], consumers: int
) -> None:
    loads = of(*(load for load, _ in drawn))
    after = level(loads, on(*(owner for _, owner in drawn)), consumers)

    carried = after.loads(loads)
    assert after.keys() == loads.keys()
    assert len(after.consumers) == min(consumers, len(loads))
    if carried:
        heavy, light = max(carried, key=carried.__getitem__), min(carried.values())
        rest = [loads[q] for q, c in after.items() if c == heavy]
        assert all(light + x >= carried[heavy] for x in rest if x) or len(carried) == 1


def test_a_budget_empties_what_is_emptied_soonest_and_the_next_plan_goes_on() -> None:
    loads, now = of(30, 30, 30, 30, 10, 10, 10), on(0, 0, 1, 1, 2, 2, 3)

    first = level(loads, now, 2, max_moves=1)
    second = level(loads, first, 2, max_moves=2)

    assert first.consumers == (0, 1, 2)
    assert len(moved(now, first)) == 1
    assert second.consumers == (0, 1)
    assert len(moved(first, second)) == 2


def test_what_nobody_has_is_placed_whatever_the_budget() -> None:
    after = level(of(60, 50, 10), on(0, 0, None), 2, max_moves=0)

    assert after == on(0, 0, 1)


@given(
    owners=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    consumers=st.integers(1, 6),
    moves=st.integers(0, 5),
    load=st.sampled_from([0.0, 25.0, 100.0, 1e9]),
    data=st.data(),
)
def test_a_budget_is_kept(owners, consumers, moves, load, data) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=len(owners), max_size=len(owners)))
    loads, now = of(*sizes), on(*owners)

    after = level(loads, now, consumers, max_moves=moves, max_moved_load=load)

    away = moved(now, after)
    assert after.keys() == loads.keys()
    assert len(away) <= moves
    assert sum(loads[q] for q in away) <= load
