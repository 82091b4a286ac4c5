"""The HTML of a plan of any layer: as a page of its own, and as a section of a report.

Promise  Values in, text out. Names of topics, groups and keys are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple, assert_never

from trimtab.model.cluster import TopicPartition
from trimtab.model.key_counts import KeyCounts
from trimtab.model.plan import AnyPlan, BrokerPlan, ConsumerPlan, KeyPlan, Layer
from trimtab.model.plan_codec import plan_id
from trimtab.report import plots
from trimtab.report.html import Figure, template
from trimtab.report.key_plans import key_reason
from trimtab.report.key_plots import partition_loads
from trimtab.report.tables import limits_of, quantity, why

_MOST_MOVES = 1000
_FIGURES = {
    "e_lb": "load-balance error",
    "imbalance": "busiest partition over the mean",
    "f0": "highest load of a broker",
    "f1": "after one failure",
    "f2": "after two failures",
    "f_rack": "after a rack's failure",
}


class MoveRow(NamedTuple):
    """One move as texts for the table."""

    what: str
    change: str
    amount: str
    why: str


class PlanSection(NamedTuple):
    """A plan as texts; `plot` is an SVG image, `headings` are those of the moves' columns."""

    plot: str | None
    caption: str
    facts: Mapping[str, str]
    unplaced: list[str]
    headings: tuple[str, str, str]
    moves: list[MoveRow]
    more_moves: int


def plan_page(
    plan: AnyPlan,
    loads: Mapping[TopicPartition, float] | None = None,
    *,
    counts: KeyCounts | None = None,
) -> str:
    """The page of a plan.

    A consumers' plan with `loads` also shows the load of each consumer, a keys' plan with `counts`
    that of each partition.
    """
    return template("plan.html").render(
        title=f"Trimtab: plan for {plan.layer} of {', '.join(plan.scope.topics) or 'no topic'}",
        made=f"{datetime.fromtimestamp(plan.made_ts / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC",
        plan=plan,
        figures=_figures(plan),
        section=plan_section(plan, loads, counts=counts),
    )


def plan_section(
    plan: AnyPlan,
    loads: Mapping[TopicPartition, float] | None = None,
    *,
    counts: KeyCounts | None = None,
) -> PlanSection:
    """The section of a plan, for the template `plan_section.html`."""
    plot, caption = None, ""
    if isinstance(plan, ConsumerPlan) and loads is not None:
        plot = plots.consumers(loads, plan.previous, plan.assignment, limits_of(plan))
        caption = "The load of each consumer before and after the plan; the line is its capacity."
    elif isinstance(plan, KeyPlan) and counts is not None:
        plot = partition_loads(counts, plan)
        caption = "The records of each partition in the window, before and after the plan."
    headings, moves = _moves(plan)
    return PlanSection(
        plot=plot,
        caption=caption,
        facts=_facts(plan),
        unplaced=_unplaced(plan),
        headings=headings,
        moves=moves,
        more_moves=len(plan.moves) - len(moves),
    )


def _unplaced(plan: AnyPlan) -> list[str]:
    unit = limits_of(plan).unit if isinstance(plan, ConsumerPlan) else None
    return [
        f"{u.topic}-{u.partition}{'' if unit is None else f' ({quantity(u.load, unit)})'}: {u.why}"
        for u in plan.unplaced
    ]


def _moves(plan: AnyPlan) -> tuple[tuple[str, str, str], list[MoveRow]]:
    """The headings of the moves' columns, and the rows."""
    match plan:
        case ConsumerPlan():
            unit = limits_of(plan).unit
            return ("partition", "consumer", "load"), [
                MoveRow(
                    what=str(m.name),
                    change=f"{'–' if m.source is None else m.source} → {m.target}",
                    amount=quantity(m.load, unit),
                    why=why(m, unit),
                )
                for m in plan.moves[:_MOST_MOVES]
            ]
        case KeyPlan():
            return ("key", "partition", "records in the window"), [
                MoveRow(
                    what=plots.label(m.key),
                    change=f"{m.source} → {m.target}",
                    amount=str(m.count),
                    why=key_reason(m),
                )
                for m in plan.moves[:_MOST_MOVES]
            ]
        case BrokerPlan():
            return ("partition", "replicas, leader first", "bytes to copy"), [
                MoveRow(
                    what=f"{m.topic}-{m.partition}",
                    change=f"{_listed(m.source)} → {_listed(m.target)}",
                    amount=str(m.bytes),
                    why=_reason(m.reason, m.numbers),
                )
                for m in plan.moves[:_MOST_MOVES]
            ]
        case _:
            assert_never(plan)


def _reason(reason: str, numbers: Mapping[str, float]) -> str:
    given = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
    return f"{reason}: {given}" if given else str(reason)


def _listed(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def _figures(plan: AnyPlan) -> list[Figure]:
    moves = Figure(str(plan.cost.moves), f"move{'s'[: plan.cost.moves != 1]}", plan.planner)
    if isinstance(plan, ConsumerPlan):
        capacity = limits_of(plan).capacity
        was, will = plan.before, plan.after
        return [
            Figure(
                f"{was.max_load / capacity:.0%} → {will.max_load / capacity:.0%}",
                "of capacity: busiest consumer",
            ),
            Figure(f"{was.consumers} → {will.consumers}", "consumers", f"at least {plan.bound}"),
            moves,
        ]
    before, after = asdict(plan.before), asdict(plan.after)
    return [
        *(Figure(f"{before[n]:.4g} → {after[n]:.4g}", _FIGURES[n]) for n in before),
        moves,
    ]


def _facts(plan: AnyPlan) -> dict[str, str]:
    facts = {
        "plan": plan_id(plan),
        "made for snapshot": plan.snapshot,
        "planner": plan.planner,
    }
    if plan.scope.group is not None or plan.layer is Layer.CONSUMERS:
        facts["group"] = plan.scope.group or "–"
    match plan:
        case ConsumerPlan():
            return facts | _facts_of_consumers(plan)
        case KeyPlan():
            cost = f"{plan.cost.moves} moves with {plan.cost.count} records in the window"
        case BrokerPlan():
            cost = f"{plan.cost.moves} moves, {plan.cost.bytes} bytes to copy"
        case _:
            assert_never(plan)
    before, after = asdict(plan.before), asdict(plan.after)
    return {
        **facts,
        **{_FIGURES[n]: f"{before[n]:.4g} → {after[n]:.4g}" for n in before},
        "lower bound": f"{plan.bound:.4g} (gap {plan.gap:.0%})",
        "cost": cost,
    }


def _facts_of_consumers(plan: ConsumerPlan) -> dict[str, str]:
    unit, cost = limits_of(plan).unit, plan.cost
    must = quantity(plan.bound_moved_load, unit)
    facts = {
        "capacity of a consumer": quantity(limits_of(plan).capacity, unit),
        "consumers": f"{plan.before.consumers} → {plan.after.consumers}",
        "lower bound": f"{plan.bound} (gap {plan.gap:.0%})",
        "largest load": f"{quantity(plan.before.max_load, unit)} → "
        f"{quantity(plan.after.max_load, unit)}",
        "cost": f"{cost.moves} moves with {quantity(cost.moved_load, unit)}; at least {must} must "
        "move",
        "Rscore": f"{cost.rscore:.3g}",
    }
    if cost.orphan_load:
        facts["orphans"] = quantity(cost.orphan_load, unit)
    return facts
