"""Which failures are looked at."""

from __future__ import annotations

import pytest

from trimtab.audit.scenarios import racks, scenarios
from trimtab.testing.placements import placement


def test_a_draw_keeps_every_broker_and_domain_and_is_the_same_for_the_same_seed() -> None:
    named = {"rack a": (1, 2, 3)}

    one, again, other = (
        scenarios(range(1, 51), up_to=2, domains=named, most=100, seed=s) for s in (4, 4, 5)
    )

    assert one == again != other
    assert (len(one.kept), one.of, one.sampled) == (100, 50 + 1225 + 1, True)
    sets = [kept.dead for kept in one.kept]
    assert len(set(sets)) == 100
    assert {(b,) for b in range(1, 51)} | {(1, 2, 3)} <= set(sets)


def test_few_enough_are_all_looked_at_and_each_once() -> None:
    found = scenarios([3, 1, 2], up_to=2, domains={"rack a": (2, 1), "mine": (2, 1)}, most=6)

    assert [kept.dead for kept in found.kept] == [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3)]
    assert found.kept[3].what == "rack a, mine"
    assert not found.sampled


def test_no_failure_is_looked_at_where_none_is_asked_for() -> None:
    assert scenarios([1, 2], up_to=0).kept == ()
    assert scenarios([], up_to=2).kept == ()
    assert [s.dead for s in scenarios([1, 2, 3], up_to=0, domains={"x": (1, 3)}).kept] == [(1, 3)]


def test_more_domains_than_may_be_looked_at_are_drawn_from() -> None:
    assert len(scenarios(range(10), up_to=1, most=3).kept) == 3


@pytest.mark.parametrize(("up_to", "most"), [(-1, 5), (1, 0)])
def test_what_makes_no_sense_is_refused(up_to: int, most: int) -> None:
    with pytest.raises(ValueError, match="up_to must be at least 0 and most at least 1"):
        scenarios([1], up_to=up_to, most=most)


def test_a_rack_is_named_after_itself_and_brokers_without_one_are_in_none() -> None:
    brokers = placement({}, brokers=[9], racks={1: "b", 2: "a", 3: "b"}).brokers

    assert racks(brokers) == {"rack a": (2,), "rack b": (1, 3)}
