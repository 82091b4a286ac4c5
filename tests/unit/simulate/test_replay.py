"""Rows of recorded tables become a history, and planners are run through it."""

from __future__ import annotations

import pytest

from trimtab.errors import BadFile, ConfigError, ThinData
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Source, Unit
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.fluid import FluidWorld
from trimtab.simulate.replay import History, LagRow, RateRow, history_of, replay

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SECOND = 1_000_000
CONSUMERS = PLANNERS[Layer.CONSUMERS]


def row(
    window, name=A, bytes_s=10.0, *, records_s=1.0, source=Source.LOG_DIRS, samples=30, length=30
):
    start = window * length * SECOND
    return RateRow(
        start, start + length * SECOND, name, bytes_s, records_s, str(source), samples, True
    )


def of(*rows, lags=(), unit=Unit.BYTES_S, **how):
    return history_of(rows, lags, unit=unit, **how)


def test_windows_become_steps_in_the_order_of_time():
    found = of(row(1, A, 20.0), row(0, A, 10.0), row(0, B, 5.0), row(1, B, 6.0))
    assert found.names == (A, B)
    assert found.rates == ((10, 5), (20, 6))
    assert (found.window_s, found.notes) == (30, ())


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_a_rate_that_nobody_can_have_measured_is_refused_by_name(rate):
    with pytest.raises(BadFile, match=f"a rate of {rate:g} bytes/s for b-0"):
        of(row(0), row(0, B, rate))


def test_a_window_that_ends_before_it_begins_is_refused():
    with pytest.raises(BadFile, match="a window of a-0 that ends before it starts"):
        of(row(0, length=-30))


def test_records_are_another_unit():
    assert of(row(0, records_s=7.0), unit=Unit.RECORDS_S).rates == ((7,),)


def test_an_unknown_rate_stays_what_it_was_and_is_told():
    found = of(row(0, A, 10.0), row(1, A, None), row(2, A, 30.0), *(row(k, B) for k in range(3)))
    assert [rates[0] for rates in found.rates] == [10, 10, 30]
    assert found.notes == ("1 unknown rate(s) were taken as unchanged",)


def test_a_partition_without_a_row_in_between_is_unchanged_but_idle_where_events_were_counted():
    def rows(source):
        others = (row(k, B, source=source) for k in range(3))
        return row(0, A, 10.0, source=source), row(2, A, 30.0, source=source), *others

    assert [r[0] for r in of(*rows(Source.LOG_DIRS)).rates] == [10, 10, 30]
    assert [r[0] for r in of(*rows(Source.EVENTS)).rates] == [10, 0, 30]


def test_before_its_first_and_after_its_last_window_a_partition_has_no_load():
    found = of(*(row(k, B) for k in range(3)), row(1, A, 10.0))
    assert [rates[0] for rates in found.rates] == [0, 10, 0]
    assert found.notes == ()


def test_of_windows_measured_twice_the_complete_one_counts_then_that_of_most_samples():
    cut = row(0, A, 1.0, samples=99)._replace(complete=False)
    found = of(cut, row(0, A, 2.0, samples=10), row(0, A, 3.0, samples=20))
    assert found.rates == ((3,),)
    assert found.notes == ("2 row(s) of windows measured more than once left out",)


def test_rows_of_other_windows_and_sources_are_left_out_and_told():
    rows = (row(0), row(1), row(0, length=5), row(0, source=Source.EVENTS))
    found = of(*rows)
    assert (found.window_s, len(found.rates), len(found.notes)) == (30, 2, 2)
    assert of(*rows, window_s=5).window_s == 5
    with pytest.raises(ConfigError, match=r"no windows of 7 s, only of 5, 30"):
        of(*rows, window_s=7)


def test_gaps_are_closed_and_told():
    found = of(row(0), row(1), row(9))
    assert len(found.rates) == 3
    assert found.notes == ("1 gap(s) between windows were closed",)


