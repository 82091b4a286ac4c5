"""Plans and simulations as text tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.evaluate.rscore import TWELVE, cbs, pareto_front
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import ConsumerMove, ConsumerPlan, Reason
from trimtab.model.plan_codec import plan_id
from trimtab.report.columns import new_table
from trimtab.simulate.packing import PackingRun, summary

if TYPE_CHECKING:
    from trimtab.simulate.replay import History, ReplayResult

_Columns = Mapping[str, Callable[[int], RenderableType]]

_MOST_ROWS = 40
_BAR = 12
_FEW_STEPS = 15
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKLINE = 60


def quantity(load: float, unit: Unit = Unit.BYTES_S) -> str:
    """A load with its unit, to three digits.

    >>> quantity(1_236_539), quantity(0), quantity(410, Unit.RECORDS_S)
    ('1.24 MB/s', '0 B/s', '410 records/s')
    """
    suffix = "B/s" if unit is Unit.BYTES_S else " records/s"
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")):
        if load >= size * 0.9995:
            return _spaced(f"{load / size:.3g}", prefix, suffix)
    return _spaced(f"{load:.3g}", "", suffix)


def _spaced(number: str, prefix: str, suffix: str) -> str:
    return f"{number} {prefix}{suffix}" if suffix[0] != " " else f"{number}{prefix}{suffix}"


def consumer_plan_view(
    plan: ConsumerPlan, loads: Mapping[TopicPartition, float] | None = None
) -> RenderableType:
    """The whole plan: its figures, each consumer before → after, each move with its reason.

    A plan holds the loads of moved partitions only; `loads` adds the load of each consumer.
    """
    parts: list[RenderableType] = [_headline(plan), Text(), _consumers(plan, loads)]
    if plan.members:
        parts += [Text(), _members(plan)]
    if plan.moves:
        parts += [Text(), _moves(plan)]
    parts += [Text(line, style="red") for line in _unplaced(plan)]
    return Group(*parts)


def limits_of(plan: ConsumerPlan) -> GroupLimits:
    """The capacities of the consumers of this plan."""
    own = plan.params.get("capacities", {})
    return GroupLimits(
        capacity=plan.params["capacity"],
        capacities={int(consumer): capacity for consumer, capacity in own.items()},
        unit=Unit(plan.params.get("unit", Unit.BYTES_S)),
    )


def _headline(plan: ConsumerPlan) -> Text:
    unit, cost = limits_of(plan).unit, plan.cost
    group = f" for group {plan.scope.group}" if plan.scope.group else ""
    gap = f"gap {plan.gap:.0%}" if plan.gap else "no plan needs fewer"
    lines = [
        f"Plan {plan_id(plan)} by {plan.planner}{group}, made for snapshot {plan.snapshot}",
        f"  consumers  {plan.before.consumers} → {plan.after.consumers}"
        f"  (at least {plan.bound}: {gap})",
        f"  max load   {quantity(plan.before.max_load, unit)} → "
        f"{quantity(plan.after.max_load, unit)}",
        f"  moves      {cost.moves} with {quantity(cost.moved_load, unit)}"
        f"  (at least {quantity(plan.bound_moved_load, unit)} must move), Rscore {cost.rscore:.3g}",
    ]
    if cost.orphan_load:
        lines.append(f"  orphans    {quantity(cost.orphan_load, unit)}")
    text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
    text.stylize("bold", 0, len(lines[0]))
    return text


def _consumers(plan: ConsumerPlan, loads: Mapping[TopicPartition, float] | None) -> Table:
    columns = _moved_per_consumer(plan) if loads is None else _loads_per_consumer(plan, loads)
    ones = dict.fromkeys(plan.assignment, 1)
    counted, counts = plan.previous.loads(ones), plan.assignment.loads(ones)
    consumers = sorted({*counted, *counts})
    table = new_table("consumer", "partitions", *columns, title="Consumers")
    for consumer in consumers[:_MOST_ROWS]:
        change = f"{counted.get(consumer, 0):.0f} → {counts.get(consumer, 0):.0f}"
        table.add_row(str(consumer), change, *(cell(consumer) for cell in columns.values()))
    _add_rest(table, len(consumers))
    return table


def _members(plan: ConsumerPlan) -> Text:
    """The member ids of the consumers; names are never cut."""
    known = sorted(plan.members.items())
    width = len(str(known[-1][0]))
    lines = [f"  {consumer:>{width}}  {name}" for consumer, name in known[:_MOST_ROWS]]
    if len(known) > _MOST_ROWS:
        lines.append(f"  and {len(known) - _MOST_ROWS} more (--json has all)")
    return Text("\n".join(("Members", *lines)), overflow="fold")


def _loads_per_consumer(plan: ConsumerPlan, loads: Mapping[TopicPartition, float]) -> _Columns:
    limits = limits_of(plan)
    carried, carries = plan.previous.loads(loads), plan.assignment.loads(loads)

    def change(consumer: int) -> str:
        was, will = carried.get(consumer, 0), carries.get(consumer, 0)
        return f"{quantity(was, limits.unit)} → {quantity(will, limits.unit)}"

    def share(consumer: int) -> Text:
        capacity = limits.of(consumer)
        return _bar(carried.get(consumer, 0) / capacity, carries.get(consumer, 0) / capacity)

    return {"load": change, "of its capacity": share}


def _moved_per_consumer(plan: ConsumerPlan) -> _Columns:
    unit = limits_of(plan).unit
    gives: dict[int | None, float] = {}
    takes: dict[int, float] = {}
    for move in plan.moves:
        gives[move.source] = gives.get(move.source, 0) + move.load
        takes[move.target] = takes.get(move.target, 0) + move.load
    return {
        "gives up": lambda consumer: quantity(gives.get(consumer, 0), unit),
        "takes on": lambda consumer: quantity(takes.get(consumer, 0), unit),
    }


def _bar(was: float, will: float) -> Text:
    filled = min(_BAR, round(will * _BAR))
    bar = "█" * filled + "░" * (_BAR - filled)
    return Text(f"{bar} {was:.0%} → {will:.0%}", style="red" if will > 1 else "")


def _moves(plan: ConsumerPlan) -> Table:
    unit = limits_of(plan).unit
    table = new_table("partition", "consumer", "load", "why", title="Moves")
    for move in plan.moves[:_MOST_ROWS]:
        source = "–" if move.source is None else str(move.source)
        table.add_row(
            Text(str(move.name)),
            f"{source} → {move.target}",
            quantity(move.load, unit),
            why(move, unit),
        )
    _add_rest(table, len(plan.moves))
    return table


def _add_rest(table: Table, rows: int) -> None:
    if rows > _MOST_ROWS:
        table.caption = f"and {rows - _MOST_ROWS} more, all of them in the JSON"


def why(move: ConsumerMove, unit: Unit = Unit.BYTES_S) -> str:
    """The reason of a move as a sentence, with its numbers."""
    numbers = {name: quantity(value, unit) for name, value in move.numbers.items()}
    match move.reason:
        case Reason.ARRIVAL | Reason.ORPHAN:
            was = "it had no consumer" if move.reason is Reason.ARRIVAL else "its consumer is dead"
            return (
                f"{move.reason}: {was}; consumer {move.target} will have {numbers['load_to']} "
                f"of its capacity {numbers['capacity']}"
            )
        case Reason.OVERLOAD:
            return (
                f"overload: consumer {move.source} had {numbers['load_from']}, "
                f"its capacity is {numbers['capacity']}"
            )
        case Reason.CONSOLIDATE:
            return (
                f"consolidate: consumer {move.source} with {numbers['load_from']} is closed "
                f"({move.numbers['consumers_before']:.0f} → "
                f"{move.numbers['consumers_after']:.0f} consumers)"
            )
        case Reason.REPACK if "load_from" not in numbers:
            return f"repack: returns to consumer {move.target}, which had it before"
        case Reason.REPACK:
            return (
                f"repack: consumer {move.source} had {numbers['load_from']}, "
                f"{move.target} had {numbers['load_to']} of its capacity {numbers['capacity']}"
            )


def _unplaced(plan: ConsumerPlan) -> Iterator[str]:
    limits = limits_of(plan)
    for item in plan.unplaced:
        name = TopicPartition(item.topic, item.partition)
        consumer = plan.assignment[name]
        yield (
            f"{name} does not fit ({item.why}): its load is {quantity(item.load, limits.unit)}, "
            f"consumer {consumer} has capacity {quantity(limits.of(consumer), limits.unit)} and no "
            "other partition."
        )


def simulation_view(runs: Sequence[PackingRun]) -> RenderableType:
    """The figures of each planner, side by side; for a single planner also over the steps."""
    parts: list[RenderableType] = [_compared(runs)]
    if len(runs) == 1:
        way = _steps if len(runs[0].steps) <= _FEW_STEPS else _sparklines
        parts += [Text(), way(runs[0])]
    return Group(*parts)


def _compared(runs: Sequence[PackingRun]) -> Table:
    """Planners and their figures; the best trade-offs are marked."""
    figures = {run.planner: summary(run) for run in runs}
    scores = {}
    if set(TWELVE) <= figures.keys():
        counts = {run.planner: [step.consumers for step in run.steps] for run in runs}
        scores = {name: score.value for name, score in cbs(counts, reference=TWELVE).items()}
    # Overloading consumers lowers both figures, so only runs with the least overload compete.
    fair = min(f["overload"] for f in figures.values())
    front = pareto_front(
        {
            name: (f["mean_consumers"], f["e_rscore"])
            for name, f in figures.items()
            if f["overload"] <= fair
        }
    )
    steps = len(runs[0].steps)
    table = new_table(
        *("planner", "consumers", "CBS") if scores else ("planner", "consumers"),
        *("E[Rscore]", "moves", "moved", "utili-\nsation", "overload", "per plan"),
        left=1,
        title=f"{steps} step{'s' * (steps > 1)}",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name, f in figures.items():
        best = len(runs) > 1 and name in front
        table.add_row(
            f"{name} *" if best else name,
            f"{f['mean_consumers']:.4g}",
            *([f"{scores[name]:.3f}"] if scores else []),
            f"{f['e_rscore']:.3g}",
            f"{f['moves']:,}",
            f"{f['moved_fraction']:.1%}",
            f"{f['utilisation']:.1%}",
            f"{f['overload']:.2%}" if f["overload"] else "0",
            duration(f["seconds"] / steps),
        )
    if len(runs) > 1:
        table.caption = (
            "* no other planner with the least overload has fewer consumers and a lower Rscore"
        )
    return table


def duration(seconds: float) -> str:
    """A short time with its unit, to three digits.

    >>> duration(0.00123), duration(2.5), duration(0)
    ('1.23 ms', '2.5 s', '0 s')
    """
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _steps(run: PackingRun) -> Table:
    table = new_table("step", "consumers", "Rscore", "moves", "load", "utilisation", left=0)
    for k, step in enumerate(run.steps):
        table.add_row(
            str(k),
            str(step.consumers),
            f"{step.rscore:.3g}",
            str(step.moves),
            f"{step.total_load:.4g}",
            "–" if step.utilisation is None else f"{step.utilisation:.1%}",
        )
    return table


def _sparklines(run: PackingRun) -> Table:
    table = new_table("over the steps", "", "least", "most", box=box.SIMPLE_HEAD)
    for name, values in {
        "consumers": [float(step.consumers) for step in run.steps],
        "Rscore": [step.rscore for step in run.steps],
        "moves": [float(step.moves) for step in run.steps],
        "load": [step.total_load for step in run.steps],
    }.items():
        table.add_row(name, sparkline(values), f"{min(values):.4g}", f"{max(values):.4g}")
    return table


def sparkline(values: Sequence[float], width: int = _SPARKLINE) -> str:
    """Values as small bars scaled from minimum to maximum, each the mean of its part.

    >>> sparkline([1, 2, 3, 5, 9]), sparkline([4, 4])
    ('▁▂▃▅█', '▁▁')
    """
    count = min(width, len(values))
    cuts = [len(values) * i // count for i in range(count + 1)]
    means = [fmean(values[a:b]) for a, b in pairwise(cuts)]
    low, span = min(means), max(means) - min(means) or 1
    return "".join(_SPARKS[round((mean - low) / span * (len(_SPARKS) - 1))] for mean in means)


def replay_view(history: History, found: Sequence[ReplayResult]) -> RenderableType:
    """How each planner would have performed on the recorded load, side by side."""
    span = history.window_s * len(history.rates)
    title = (
        f"{len(history.rates)} windows of {history.window_s:g} s ({span / 60:.3g} min), "
        f"{len(history.names)} partitions, SLA {found[0].sla_s:g} s"
    )

    def waited(seconds: float | None) -> str:
        return "–" if seconds is None else duration(seconds)

    look: dict[str, Any] = {
        "left": 1,
        "box": box.SIMPLE_HEAD,
        "pad_edge": False,
        "collapse_padding": True,
    }
    waits = new_table(
        *("planner", "within SLA", "p50", "p90", "p99", "longest", "max lag"),
        **look,
        title="Waiting time of records",
    )
    costs = new_table(
        *("planner", "replica-minutes", "consumers", "moves", "E[Rscore]"),
        **look,
        title="Cost",
    )
    for one in found:
        waits.add_row(
            one.planner,
            f"{one.sla_share:.2%}",
            *(waited(t) for t in (one.p50_s, one.p90_s, one.p99_s, one.max_s)),
            f"{one.max_lag:,.0f}",
        )
        costs.add_row(
            one.planner,
            f"{one.replica_minutes:.4g}",
            f"{one.mean_consumers:.3g}",
            f"{one.moves:,}",
            f"{one.e_rscore:.3g}",
        )
    return Group(Text(title), Text(), waits, Text(), costs)
