"""A plan of any layer as text tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import assert_never

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.evaluate.forecast import ForecastCheck
from trimtab.model.cluster import TopicPartition
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import Unit
from trimtab.model.plan import AnyPlan, BrokerPlan, ConsumerPlan, KeyPlan
from trimtab.model.plan_codec import plan_id
from trimtab.report.columns import new_table
from trimtab.report.key_plans import key_plan_view
from trimtab.report.tables import consumer_plan_view, quantity

_MOST_ROWS = 40


def plan_view(
    plan: AnyPlan,
    loads: Mapping[TopicPartition, float] | None = None,
    *,
    counts: KeyCounts | None = None,
) -> RenderableType:
    """The whole plan: figures before → after, each move with its reason.

    `loads` are those of a consumers' plan, `counts` those of a keys' plan.
    """
    match plan:
        case ConsumerPlan():
            return consumer_plan_view(plan, loads)
        case KeyPlan():
            return key_plan_view(plan, counts)
        case BrokerPlan():
            moves = new_table("partition", "replicas", "bytes", "reason", title="Moves")
            for move in plan.moves[:_MOST_ROWS]:
                name = f"{move.topic}-{move.partition}"
                change = f"{_listed(move.source)} → {_listed(move.target)}"
                moves.add_row(name, change, str(move.bytes), str(move.reason))
            cost = f"{plan.cost.moves} with {plan.cost.bytes} bytes"
        case _:
            assert_never(plan)
    return Group(_headline(plan, cost), Text(), _with_rest(moves, len(plan.moves)))


def _listed(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def _headline(plan: BrokerPlan, cost: str) -> Text:
    before, after = asdict(plan.before), asdict(plan.after)
    gap = f"gap {plan.gap:.0%}" if plan.gap else "no plan can do better"
    lines = [
        f"Plan {plan_id(plan)} for {plan.layer} by {plan.planner}, made for snapshot "
        f"{plan.snapshot}",
        *(f"  {name:<10} {before[name]:.4g} → {after[name]:.4g}" for name in before),
        f"  bound      {plan.bound:.4g} ({gap})",
        f"  moves      {cost}",
    ]
    text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
    text.stylize("bold", 0, len(lines[0]))
    return text


def _with_rest(table: Table, count: int) -> Table:
    if count > _MOST_ROWS:
        table.caption = f"and {count - _MOST_ROWS} more (--json has all)"
    return table


def forecast_view(check: ForecastCheck, unit: Unit) -> RenderableType:
    """A plan's forecast beside the measured outcome."""
    table = new_table("", "forecast", "observed", "error", title=f"Plan {check.plan}")
    forecast, observed, error = check.forecast, check.observed, check.error
    table.add_row(
        "consumers",
        str(forecast.consumers),
        str(observed.consumers),
        f"{error['consumers']:+.0f}",
    )
    sign = "-" if error["max_load"] < 0 else "+"
    table.add_row(
        "max load",
        quantity(forecast.max_load, unit),
        quantity(observed.max_load, unit),
        f"{sign}{quantity(abs(error['max_load']), unit)}",
    )
    return table
