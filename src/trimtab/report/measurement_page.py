"""One self-contained HTML page of a measurement and the plan made from it.

Promise  Values in, text out: only the packaged template is read, and the page loads nothing from
         the network. Names of topics, groups and keys are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from trimtab.model.cluster import TopicPartition
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import Measurement, PartitionLoad, Unit
from trimtab.model.plan import ConsumerPlan, KeyPlan
from trimtab.report import plots
from trimtab.report.html import Figure, template
from trimtab.report.plan_page import plan_section
from trimtab.report.plots import RateHistory
from trimtab.report.tables import limits_of, quantity

States = Mapping[tuple[str, TopicPartition], str]


class PageRow(NamedTuple):
    """One row in the table of all partitions."""

    name: str
    bytes_s: str
    records_s: str
    lag: str
    consumer: str
    note: str


class FigureChange(NamedTuple):
    """A decision that changed something: time, consumers before and after, and reason."""

    at: str
    consumers: str
    reason: str


class JudgedRow(NamedTuple):
    """The outcome of a group that a controller ran."""

    sent: str
    figures: list[Figure]
    changes: list[FigureChange]


def page(
    measurement: Measurement,
    rates_history: RateHistory,
    states: States,
    plan: ConsumerPlan,
    settings: Mapping[str, str],
    judged: JudgedRow | None = None,
    hot_keys: tuple[KeyPlan, KeyCounts] | None = None,
) -> str:
    """The whole report; `settings` are rows for its last table, such as versions."""
    limits = limits_of(plan)
    loads = measurement.loads(limits.unit)
    groups = sorted({group for p in measurement.partitions for group in p.lag})
    return template("report.html").render(
        title=f"Trimtab: {', '.join(plan.scope.topics)}",
        began=f"{datetime.fromtimestamp(measurement.from_ts / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC",
        span_s=(measurement.to_ts - measurement.from_ts) / 1e6,
        measurement=measurement,
        figures=_figures(measurement, plan, limits.unit),
        rates=plots.rates(loads, plan.previous, limits.unit),
        over_time=plots.rates_over_time(
            rates_history, from_ts=measurement.from_ts, unit=limits.unit
        )
        if any(rates_history.values())
        else None,
        keys=plots.heavy_keys(measurement.keys) if measurement.keys else None,
        more_keys=max(0, len(measurement.keys) - plots.MOST_KEYS),
        lags={group: plots.lag(measurement.partitions, group, states) for group in groups},
        plan=plan,
        section=plan_section(plan, loads),
        keys_plan=hot_keys[0] if hot_keys else None,
        keys_section=plan_section(hot_keys[0], counts=hot_keys[1]) if hot_keys else None,
        rows=[_row(p, plan, states) for p in measurement.partitions],
        settings=settings,
        judged=judged,
    )


def _figures(found: Measurement, plan: ConsumerPlan, unit: Unit) -> list[Figure]:
    loads = found.loads(unit)
    total, most = sum(loads.values()), max(loads.values(), default=0.0)
    capacity = limits_of(plan).capacity
    number, _, per_second = quantity(total, unit).partition(" ")
    figures = [Figure(number, f"{per_second} in all", f"{len(found.partitions)} partitions")]
    if total:
        hottest = max(loads, key=lambda name: (loads[name], name))
        times = most / (total / len(loads))
        figures.append(Figure(f"{times:.1f} ×", "the mean: hottest partition", str(hottest)))
    if found.keys:
        heaviest = max(found.keys, key=lambda k: (k.lower, k.key))
        figures.append(
            Figure(
                f"{heaviest.share:.1%}",
                "of the records: heaviest key",
                f"key {plots.label(heaviest.key)}",
            )
        )
    figures += [
        Figure(
            f"{behind:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
            "records behind",
            f"group {group}",
        )
        for group, behind in _behind(found).items()
    ]
    figures.append(
        Figure(
            f"{plan.before.max_load / capacity:.0%} → {plan.after.max_load / capacity:.0%}",
            "of capacity: busiest consumer",
            f"{plan.cost.moves} move{'s'[: plan.cost.moves != 1]}",
        )
    )
    return figures


def _behind(found: Measurement) -> dict[str, int]:
    """The total lag of each group; groups with an unknown lag are left out."""
    groups = sorted({group for p in found.partitions for group in p.lag})
    lags = {g: [p.lag[g] for p in found.partitions if g in p.lag] for g in groups}
    return {g: sum(x for x in all_ if x) for g, all_ in lags.items() if None not in all_}


def _row(p: PartitionLoad, plan: ConsumerPlan, states: States) -> PageRow:
    def rate(value: float | None, unit: Unit) -> str:
        return "unknown" if value is None else quantity(value, unit)

    def lag(group: str, records: int | None) -> str:
        behind = p.lag_s.get(group)
        seconds = "" if behind is None else f", {behind:.1f} s"
        known = "unknown" if records is None else f"{records}{seconds}"
        return f"{group} {known}, {states.get((group, p.name), 'unknown')}"

    was, will = plan.previous.get(p.name), plan.assignment.get(p.name)
    old, new = ("–" if c is None else str(c) for c in (was, will))
    return PageRow(
        name=str(p.name),
        bytes_s=rate(p.bytes_s, Unit.BYTES_S),
        records_s=rate(p.records_s, Unit.RECORDS_S),
        lag="; ".join(lag(group, records) for group, records in sorted(p.lag.items())),
        consumer=old if was == will else f"{old} → {new}",
        note="" if p.complete else "incomplete",
    )
