"""Live experiments without brokers: plans of runs, rivals' rules, rows, pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.errors import ConfigError
from trimtab.model.load import Unit
from trimtab.workload.rate_streams import RateSchedule
from trimtab_lab.papers.live import comparison
from trimtab_lab.papers.live.experiment import TRIES, LiveExperiment
from trimtab_lab.papers.live.kept_runs import keep, kept
from trimtab_lab.papers.live.plan import (
    CAPACITY_BYTES_S,
    HorizontalScaler,
    LiveRun,
    LiveWorkload,
    Strategy,
    changes,
    replica_minutes,
    replicas_at,
    runs_of,
    size_means,
    strategies_of,
    unexplained,
)
from trimtab_lab.papers.live.response import (
    ControlEvent,
    PublishedTimestamp,
    ReceivedRecord,
    response_times,
)
from trimtab_lab.papers.pages import page
from trimtab_lab.papers.results import keep as keep_parts
from trimtab_lab.papers.verdict import RowVerdict


def run(strategy: Strategy, **more: Any) -> LiveRun:
    return LiveRun(strategy=strategy, **{"workload": LiveWorkload.EZZEDDINE_1, **more})


def figures(**more: Any) -> dict[str, Any]:
    blocked = {"p50_s": 0.2, "p90_s": 0.5, "max_s": 0.7, "moves": 9}
    return {
        "records": 9000,
        "sla_share": 1.0,
        "p50_s": 0.3,
        "p90_s": 0.6,
        "p99_s": 0.9,
        "max_s": 1.5,
        "replica_minutes": 21.5,
        "most_replicas": 4,
        "moves": 9,
        "blocked": blocked,
        "handover": blocked,
        "max_lag": 100,
        "order_findings": 0,
        "repeats": 0,
        "decisions": 12,
        "unexplained": 0,
        "refused": 0,
        "late": 0,
        "tries": 1,
        "ended_s": 601.0,
        "edges_s": [0.1, 1.0, 10.0],
        "within": [0.1, 0.9, 1.0],
        "replicas": [[0.0, 1], [131.0, 2]],
        "lag": [[0.0, 0], [300.0, 40], [600.0, 0]],
        "changes": [[131.0, "scale_up", 1, 2, "consumer 0 carries 96 records/s, above 95"]],
        **more,
    }


# ---------------------------------------------------------------- runs


def test_sticky_dealing_brings_the_run_whose_replicas_it_is_given_and_comes_after_it():
    runs = runs_of([LiveWorkload.EZZEDDINE_1], [Strategy.STICKY], seeds=2)

    assert [(r.seed, r.strategy) for r in runs] == [
        (0, Strategy.OURS),
        (0, Strategy.STICKY),
        (1, Strategy.OURS),
        (1, Strategy.STICKY),
    ]


@pytest.mark.parametrize("workload", [LiveWorkload.LANDAU_25, LiveWorkload.BYTES_25])
def test_every_strategy_of_a_workload_sends_the_same_records(workload):
    runs = runs_of([workload], tuple(Strategy), seeds=1)
    short = [r.due(r.schedule.stretched(0.05)) for r in runs]
    first, *others = [
        [(b.times_s.tolist(), np.broadcast_to(b.value_bytes, len(b)).tolist()) for b in blocks]
        for blocks in short
    ]

    assert [r.strategy for r in runs] == list(workload.strategies)
    assert first
    assert all(other == first for other in others)


def test_only_the_workload_of_ezzeddine_has_the_group_whose_leader_asks():
    groups = [w for w in LiveWorkload if Strategy.LL_FFD_GROUP in w.strategies]

    assert groups == [LiveWorkload.EZZEDDINE_1]
    assert not Strategy.LL_FFD_GROUP.directed
    assert Strategy.LL_FFD_GROUP.controlled
    assert Strategy.LL_FFD_GROUP.planner == "ll-ffd"


def test_no_partition_of_a_walk_asks_for_more_than_a_consumer_reads():
    for workload in (LiveWorkload.LANDAU_5, LiveWorkload.LANDAU_25):
        schedule = workload.schedule(0)
        rates = [s.last for segments in schedule.partitions for s in segments]
        assert 0 < max(rates) <= 80
        assert schedule.total_rate_at(0.0) == 0  # one consumer can begin


@pytest.mark.parametrize("workload", [LiveWorkload.BYTES_5, LiveWorkload.BYTES_25])
def test_a_walk_in_bytes_never_asks_for_more_bytes_of_a_consumer_than_it_carries(workload):
    schedule = workload.schedule(0)
    means = size_means(len(schedule.partitions))
    bytes_s = [
        [s.last * mean for s in segments]
        for segments, mean in zip(schedule.partitions, means, strict=True)
    ]

    assert 0 < max(map(max, bytes_s)) <= 0.8 * CAPACITY_BYTES_S
    assert schedule.total_rate_at(0.0) == 0
    begins_s = run(Strategy.MWF, workload=workload).lead_in_s
    held = [schedule.rate_at(p, begins_s) for p in range(len(means))]
    assert [schedule.rate_at(p, begins_s - 59) for p in range(len(means))] == held
    # By records the order of partitions is another one than by bytes: that is the point of it.
    last = [each[-1] for each in bytes_s]
    by_records = [each[-1].last for each in schedule.partitions]
    assert np.argsort(last).tolist() != np.argsort(by_records).tolist()


def test_records_of_a_walk_in_bytes_differ_in_size_and_add_up_to_its_rates():
    bytes_run = run(Strategy.MWF, workload=LiveWorkload.BYTES_5)
    schedule = RateSchedule.constant([100.0] * 4, duration_s=60.0)
    sent = np.zeros(4)
    for block in bytes_run.due(schedule):
        assert block.partitions is not None
        np.add.at(sent, block.partitions, block.value_bytes)

    assert sent / 60 == pytest.approx([100 * mean for mean in size_means(4)], rel=0.02)


def test_landaus_planners_count_bytes_where_bytes_limit_and_ezzeddines_records():
    said = {
        s: (r.unit, r.capacity, r.held_to_s, r.window_s)
        for s in (Strategy.OURS, Strategy.MWF, Strategy.LL_FFD)
        for r in [run(s, workload=LiveWorkload.BYTES_5)]
    }

    assert said[Strategy.OURS] == said[Strategy.MWF] == (Unit.BYTES_S, 100_000.0, None, 30.0)
    unit, capacity, held_to_s, window_s = said[Strategy.LL_FFD]
    assert (unit, held_to_s, window_s) == (Unit.RECORDS_S, 5.0, 30.0)
    assert capacity == pytest.approx(93.75)
    assert run(Strategy.MWF).unit is Unit.RECORDS_S
    assert run(Strategy.MWF).window_s == 5.0


def test_runs_of_other_seeds_lengths_and_strategies_are_kept_apart():
    runs = [
        run(Strategy.OURS),
        run(Strategy.OURS, seed=1),
        run(Strategy.OURS, stretch=0.1),
        run(Strategy.MWF),
        run(Strategy.OURS, workload=LiveWorkload.LANDAU_5),
    ]

    assert len({r.key for r in runs}) == len(runs)


def test_strategies_are_named_and_a_strange_one_is_refused():
    assert strategies_of(None, Strategy) == tuple(Strategy)
    assert strategies_of("mwf, trim,mwf", Strategy) == (Strategy.OURS, Strategy.MWF)
    with pytest.raises(ConfigError, match="nobody"):
        strategies_of("nobody", Strategy)
    with pytest.raises(ConfigError, match="ll-ffd-group"):
        strategies_of("ll-ffd-group", LiveWorkload.LANDAU_5.strategies)


def test_what_was_kept_under_other_settings_is_not_taken(tmp_path: Path):
    written = keep(tmp_path, "a", {"sla_s": 5.0}, {"sla_share": 1.0})

    assert kept(tmp_path, "a", {"sla_s": 5.0}) == written == {"sla_share": 1.0}
    assert kept(tmp_path, "a", {"sla_s": 2.0}) is None
    assert kept(tmp_path, "b", {"sla_s": 5.0}) is None


# ---------------------------------------------------------------- replicas


def test_a_timeline_is_read_from_samples_at_any_time_and_priced():
    timeline = changes([(0.0, 1), (1.0, 1), (30.0, 3), (60.0, 1)])

    assert timeline == ((0.0, 1), (30.0, 3), (60.0, 1))
    assert [replicas_at(timeline, t) for t in (-5.0, 0.0, 29.9, 30.0, 99.0)] == [1, 1, 1, 3, 1]
    assert replica_minutes(timeline, 120.0) == pytest.approx((30 + 90 + 60) / 60)
    assert replica_minutes(timeline, 45.0) == pytest.approx((30 + 45) / 60)


def test_kedas_rule_looks_every_15_s_and_goes_down_after_five_minutes_only():
    scaler = HorizontalScaler(most=5)

    assert scaler.wanted(0.0, 0) == 1
    assert scaler.wanted(5.0, 1000) == 1  # too early to look
    assert scaler.wanted(15.0, 31) == 4
    assert scaler.wanted(30.0, 1000) == 5  # no more than partitions
    assert scaler.wanted(310.0, 0) == 5
    assert scaler.wanted(331.0, 0) == 1


def test_a_decision_without_a_reason_is_counted():
    assert unexplained([{"reason": "it was time"}, {"reason": " "}, {}]) == 2


# ---------------------------------------------------------------- response times


def test_the_four_spans_are_taken_from_the_records_of_each_decision():
    heard = ReceivedRecord(
        rates=[PublishedTimestamp(0, 400_000)],
        decisions=[
            PublishedTimestamp(1_000_000, 1_100_000),
            PublishedTimestamp(9_000_000, 9_050_000),
        ],
        control=[
            ControlEvent("rate", 1_500_000),
            ControlEvent("hello", 2_100_000),
            ControlEvent("start", 2_200_000),
            ControlEvent("hello", 3_100_000),
            ControlEvent("stop", 3_200_000),
            ControlEvent("stopped", 3_300_000),
            ControlEvent("start", 3_400_000),
            ControlEvent("started", 3_900_000),
            ControlEvent("stop", 9_100_000),
            ControlEvent("started", 9_500_000),
        ],
    )

    found = response_times(heard)

    assert found["measure"] == [pytest.approx(0.4)]
    assert found["decide"] == [pytest.approx(0.1), pytest.approx(0.05)]
    assert found["create"] == [pytest.approx(2.0)]
    assert found["hand over"] == [pytest.approx(0.8), pytest.approx(0.4)]


def test_a_run_in_which_nothing_was_changed_has_no_times_of_changes():
    found = response_times(ReceivedRecord(rates=[PublishedTimestamp(0, 400_000)]))

    assert found == {"measure": [0.4], "decide": [], "create": [], "hand over": []}


# ---------------------------------------------------------------- rows and pages

SLOW = figures(sla_share=0.6)


def verdicts(found: dict[LiveRun, dict[str, Any]]) -> dict[str, RowVerdict]:
    part = comparison.comparison(found, LiveWorkload.EZZEDDINE_1)
    return {row.what.removesuffix(", workload-1"): row.verdict for row in part.rows}


def test_the_bars_are_met_by_a_good_run():
    found = verdicts({run(Strategy.OURS): figures(), run(Strategy.STICKY): SLOW})

    assert set(found.values()) <= {RowVerdict.WITHIN, RowVerdict.NOT_COMPARABLE}
    assert found["sla share of trim, at least"] is RowVerdict.WITHIN
    assert found["replica-minutes of trim, at most"] is RowVerdict.WITHIN
    assert found["sla share of cooperative-sticky, at most"] is RowVerdict.WITHIN


@pytest.mark.parametrize(
    ("ours", "row"),
    [
        ({"sla_share": 0.99}, "sla share of trim, at least"),
        ({"replica_minutes": 22.1}, "replica-minutes of trim, at most"),
        (
            {"blocked": {"p90_s": 1.2, "max_s": 2.0}},
            "blocked s of a move of trim, p90, at most",
        ),
        ({"order_findings": 1}, "order findings of trim"),
        ({"sla_share": 0.5}, "sla share of trim beside that of cooperative-sticky, at least"),
    ],
)
def test_a_run_that_misses_a_bar_is_outside(ours, row):
    found = verdicts({run(Strategy.OURS): figures(**ours), run(Strategy.STICKY): SLOW})

    assert found[row] is RowVerdict.OUTSIDE


def test_what_cannot_fail_is_no_row():
    found = verdicts({run(Strategy.OURS): figures(unexplained=1), run(Strategy.STICKY): SLOW})

    assert [what for what in found if "without a reason" in what] == []


def test_a_shortened_run_is_judged_by_order_only():
    bad = figures(sla_share=0.7, replica_minutes=99.0, order_findings=1)

    found = verdicts(
        {run(Strategy.OURS, stretch=0.1): bad, run(Strategy.STICKY, stretch=0.1): SLOW}
    )

    assert found["sla share of trim, at least"] is RowVerdict.NOT_COMPARABLE
    assert found["replica-minutes of trim, at most"] is RowVerdict.NOT_COMPARABLE
    assert found["order findings of trim"] is RowVerdict.OUTSIDE


@pytest.mark.parametrize(
    ("figure", "row"),
    [
        ("blocked", "blocked s of a move of ll-ffd-group, p90, at most"),
        ("rebalance", "s without reading in a rebalance of ll-ffd-group, p90, at most"),
    ],
)
@pytest.mark.parametrize(
    ("p90_s", "verdict"), [(0.6, RowVerdict.WITHIN), (1.8, RowVerdict.OUTSIDE)]
)
def test_the_group_that_asks_is_judged_by_the_papers_second_without_reading(
    figure, row, p90_s, verdict
):
    said = figures(**{figure: {"p90_s": p90_s, "max_s": 2.0}})
    part = comparison.comparison({run(Strategy.LL_FFD_GROUP): said}, LiveWorkload.EZZEDDINE_1)
    found = {r.what.removesuffix(", workload-1"): r for r in part.rows}

    assert (found[row].paper, found[row].bar, found[row].ours) == (1.0, 1.0, p90_s)
    assert found[row].verdict is verdict
    text = page("ezzeddine-live", {"live-workload-1": part})
    assert "Not run yet: trim, ll-ffd, mwf, cooperative-sticky, keda-lag, fixed." in text


def test_a_walk_in_bytes_is_judged_by_how_much_is_read_within_the_time_of_a_move():
    found = {
        run(s, workload=LiveWorkload.BYTES_5): figures(sla_share=share)
        for s, share in ((Strategy.MWF, 0.97), (Strategy.OURS, 0.999), (Strategy.STICKY, 0.6))
    }
    part = comparison.comparison(found, LiveWorkload.BYTES_5)
    verdicts = {row.what: row.verdict for row in part.rows}

    assert verdicts["share within 5 s of mwf, at least, bytes-5"] is RowVerdict.OUTSIDE
    assert verdicts["share within 5 s of trim, at least, bytes-5"] is RowVerdict.WITHIN
    assert part.settings["window s"] == 30.0
    assert "reported rate" not in part.settings


def test_a_page_says_when_rates_came_later_than_decisions_are_made():
    pages = []
    for age_s in (0.4, 3.2):
        found = {run(Strategy.OURS): figures(responses={"measure": [age_s]})}
        part = comparison.comparison(found, LiveWorkload.EZZEDDINE_1)
        pages.append(page("ezzeddine-live", {"live-workload-1": part}))

    assert "Rates were published" not in pages[0]
    assert "Rates were published 3.2 s after their sample" in pages[1]


def nowhere(folder: Path) -> LiveExperiment:
    """Runs that are not conducted need neither brokers nor Spark."""
    nobody: Any = None
    return LiveExperiment(place=nobody, session=nobody, folder=folder)


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that a warm-up was made for."""
    warmed: list[str] = []
    monkeypatch.setattr(LiveExperiment, "_warm_up", lambda _, run: warmed.append(run.key))
    monkeypatch.setattr(LiveExperiment, "_measured", lambda *_: nullcontext())
    return warmed


