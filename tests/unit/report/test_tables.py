from dataclasses import replace

from rich.console import Console

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import MemberName
from trimtab.model.plan_codec import plan_id
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.report.plans import plan_view
from trimtab.report.tables import quantity

A, B, C, D = (TopicPartition("orders", n) for n in range(4))


def shown(view, width=140):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def planned(loads, current=None, limits=None, **options):
    limits = GroupLimits(capacity=2_000_000) if limits is None else limits
    return plan_consumers(
        loads, Assignment(current or {}), limits, planner="mwf", made_ts=1, **options
    )


def test_quantities_have_three_digits_and_a_prefix():
    assert quantity(999) == "999 B/s"
    assert quantity(999_999) == "1 MB/s"
    assert quantity(0.25) == "0.25 B/s"
    assert quantity(2.5e12) == "2.5 TB/s"
    assert quantity(41_667, Unit.RECORDS_S) == "41.7k records/s"


def test_a_plan_is_shown_with_its_figures_before_and_after():
    loads = {A: 863461, B: 1236539, C: 900000}
    plan = planned(loads, {A: 0, B: 0, C: 1}, group="pay")
    text = shown(plan_view(plan, loads))
    assert f"Plan {plan_id(plan)} by mwf for group pay" in text
    assert "consumers  2 → 2  (at least 2: no plan needs fewer)" in text
    assert "max load   2.1 MB/s → 1.76 MB/s" in text
    assert "1 with 863 kB/s  (at least 100 kB/s must move), Rscore 0.432" in text
    assert "105% → 62%" in text
    assert "45% → 88%" in text
    assert "overload: consumer 0 had 2.1 MB/s, its capacity is 2 MB/s" in text


def test_members_are_named_beside_their_numbers_and_never_cut():
    name = MemberName(client_id="shop", host="/10.0.0.7", member_id=f"shop-{'f' * 90}")
    plan = replace(planned({A: 1, B: 2}, {A: 0, B: 0}), members={0: name, 12: name})
    text = shown(plan_view(plan), width=80)
    assert "   0  shop at 10.0.0.7," in text
    assert "  12  shop at 10.0.0.7," in text
    assert text.replace("\n", "").count(name.member_id) == 2


def test_without_loads_each_consumer_shows_what_it_gives_and_takes():
    plan = planned({A: 863461, B: 1236539, C: 900000}, {A: 0, B: 0, C: 1})
    rows = [line.split("│")[1:5] for line in shown(plan_view(plan)).splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row] for row in rows[:2]]
    assert cells == [["0", "2 → 1", "863 kB/s", "0 B/s"], ["1", "1 → 2", "0 B/s", "863 kB/s"]]


def test_every_reason_is_said_in_words():
    limits = GroupLimits(capacity=100)
    plan = planned({A: 80, B: 30, C: 15, D: 5}, {A: 0, B: 1, C: 1, D: 2}, limits)
    dead = planned({A: 80, B: 5}, {A: 0, B: 1}, limits, dead=frozenset({1}))
    assert "repack: consumer 1 had 45 B/s, 0 had 80 B/s of its capacity" in shown(plan_view(plan))
    assert "consolidate: consumer 2 with 5 B/s is closed (3 → 2 consumers)" in shown(
        plan_view(plan)
    )
    assert "orphan: its consumer is dead; consumer 0 will have 85 B/s" in shown(plan_view(dead))
    assert "orphans    5 B/s" in shown(plan_view(dead))
    assert "arrival: it had no consumer" in shown(plan_view(planned({A: 1})))


def test_what_does_not_fit_is_said():
    text = shown(plan_view(planned({A: 2_500_000})))
    assert "orders-0 does not fit (oversize): its load is 2.5 MB/s, consumer 0 has capacity" in text


def test_a_long_plan_is_cut_and_says_so():
    loads = {TopicPartition("t", n): 1_900_000 for n in range(100)}
    text = shown(plan_view(planned(loads), loads))
    assert text.count("and 60 more, all of them in the JSON") == 2
    assert "t-99" not in text


def test_a_plan_without_moves_has_no_table_of_moves():
    assert "Moves" not in shown(plan_view(planned({A: 1}, {A: 0})))


def test_names_are_shown_as_they_are():
    assert "[red]-0" in shown(plan_view(planned({TopicPartition("[red]", 0): 1})))
