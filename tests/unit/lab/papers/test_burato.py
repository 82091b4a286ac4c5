"""The experiment on partitioners without brokers: grid, order, statistics, rows, resuming, page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab.errors import ConfigError
from trimtab.plan.records.partitioner import Granularity
from trimtab.plan.records.registry import PARTITIONERS
from trimtab_lab.papers.burato import comparison
from trimtab_lab.papers.burato.design import (
    GAUGE,
    OURS,
    PLACEMENT,
    BrokerRun,
    BrokerWorld,
    BuratoCell,
    ExperimentSetting,
    PolicyName,
    RunKind,
    default_grid,
    full_grid,
    in_random_order,
    narrowed,
    with_gauges,
)
from trimtab_lab.papers.burato.experiment import BuratoDesign, burato
from trimtab_lab.papers.burato.result import result
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import burato as paper
from trimtab_lab.papers.results import keep as keep_parts
from trimtab_lab.papers.verdict import RowVerdict, VerdictRow, for_information, row_from

B2 = ExperimentSetting(topic="B2", acks="1")
SLOW_U2 = ExperimentSetting(topic="U2", acks="1", world=BrokerWorld.SLOWED)


def figures(p95_ms: float = 10.0, records_s: float = 50_000.0) -> dict[str, Any]:
    return {
        "records": 1000,
        "records_s": records_s,
        "mb_s": records_s * 100 / 2**20,
        "failed": 0,
        "held": 0.0,
        "late": 0.0,
        "weights": {"1": 1.0, "2": 1.0, "3": 1.0},
        **dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "p999_ms", "mean_ms", "max_ms"), p95_ms),
        "broker_ratio": 4 / 3,
        "partition_ratio": 1.0,
        "by_broker": {"1": 100, "2": 200},
        "by_partition": {"0": 100, "1": 100, "2": 100},
    }


def runs(setting: ExperimentSetting, policy: str, *p95_ms: float, load: float = 0.7) -> Any:
    cell = BuratoCell(setting=setting, policy=PolicyName(policy), load=load)
    return {
        BrokerRun(cell=cell, repetition=at, duration_s=1.0): figures(value)
        for at, value in enumerate(p95_ms)
    }


def only_row(found: Any) -> VerdictRow:
    (row,) = comparison.parts_of(found, settings={})["open-loop"].rows
    return row


# ---------------------------------------------------------------- the grid


def test_every_partitioner_takes_part_in_the_full_grid_in_both_granularities():
    chosen = {cell.policy for cell in full_grid()}
    assert {policy.name for policy in chosen} == {*PARTITIONERS, "librdkafka"}
    assert {str(p) for p in chosen if p.name == "node"} == {"node per record", "node per batch"}


def test_the_stated_grid_asks_what_the_aims_need_and_is_part_of_the_full_one():
    cells = set(default_grid())
    assert cells <= set(full_grid())
    for topic, acks in (("U2", "1"), ("U3", "all"), ("U2", "all")):
        setting = ExperimentSetting(
            topic=topic, acks=acks, world=BrokerWorld.SLOWED, value_bytes=1000
        )
        assert BuratoCell(setting=setting, policy=PolicyName(OURS), load=0.7) in cells
    asked = replace(SLOW_U2, value_bytes=1000)
    stock = {c.policy for c in cells if c.policy.stock and (c.setting, c.load) == (asked, 0.7)}
    assert {"default", "sticky", "uniform-sticky", "adaptive"} <= {p.name for p in stock}


def test_the_stated_grid_fits_in_three_quarters_of_an_hour():
    assert BuratoDesign(cells=default_grid()).estimate_s <= 45 * 60


def test_the_topics_are_those_of_the_thesis_and_one_that_half_avoids_the_slow_broker():
    def led(topic: str) -> list[int]:
        return [replicas[0] for replicas in PLACEMENT[topic]]

    assert led("B1") == led("B2") == [1, 2]
    assert led("U1") == led("U2") == [1, 2, 2]
    assert [replicas for replicas in PLACEMENT["U3"] if 2 not in replicas] == [(1, 3), (3, 1)]


def test_runs_are_in_random_order_within_worlds_and_each_repetition_is_whole():
    cells = default_grid()
    ordered = in_random_order(cells, repetitions=2, duration_s=1.0, seed=1)
    half = len(cells)
    assert {run.cell for run in ordered[:half]} == set(cells) == {r.cell for r in ordered[half:]}
    assert [run.cell for run in ordered[:half]] != [run.cell for run in ordered[half:]]
    worlds = [run.cell.setting.world for run in ordered[:half]]
    assert sum(a != b for a, b in itertools.pairwise(worlds)) == len(BrokerWorld) - 1
    assert ordered == in_random_order(cells, repetitions=2, duration_s=1.0, seed=1)


def test_those_that_are_compared_follow_each_other_after_what_their_rates_are_parts_of():
    cells = with_gauges(default_grid())
    ordered = in_random_order(cells, repetitions=1, duration_s=1.0, seed=1)
    blocks = [key for key, _ in itertools.groupby((r.cell.setting, r.cell.load) for r in ordered)]
    assert len(blocks) == len(set(blocks))
    for setting, load in blocks:
        assert not load or blocks.index((setting, 0.0)) < blocks.index((setting, load))


def test_an_open_loop_brings_the_saturating_runs_that_tell_its_rate():
    asked = [BuratoCell(setting=SLOW_U2, policy=PolicyName("sticky"), load=0.7)]
    first, *gauges = with_gauges(asked)
    assert [first] == asked
    assert {cell.setting for cell in gauges} == {SLOW_U2}
    assert all(cell.kind is RunKind.SATURATING for cell in gauges)
    assert {cell.policy for cell in gauges} == set(GAUGE)


def test_a_part_of_the_grid_can_be_chosen_and_what_it_lacks_is_named():
    chosen = narrowed(default_grid(), policies=["node"], worlds=["slowed"])
    assert {cell.policy.name for cell in chosen} == {"node"}
    assert {cell.setting.world for cell in chosen} == {BrokerWorld.SLOWED}
    with pytest.raises(ConfigError, match='no topic "U9"'):
        narrowed(default_grid(), topics=["U9"])
    with pytest.raises(ConfigError, match="no cell with this combination"):
        narrowed(default_grid(), topics=["B1"], worlds=["slowed"])


# ---------------------------------------------------------------- judging


def test_an_interval_of_five_runs_is_students_and_of_one_run_unknown():
    mean, half = comparison.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert half == pytest.approx(2.776 * math.sqrt(2.5 / 5), rel=1e-3)
    assert comparison.interval([7.0]).to_json() == [7.0, None, None]


def test_on_even_brokers_no_worse_means_surely_below_a_margin():
    stock = runs(B2, "adaptive", 10, 12, 11, 9, 10)
    near = only_row(stock | runs(B2, OURS, 10.5, 12, 11.5, 9.5, 10))
    assert (near.verdict, near.bar) == (RowVerdict.WITHIN, 1.0)
    assert only_row(stock | runs(B2, OURS, 19, 21, 20, 20, 20)).verdict is RowVerdict.OUTSIDE
    assert only_row(stock | runs(B2, OURS, 4, 5, 4, 5, 4)).verdict is RowVerdict.BETTER


def test_what_chance_leaves_open_is_said_to_be_undecided():
    noisy = runs(B2, "adaptive", 10, 50, 11, 60, 10) | runs(B2, OURS, 60, 10, 50, 9, 40)
    row = only_row(noisy)
    assert row.verdict is RowVerdict.NOT_COMPARABLE
    assert row.what.startswith("undecided: ")


def test_repetitions_are_compared_one_by_one():
    ratio, low, high = comparison.times([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_where_the_client_was_too_slow_nothing_is_judged():
    late = {run: {**f, "late": 0.2} for run, f in runs(SLOW_U2, "adaptive", *[90.0] * 5).items()}
    row = only_row(late | runs(SLOW_U2, OURS, *[10.0] * 5))
    assert row.verdict is RowVerdict.NOT_COMPARABLE
    assert row.ours == pytest.approx(9.0)


def test_ours_is_held_to_the_best_of_those_that_people_have():
    found = runs(B2, "sticky", *[30.0] * 5) | runs(B2, "adaptive", *[10.0] * 5)
    row = only_row(found | runs(B2, "node", *[1.0] * 5) | runs(B2, OURS, *[20.0] * 5))
    assert row.ours == pytest.approx(2.0)
    assert row.verdict is RowVerdict.OUTSIDE
    assert "best stock: adaptive" in row.what


def test_two_that_choose_alike_stand_beside_each_other_to_tell_what_chance_does():
    found = runs(B2, "default", *[10.0] * 5) | runs(B2, "node", 5.0, 20.0, 10.0, 40.0, 2.5)
    _, row = comparison.parts_of(found | runs(B2, OURS, *[10.0] * 5), settings={})["open-loop"].rows
    assert row.what.startswith("the same choices twice: p95 of node over default's")
    assert row.ours == pytest.approx(1.0)
    assert row.verdict is RowVerdict.NOT_COMPARABLE


def test_where_the_client_stands_is_no_merit_of_a_partitioner():
    lucky = {
        BrokerRun(
            cell=BuratoCell(setting=SLOW_U2, policy=PolicyName("rack-aware", rack="a"), load=0.7),
            repetition=at,
            duration_s=1.0,
        ): figures(5.0)
        for at in range(5)
    }
    found = lucky | runs(SLOW_U2, "adaptive", *[90.0] * 5) | runs(SLOW_U2, OURS, *[10.0] * 5)
    assert only_row(found).ours == pytest.approx(9.0)


def test_with_a_slow_broker_three_times_lower_is_asked_for():
    stock = runs(SLOW_U2, "adaptive", *[90.0] * 5)
    assert only_row(stock | runs(SLOW_U2, OURS, *[30.0] * 5)).verdict is RowVerdict.WITHIN
    lost = only_row(stock | runs(SLOW_U2, OURS, *[31.0] * 5))
    assert lost.verdict is RowVerdict.OUTSIDE
    assert lost.ours == pytest.approx(90 / 31)


def test_with_acks_of_all_on_two_brokers_it_only_stands_there():
    setting = ExperimentSetting(topic="U2", acks="all", world=BrokerWorld.SLOWED)
    row = only_row(runs(setting, "default", *[90.0] * 5) | runs(setting, OURS, *[90.0] * 5))
    assert row.verdict is RowVerdict.NOT_COMPARABLE
    assert row.ours == pytest.approx(1.0)


def test_fewer_than_five_runs_are_not_judged():
    found = runs(B2, "adaptive", 1, 1) | runs(B2, OURS, 9, 9)
    assert only_row(found).verdict is RowVerdict.NOT_COMPARABLE


def test_the_thesis_gains_stand_beside_ours_and_its_contradictions_are_found():
    assert paper.gain("U2", "all", "node") == pytest.approx(0.14, abs=0.001)
    assert paper.gain("U1", "1", "sqf") == pytest.approx(-0.135, abs=0.001)
    assert len(paper.contradictory()) == 5


# ---------------------------------------------------------------- running and resuming


class FakePlace:
    def __init__(self, fail_at: int | None = None) -> None:
        self.ran: list[BrokerRun] = []
        self.worlds: list[BrokerWorld] = []
        self._fail_at = fail_at

    @contextmanager
    def world(self, world: BrokerWorld) -> Iterator[None]:
        self.worlds.append(world)
        yield

    def run(self, run: BrokerRun) -> dict[str, Any]:
        if len(self.ran) == self._fail_at:
            raise KeyboardInterrupt
        self.ran.append(run)
        better = run.cell.policy.name == OURS
        return figures(5.0 if better else 20.0, 60_000.0 if better else 50_000.0)


SMALL = tuple(
    BuratoCell(setting=SLOW_U2, policy=PolicyName(name), load=0.5) for name in (OURS, "adaptive")
)
ALL = 5 * (len(GAUGE) + len(SMALL))


def conducted(place: FakePlace, folder: Path, **more: Any) -> Any:
    @contextmanager
    def opened() -> Iterator[FakePlace]:
        yield place

    return burato(
        opened,
        BuratoDesign(**{"cells": SMALL, "repetitions": 5, **more}),
        folder,
        on_run=lambda *_: None,
    )


def test_open_loops_run_at_a_part_of_the_best_throughput(tmp_path):
    place = FakePlace()
    parts = conducted(place, tmp_path)
    assert {run.rate for run in place.ran if run.cell.load} == {30_000.0}
    assert [row.verdict for row in parts["open-loop"].rows] == [RowVerdict.WITHIN]
    assert parts["open-loop"].rows[0].ours == pytest.approx(4.0)


def test_who_gauges_is_the_best_so_far_and_not_the_luckiest_of_the_moment():
    rates = {
        (SLOW_U2, policy, at): rate
        for at, each in enumerate([(9.0, 5.0, 5.0), (8.0, 8.5, 4.0)])
        for policy, rate in zip(GAUGE, each, strict=True)
    }
    assert comparison.gauge(rates, SLOW_U2, 0) == 9.0
    assert comparison.gauge(rates, SLOW_U2, 1) == 8.0
    assert comparison.gauge(rates, SLOW_U2, 2) is None


def test_an_experiment_that_was_stopped_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        conducted(FakePlace(fail_at=7), tmp_path)
    rest = FakePlace()
    whole = conducted(rest, tmp_path)
    assert len(rest.ran) == ALL - 7
    third = FakePlace()
    assert conducted(third, tmp_path) == whole
    assert (third.ran, third.worlds) == ([], [])
    conducted(third, tmp_path, again=True)
    assert len(third.ran) == ALL


def test_who_asks_for_less_or_more_later_gets_the_same_rates_and_keeps_the_page(tmp_path):
    whole = conducted(FakePlace(), tmp_path)
    less = FakePlace()
    assert conducted(less, tmp_path, cells=SMALL[1:]) == whole
    assert less.ran == []
    more = FakePlace()
    sticky = BuratoCell(setting=SLOW_U2, policy=PolicyName("sticky"), load=0.5)
    grown = conducted(more, tmp_path, cells=(*SMALL, sticky))
    assert {run.cell for run in more.ran} == {sticky}
    assert {run.rate for run in more.ran} == {30_000.0}
    assert len(grown["open-loop"].figures["cells"]) == 3


def test_a_cell_that_no_grid_has_is_on_the_page_too(tmp_path):
    odd = BuratoCell(setting=SLOW_U2, policy=PolicyName("sticky"), load=0.3)
    parts = conducted(FakePlace(), tmp_path, cells=(odd,))
    assert [cell["load"] for cell in parts["open-loop"].figures["cells"]] == [0.3]


def test_another_seed_is_another_experiment(tmp_path):
    conducted(FakePlace(), tmp_path)
    other = FakePlace()
    conducted(other, tmp_path, seed=7)
    assert len(other.ran) == ALL
    assert {run.seed for run in other.ran} == {7}


def test_the_page_has_every_cell_and_both_ratios(tmp_path):
    parts = conducted(FakePlace(), tmp_path / "runs")
    text = keep_parts(tmp_path, "burato", parts).read_text(encoding="utf-8")
    assert "### U2 acks=1, slowed at 50%: 60 000 records/s" in text
    assert "| weighted-node per batch | 5 | 5 | 5 – 5 | 5 | 5 | 1 | 1.33 | 1.00 |" in text
    assert "(plots/burato-open-loop-p95.svg)" in text
    assert (tmp_path / "plots" / "burato-saturating-throughput.svg").exists()


# ---------------------------------------------------------------- the result


def gain(interval: tuple[float, float] | None, *, policy: str, ours: float) -> VerdictRow:
    low, high = interval or (math.nan, math.nan)
    text = f"% more throughput than default, {policy}, U2 acks=1; interval {low:.0f} to {high:.0f}"
    return for_information(text, ours, interval=interval)


@pytest.mark.parametrize("kept", [True, False], ids=["numbers", "text of older results"])
def test_an_interval_that_excludes_0_by_less_than_a_half_is_seen(kept):
    rows = [
        gain((-47.2, -0.3), policy="node", ours=-28.0),
        gain((0.4, 12.0), policy="sqf", ours=6.0),
        gain((-0.4, 12.0), policy="third", ours=5.0),
        gain((-12.0, 0.3), policy="fourth", ours=-5.0),
    ]
    rows = [row_from(row.to_json()) for row in rows]
    if not kept:
        rows = [replace(row, interval=None) for row in rows]

    told = " ".join(result({"saturating": Part(settings={}, rows=tuple(rows), figures={})}))

    assert "are: node, U2 acks=1 -28 %, sqf, U2 acks=1 6 %. The thesis'" in told


def test_a_difference_in_throughput_keeps_its_interval_as_numbers():
    setting = ExperimentSetting(topic="U2", acks="all")
    policies = {"default": (50_000.0, 51_000.0), "node": (49_800.0, 50_900.0)}
    found = {
        BrokerRun(
            cell=BuratoCell(setting=setting, policy=PolicyName(policy, Granularity.PER_RECORD)),
            repetition=at,
            duration_s=1.0,
        ): figures(records_s=rate)
        for policy, rates in policies.items()
        for at, rate in enumerate(rates)
    }

    (row,) = comparison.parts_of(found, settings={})["saturating"].rows

    assert row.interval is not None
    assert row.interval[0] < (row.ours or 0) < row.interval[1]
    assert row.interval != tuple(map(round, row.interval))