def test_the_first_run_that_was_not_kept_has_a_warm_up_and_no_other(tmp_path, monkeypatch, warmed):
    runs = [run(strategy) for strategy in (Strategy.OURS, Strategy.MWF, Strategy.FIXED)]
    live = nowhere(tmp_path)
    monkeypatch.setattr(LiveExperiment, "_run", lambda *_: figures())
    live.runs(runs[:1], again=False, on_run=lambda *_: None)
    live.runs(runs, again=False, on_run=lambda *_: None)
    live.runs(runs, again=False, on_run=lambda *_: None)

    assert warmed == [runs[0].key, runs[1].key]


def test_runs_are_measured_over_the_window_of_their_workload(tmp_path, monkeypatch, warmed):
    windows: list[float] = []

    @contextmanager
    def measured(_: LiveExperiment, window_s: float) -> Iterator[None]:
        windows.append(window_s)
        yield
        windows.append(-window_s)

    monkeypatch.setattr(LiveExperiment, "_measured", measured)
    monkeypatch.setattr(LiveExperiment, "_run", lambda *_: figures())
    runs = runs_of([LiveWorkload.LANDAU_5, LiveWorkload.BYTES_5], [Strategy.MWF], seeds=2)
    nowhere(tmp_path).runs(runs, again=False, on_run=lambda *_: None)

    assert windows == [5.0, -5.0, 30.0, -30.0]
    assert warmed == [runs[0].key]


