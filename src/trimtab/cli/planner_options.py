"""Options of planners, shared by the verbs that run them; one that no planner reads is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import typer

from trimtab.cli.numbers import finite
from trimtab.cli.options import duration_option
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import FirstBin, SortOrder
from trimtab.plan.consumers.baselines import KedaOptions, KeptPartitions
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner
from trimtab.plan.registry import PLANNERS, configured, option_text, planner_of

_NAMES = {"consumers": "members", "sla": "sla_s", "time_limit": "time_limit_s"}
"""Options that planners know by another name."""
_CONDITIONS = frozenset({"seed", "order", "nf_first_bin"})


def planner_option(more: str = "") -> Any:
    """`--planner`, with the names of all planners for consumers."""
    names = ", ".join(sorted(PLANNERS[Layer.CONSUMERS]))
    return typer.Option("--planner", metavar="NAME", help=f"The planner: {names}.{more}")


def sla_option(more: str = "", *, shown: str | None = None) -> Any:
    """`--sla`, the longest acceptable wait of a record."""
    return duration_option("--sla", help=f"Longest acceptable wait of a record{more}.", shown=shown)


def time_limit_option(more: str = "") -> Any:
    """`--time-limit`, for planners that search."""
    return duration_option(
        "--time-limit",
        help=f"{option_text('time_limit_s')}{more}",
    )


PlannerName = Annotated[str, planner_option()]
PlannerNames = Annotated[list[str], planner_option(" May be repeated, for a comparison.")]

Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of all random choices.", min=0)
]
InOrder = Annotated[
    SortOrder,
    typer.Option(
        "--order",
        help=option_text("order"),
    ),
]
NfFirstBin = Annotated[
    FirstBin,
    typer.Option(
        "--nf-first-bin",
        help=option_text("nf_first_bin"),
    ),
]
Consumers = Annotated[
    int | None,
    typer.Option(
        "--consumers",
        metavar="N",
        min=1,
        help="Number of consumers, for planners that do not choose it.",
    ),
]
StickyKeeps = Annotated[
    KeptPartitions | None,
    typer.Option("--sticky-keeps", help=option_text("sticky_keeps")),
]
Slack = Annotated[
    float | None,
    typer.Option(
        "--slack",
        metavar="X",
        min=0,
        callback=finite,
        help=f"{option_text('slack')} Default: 0.",
    ),
]
MaxMoves = Annotated[
    int | None,
    typer.Option(
        "--max-moves",
        metavar="N",
        min=0,
        help=option_text("max_moves"),
    ),
]
MaxMovedLoad = Annotated[
    float | None,
    typer.Option(
        "--max-moved-load",
        metavar="X",
        min=0,
        callback=finite,
        help=option_text("max_moved_load"),
    ),
]
LagThreshold = Annotated[
    int | None,
    typer.Option(
        "--lag-threshold",
        metavar="N",
        min=1,
        help=f"{option_text('lag_threshold')} Default: {KedaOptions().lag_threshold}.",
    ),
]
Sla = Annotated[float | None, sla_option(", for ll-ffd. Default: that of the file")]
TimeLimit = Annotated[float | None, time_limit_option()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """Limits of a plan, for all verbs that plan."""

    slack: Slack = None
    max_moves: MaxMoves = None
    max_moved_load: MaxMovedLoad = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TieBreaks:
    """How planners choose between equally good placements."""

    seed: Seed = 0
    order: InOrder = SortOrder.CANONICAL
    nf_first_bin: NfFirstBin = FirstBin.STICKY


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerChoices:
    """The options that planners read, for one plan."""

    consumers: Consumers = None
    moves: MoveLimits
    time_limit: TimeLimit = None
    sla: Sla = None
    lag_threshold: LagThreshold = None
    sticky_keeps: StickyKeeps = None
    ties: TieBreaks


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingConditions:
    """The options that planners read, for simulations of all kinds."""

    ties: TieBreaks
    consumers: Consumers = None
    sticky_keeps: StickyKeeps = None
    moves: MoveLimits


def configured_planners(
    names: Sequence[str], *groups: Any, **more: Any
) -> tuple[list[PackingPlanner], PackingContext]:
    """The planners of these names, each once, with the options given, single or in groups.

    An option that none of the planners reads is refused. The conditions of a comparison are not:
    they are the same for all planners, also for those that leave nothing to chance.
    """
    planners = [planner_of(Layer.CONSUMERS, name) for name in dict.fromkeys(names)]
    every = [pair for group in groups for pair in _options_of(group)] + list(more.items())
    given = {_NAMES.get(name, name): value for name, value in every if value is not None}
    return configured(planners, given, optional=_CONDITIONS, spelled=_flag)


def _flag(name: str) -> str:
    """An option of a planner as users type it."""
    typed = {known_as: typed for typed, known_as in _NAMES.items()}
    return f"--{typed.get(name, name).replace('_', '-')}"


def _options_of(group: Any) -> Iterator[tuple[str, Any]]:
    """The options of a group, and of the groups in it, by name."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from _options_of(value)
        else:
            yield field.name, value
