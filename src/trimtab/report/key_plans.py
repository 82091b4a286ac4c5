"""A plan for keys as text: figures, the load of each partition, and every move with its reason."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.model.key_counts import KeyCounts
from trimtab.model.plan import KeyMove, KeyPlan, KeyReason
from trimtab.model.plan_codec import plan_id
from trimtab.plan.keys.plan import moved_totals
from trimtab.report.columns import new_table
from trimtab.report.measurement import readable

_MOST_ROWS = 40


def key_plan_view(plan: KeyPlan, counts: KeyCounts | None = None) -> RenderableType:
    """The whole plan; with the counts also the load of each partition before → after."""
    parts: list[RenderableType] = [_headline(plan), Text()]
    if counts is not None:
        parts += [_partitions(plan, counts), Text()]
    parts.append(_moves(plan) if plan.moves else Text("No key moves."))
    return Group(*parts)


def _headline(plan: KeyPlan) -> Text:
    before, after = plan.before, plan.after
    topics = f" of {', '.join(plan.scope.topics)}" if plan.scope.topics else ""
    gap = f"gap {plan.gap:.1%}" if plan.gap else "no plan can do better"
    load = "all records" if plan.params.get("load") == "total" else "records of hot keys"
    lines = [
        f"Plan {plan_id(plan)} for keys{topics} by {plan.planner}, made for snapshot "
        f"{plan.snapshot}",
        f"  imbalance  {before.imbalance:.4g} → {after.imbalance:.4g} (busiest partition / mean)",
        f"  e_lb       {before.e_lb:.6g} → {after.e_lb:.6g} (distance from the mean, {load})",
        f"  bound      {plan.bound:.4g} ({gap})",
        f"  moves      {plan.cost.moves} with {plan.cost.count} records",
    ]
    text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
    text.stylize("bold", 0, len(lines[0]))
    return text


def _partitions(plan: KeyPlan, counts: KeyCounts) -> Table:
    """The busiest partitions before and after, in their own order if all are shown."""
    before = counts.partition_totals
    after = moved_totals(before, plan.moves)
    mean = sum(before) / len(before) or 1
    shown = sorted(range(len(before)), key=lambda p: (-max(before[p], after[p]), p))[:_MOST_ROWS]
    table = new_table("partition", "records", "of the mean", left=1, title="Partitions")
    for p in sorted(shown):
        table.add_row(
            str(p),
            f"{before[p]} → {after[p]}" if before[p] != after[p] else str(before[p]),
            f"{before[p] / mean:.0%} → {after[p] / mean:.0%}"
            if before[p] != after[p]
            else f"{before[p] / mean:.0%}",
        )
    if len(before) > len(shown):
        table.caption = f"the {len(shown)} busiest of {len(before)}"
    return table


def _moves(plan: KeyPlan) -> Table:
    table = new_table("key", "partition", "records", "why", title="Moves")
    for move in plan.moves[:_MOST_ROWS]:
        table.add_row(
            Text(readable(move.key)),
            f"{move.source} → {move.target}",
            str(move.count),
            key_reason(move),
        )
    if len(plan.moves) > _MOST_ROWS:
        table.caption = f"and {len(plan.moves) - _MOST_ROWS} more (--json has all)"
    return table


_NEEDED = {
    KeyReason.COOL: {"upper", "threshold"},
    KeyReason.PLACE: {"choice_a", "choice_b", "load_a", "load_b"},
    KeyReason.BALANCE: {"load_from", "load_to"},
}


def key_reason(move: KeyMove) -> str:
    """The reason of a move as a sentence, with its numbers."""
    numbers = {name: f"{value:.0f}" for name, value in move.numbers.items()}
    if not _NEEDED[move.reason] <= numbers.keys():  # made by another release
        given = ", ".join(f"{name} {value}" for name, value in numbers.items())
        return f"{move.reason}: {given}" if given else str(move.reason)
    match move.reason:
        case KeyReason.COOL:
            return (
                f"cool: at most {numbers['upper']} records, a hot key has {numbers['threshold']}; "
                "it goes home"
            )
        case KeyReason.PLACE:
            return (
                f"place: of partitions {numbers['choice_a']} with {numbers['load_a']} and "
                f"{numbers['choice_b']} with {numbers['load_b']}, the less loaded"
            )
        case KeyReason.BALANCE:
            source = numbers.get("placed", str(move.source))
            return (
                f"balance: partition {source} had {numbers['load_from']}, {move.target} had "
                f"{numbers['load_to']}"
            )