@pytest.mark.usefixtures("warmed")
def test_a_run_whose_load_was_late_is_run_again_and_the_page_says_so(tmp_path, monkeypatch):
    tries = [figures(late=900), figures(late=46), figures(late=3)]
    live = nowhere(tmp_path)
    monkeypatch.setattr(LiveExperiment, "_run", lambda *_: tries.pop(0))

    found = live.runs([run(Strategy.OURS)], again=False, on_run=lambda *_: None)

    assert found[run(Strategy.OURS)]["tries"] == 3
    assert found[run(Strategy.OURS)]["late"] == 3
    assert kept(tmp_path, run(Strategy.OURS).key, run(Strategy.OURS).settings()) is not None
    part = comparison.comparison(found, LiveWorkload.EZZEDDINE_1)
    assert "the load had been late: trim 3 times" in page(
        "ezzeddine-live", {"live-workload-1": part}
    )


@pytest.mark.usefixtures("warmed")
def test_a_run_that_is_late_each_time_is_kept_as_it_is(tmp_path, monkeypatch):
    live = nowhere(tmp_path)
    monkeypatch.setattr(LiveExperiment, "_run", lambda *_: figures(late=900))

    found = live.runs([run(Strategy.OURS)], again=False, on_run=lambda *_: None)

    assert (found[run(Strategy.OURS)]["late"], found[run(Strategy.OURS)]["tries"]) == (900, TRIES)


