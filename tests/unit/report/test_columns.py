"""No table cuts or breaks a name or a figure at 80 columns, piped or on a terminal."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import RenderableType

import trimtab
from tests.unit.cli.test_steer import TOLD
from tests.unit.report import report_values as values
from trimtab.audit.loads import TopicLoad
from trimtab.audit.topology import audit
from trimtab.cli.output import result
from trimtab.cli.steer import steering_view
from trimtab.evaluate.order import Violation, ViolationKind
from trimtab.evaluate.rscore import TWELVE
from trimtab.evaluate.verdict import (
    BlockingTimes,
    ConsumerWork,
    Latency,
    OrderAuditResult,
    Outcome,
    OutcomeWindow,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import ClusterSnapshot, Group, TopicPartition
from trimtab.model.load import GroupLimits, Loads, LoadStep, Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.registry import PLANNERS
from trimtab.report import audit as topology
from trimtab.report import measurement, policy_comparison, snapshot, tables, verdict
from trimtab.simulate import packing
from trimtab.simulate.brokers import QueueOutcome as Waits
from trimtab.simulate.brokers import QueueWorld
from trimtab.simulate.policy_comparison import ComparisonCell
from trimtab.simulate.replay import History, ReplayResult
from trimtab.testing.placements import placement

LONG = "payments.settlement-requests.by-merchant-and-currency.eu-central-1.v2"
GROUP = "settlement[eu]-" + "x" * 80
P = [TopicPartition(LONG, n) for n in (0, 7, 1234)]
LOADS = dict(zip(P, (1_234_567_890.0, 987_654_321.0, 123_456.0), strict=True))


def plan_view() -> RenderableType:
    owners = Assignment({P[0]: 0, P[1]: 0, P[2]: 1})
    limits = GroupLimits(capacity=1_500_000_000)
    plan = plan_consumers(LOADS, owners, limits, planner="mwf", made_ts=1, group=GROUP)
    return tables.consumer_plan_view(plan, LOADS)


def plan_view_without_loads() -> RenderableType:
    limits = GroupLimits(capacity=1_300_000_000)
    return tables.consumer_plan_view(
        plan_consumers(LOADS, Assignment({}), limits, planner="mwf", made_ts=1, group=GROUP)
    )


def simulated(*names: str, steps: int = 3) -> list[packing.PackingRun]:
    stream = Loads(capacity=1_500_000_000, steps=(LoadStep(loads=LOADS),) * steps)
    return [packing.simulate(stream, PLANNERS[Layer.CONSUMERS][name]) for name in names]


PAST = History(window_s=30, unit=Unit.BYTES_S, names=tuple(P), rates=((1.0, 2.0, 3.0),) * 9)


def replayed(planner: str) -> ReplayResult:
    return ReplayResult(
        planner=planner,
        sla_s=5,
        sla_share=0.98765,
        p50_s=0.00123,
        p90_s=1.25,
        p99_s=12.5,
        max_s=123.4,
        replica_minutes=123456.0,
        mean_consumers=123.4,
        max_lag=12_345_678,
        moves=1_234_567,
        e_rscore=0.000123456,
        moved_fraction=0.5,
    )


def replay_view() -> RenderableType:
    large = replace(replayed("kafka-round-robin"), p99_s=98765432.1, max_lag=12_345_678_901_234)
    return tables.replay_view(PAST, [large, replace(large, planner="trim", p50_s=None)])


def measurement_view() -> RenderableType:
    found = values.measurement(
        partitions=tuple(
            values.partition(0, topic=LONG, partition=p.partition, lag={GROUP: 12_345_678_901})
            for p in P
        ),
        keys=(values.key(b"customer-" + b"9" * 60, topic=LONG),),
    )
    return measurement.measurement_view(found, {(GROUP, p): "falling behind" for p in P}, 0.5)


def snapshot_view() -> RenderableType:
    taken = placement({LONG: [[1, 2, 3], [2, 3, 1]]}, racks={1: "eu-central-1a-" + "r" * 30})
    group = Group(name=GROUP, state="PreparingRebalance")
    assert isinstance(taken, ClusterSnapshot)
    return snapshot.snapshot_view(replace(taken, groups=(group,)))


def topology_view() -> RenderableType:
    other = LONG.replace("requests", "answers")
    placed = placement(
        {LONG: [[1, 2], [1, 3], [1, 2]], other: [[2, 1], [3, 2]]}, racks={1: "a", 2: "b", 3: "b"}
    )
    rates = TopicLoad(by_topic={LONG: 9e8, other: 1e8}, unit=Unit.BYTES_S)
    return topology.audit_view(audit(placed, rates=rates), worst=10)


def order_view() -> RenderableType:
    violation = Violation(
        kind=ViolationKind.INVERSION,
        topic=LONG,
        partition=1234,
        key=b"customer-" + b"9" * 60,
        at=7,
        detail="number 12345678 was processed after 12345679, by consumer 3 and consumer 4",
    )
    return verdict.audit_view(
        OrderAuditResult(
            run="r",
            group=GROUP,
            receipts=10,
            records=9,
            expected=9,
            rejects=0,
            unnumbered=0,
            counts={ViolationKind.INVERSION: 12_345_678},
            first=(violation,),
        ),
        no_repeats=True,
    )


def outcome_view() -> RenderableType:
    latency = Latency(
        events=123_456_789,
        p50_ms=1_234_567,
        p90_ms=2_345_678,
        p99_ms=3_456_789,
        p999_ms=4_567_890,
        max_ms=5_678_901,
        within_sla=0.99912,
    )
    return verdict.outcome_view(
        Outcome(
            run="r",
            group=GROUP,
            from_ts=0,
            to_ts=120_000_000,
            sla_s=5,
            latency=latency,
            repeats=12_345,
            rejects=0,
            replicas_from="receipts",
            replica_minutes=123_456.0,
            busiest_share=0.5,
            busiest_to_mean=1.5,
            moves=BlockingTimes(moves=3),
            handovers=None,
            windows=(
                OutcomeWindow(
                    window_start=0,
                    window_end=60_000_000,
                    latency=latency,
                    replicas=12.5,
                    replica_minutes=12.5,
                    busiest_share=0.123,
                ),
            ),
            consumers=(
                ConsumerWork(
                    consumer=12,
                    incarnation="9b" * 16,
                    processed=123_456_789,
                    busy_s=123_456.7,
                    life_s=234_567.8,
                    utilisation=0.5,
                ),
            ),
        )
    )


def comparison_view() -> RenderableType:
    run = Waits(
        mean_wait=12345.678,
        p50=0.0,
        p95=123456.7,
        p99=234567.8,
        mean_stay=1.0,
        offered={1: 0.5, 2: 0.9},
        shares={1: 0.5, 2: 0.5},
    )
    cells = [
        ComparisonCell(
            policy="least-work-of-all",
            dispatchers=12345,
            utilisation=0.5,
            runs=(run, run),
            closed_form=None,
        )
    ]
    return policy_comparison.comparison_view(cells, QueueWorld.even(2), arrivals=1000, seeds=2)


VIEWS: list[Callable[[], RenderableType]] = [
    plan_view,
    plan_view_without_loads,
    lambda: tables.simulation_view(simulated("mwf")),
    lambda: tables.simulation_view(simulated("mwf", steps=20)),
    lambda: tables.simulation_view(simulated(*TWELVE, "trim")),
    replay_view,
    measurement_view,
    snapshot_view,
    topology_view,
    order_view,
    outcome_view,
    comparison_view,
    lambda: steering_view(TOLD),
]


WITH_SENTENCES = (plan_view, plan_view_without_loads, outcome_view)


def printed(
    view: RenderableType, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: object
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    result(view)
    return str(capsys.readouterr().out)  # type: ignore[attr-defined]


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
@pytest.mark.parametrize("view", VIEWS, ids=range(len(VIEWS)))
def test_at_80_columns_every_name_and_figure_is_whole(
    view: Callable[[], RenderableType],
    terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    shown = view()
    wide = re.sub(r"\x1b\[[0-9;]*m", "", printed(shown, 1000, monkeypatch, capsys))
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", printed(shown, 80, monkeypatch, capsys))

    words = re.compile(r"[^\s│┃┏┓┗┛━─┡┩┴┬└┘┼╇]+")
    assert set(words.findall(wide)) - set(words.findall(narrow)) == set()
    assert narrow.count("…") == wide.count("…")
    if view in WITH_SENTENCES:  # which are broken between words
        return
    figures = re.compile(r"\d[\d.,]*k? (?:[kMGT]?B(?:/s)?|records/s|ms|µs|s|min)\b")
    assert set(figures.findall(wide)) - set(figures.findall(narrow)) == set()


def test_replay_fits_80_columns_with_ordinary_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [replayed("kafka-round-robin"), replayed("trim")]
    out = printed(tables.replay_view(PAST, found), 80, monkeypatch, capsys)
    assert max(map(len, out.splitlines())) <= 80


def test_no_table_is_made_without_the_promise() -> None:
    package = Path(trimtab.__file__).parent
    makers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Table"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert makers == []