def test_only_the_topics_asked_for_are_taken():
    assert of(row(0, A), row(0, B), topics={"b"}).names == (B,)
    with pytest.raises(ThinData, match="no rows for these topics"):
        of(row(0, A), topics={"c"})


def test_a_history_without_rates_is_refused():
    with pytest.raises(ThinData, match="no rate in bytes/s"):
        of(row(0, A, None))


def test_the_first_lag_of_the_group_waits_at_the_start_in_the_unit_of_the_rates():
    lags = [
        LagRow(2 * SECOND, "g", A, 7),
        LagRow(1 * SECOND, "g", A, 5),
        LagRow(1 * SECOND, "g", B, None),
        LagRow(99 * SECOND, "g", B, 9),
    ]
    rows = (row(0, A, 30.0, records_s=3.0), row(0, B))
    assert of(*rows, lags=lags).backlog == {A: 50}
    assert of(*rows, lags=lags, unit=Unit.RECORDS_S).backlog == {A: 5}


def test_whose_lag_it_is_must_be_said_where_there_are_several_groups():
    lags = [LagRow(0, "g", A, 1), LagRow(0, "h", A, 2)]
    with pytest.raises(ConfigError, match="several groups: g, h"):
        of(row(0), lags=lags)
    assert of(row(0), lags=lags, group="h").backlog == {A: 20}
    with pytest.raises(ConfigError, match='no lag of group "i"'):
        of(row(0), lags=lags, group="i")


HISTORY = History(
    window_s=30,
    unit=Unit.RECORDS_S,
    names=(A, B),
    rates=((40, 40), (40, 40), (80, 80), (80, 80), (40, 40)),
    backlog={A: 20.0},
)


def run(name, **how):
    world = FluidWorld(service_rate=120.0, decision_interval_s=how.pop("interval_s", 30.0))
    limits = GroupLimits(capacity=100)
    return replay(HISTORY, CONSUMERS[name], limits=limits, world=world, sla_s=5, **how)


def test_a_planner_scales_for_what_the_last_window_has_shown():
    found = run("mwf")
    # Both fit on one until the third window is over; the last decision comes too late to matter.
    assert found.replica_minutes == pytest.approx((3 * 1 + 2 * 2) * 0.5)
    assert found.moves == 1
    assert found.e_rscore == pytest.approx(0.8 / 5)
    assert found.moved_fraction == pytest.approx(80 / 5 / 112)
    assert found.max_lag == pytest.approx(30 * 40, rel=0.1)
    assert 0.5 < found.sla_share < 1
    assert found.max_s >= found.p99_s >= found.p90_s >= found.p50_s


def test_who_decides_more_often_lets_less_wait():
    often = run("mwf", interval_s=1.0)
    assert often.sla_share == 1
    assert often.max_lag < run("mwf").max_lag / 5


def test_every_planner_begins_with_a_plan_for_the_first_window():
    assert run("kafka-round-robin").mean_consumers == pytest.approx(1)
    assert run("ll-ffd", interval_s=1.0).sla_share == 1


def test_progress_is_told():
    heard: list[tuple[int, int]] = []
    run("bfd", on_step=lambda done, total: heard.append((done, total)))
    assert heard[0] == (0, 1500)


def test_consumers_that_would_never_end_are_refused():
    history = of(row(0, A, 2e6), row(1, A, 2e6))
    slow = FluidWorld(service_rate=2.4, decision_interval_s=30)
    with pytest.raises(
        ConfigError, match=r"A consumer that reads 2\.4 bytes/s would need more than"
    ):
        replay(history, CONSUMERS["mwf"], limits=GroupLimits(capacity=2), world=slow, sla_s=5)


def test_a_lag_below_zero_is_none():
    assert of(row(0), lags=[LagRow(0, "g", A, -3)], unit=Unit.RECORDS_S).backlog == {A: 0}