def test_pages_with_pictures_are_made_of_both_experiments(tmp_path: Path):
    compared = {run(s, workload=w): figures() for s in Strategy for w in LiveWorkload}
    peaks = {
        name: {
            "megabytes": 64.8,
            "partitions": 32,
            "tables": 1,
            "mode_mb_s": 20.0,
            "median_mb_s": 19.0,
            "rates_mb_s": [18.0, 19.0, 20.0],
        }
        for name in ("test 1", "test 2")
    }
    span = {
        "observations": 2,
        "levels": {"p50": 0.1, "p90": 0.2, "p99": 0.2, "max": 0.2},
        "edges_s": [0.1, 1.0],
        "within": [0.5, 1.0],
    }

    first = keep_parts(
        tmp_path,
        "ezzeddine-live",
        {"live-workload-1": comparison.comparison(compared, LiveWorkload.EZZEDDINE_1)},
    )
    second = keep_parts(
        tmp_path,
        "landau-live",
        {
            "peak": comparison.peak(peaks, scale=0.1),
            "responses": comparison.responses({"delta-5": {"decide": span}}, stretch=1.0),
            "live-delta-5": comparison.comparison(compared, LiveWorkload.LANDAU_5),
            "live-bytes-25": comparison.comparison(compared, LiveWorkload.BYTES_25),
            "responses-bytes": comparison.responses({"bytes-5": {"decide": span}}, stretch=1.0),
        },
    )

    for place in (first, second):
        text = place.read_text(encoding="utf-8")
        pictures = [line.split("(")[1][:-1] for line in text.splitlines() if line.startswith("![")]
        assert pictures
        assert all((tmp_path / picture).stat().st_size > 0 for picture in pictures)
    assert "| keda-lag | 100.00% |" in first.read_text(encoding="utf-8")
    assert "| test 1 | 64.8 | 32 | 1 | 20 |" in second.read_text(encoding="utf-8")
