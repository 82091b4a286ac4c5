"""Options of planners, shared by the verbs that run them; one that no planner reads is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import typer

from trimtab.cli.numbers import finite
from trimtab.cli.options import duration_option
from trimtab.errors import ConfigError
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    FirstBin,
    Keeps,
    PackingOptions,
    PackingPlanner,
    SortOrder,
)
from trimtab.plan.registry import PLANNERS, planner_of

_NAMES = {"consumers": "members", "sla": "sla_s", "time_limit": "time_limit_s"}
"""Options that planners know by another name."""
_CONDITIONS = frozenset({"seed", "order", "nf_first_bin"})


def planner_option(more: str = "") -> Any:
    """`--planner`, with the names of all planners for consumers."""
    names = ", ".join(sorted(PLANNERS[Layer.CONSUMERS]))
    return typer.Option("--planner", metavar="NAME", help=f"Who decides: {names}.{more}")


def sla_option(more: str = "", *, shown: str | None = None) -> Any:
    """`--sla`, what a planner or a group is held to."""
    return duration_option("--sla", help=f"How long a record may wait{more}.", shown=shown)


def time_limit_option(more: str = "") -> Any:
    """`--time-limit`, for planners that search."""
    return duration_option(
        "--time-limit",
        help=f"After that long exact and trim give the best plan found so far.{more}",
    )


PlannerName = Annotated[str, planner_option()]
PlannerNames = Annotated[list[str], planner_option(" May be repeated, for a comparison.")]

Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Of every choice left to chance.", min=0)
]
InOrder = Annotated[
    SortOrder,
    typer.Option(
        "--order",
        help="In which order nf, ff, bf and wf take partitions; shuffle: anew at every step.",
    ),
]
NfFirstBin = Annotated[
    FirstBin,
    typer.Option(
        "--nf-first-bin",
        help="Where nf and nfd begin: with the consumer that the first partition was on, or 0.",
    ),
]
Consumers = Annotated[
    int | None,
    typer.Option(
        "--consumers",
        metavar="N",
        min=1,
        help="How many consumers there are, for planners that do not choose their number.",
    ),
]
StickyKeeps = Annotated[
    Keeps | None,
    typer.Option("--sticky-keeps", help="Which partitions kafka-sticky and keda-lag leave."),
]
Slack = Annotated[
    float | None,
    typer.Option(
        "--slack",
        metavar="X",
        min=0,
        callback=finite,
        help="Part of the consumers that trim may use above what bfd needs. Default: 0.",
    ),
]
MaxMoves = Annotated[
    int | None,
    typer.Option(
        "--max-moves",
        metavar="N",
        min=0,
        help="No more partitions than that change their consumer, in one plan.",
    ),
]
MaxMovedLoad = Annotated[
    float | None,
    typer.Option(
        "--max-moved-load",
        metavar="X",
        min=0,
        callback=finite,
        help="No more load than that changes its consumer, in one plan.",
    ),
]
LagThreshold = Annotated[
    int | None,
    typer.Option(
        "--lag-threshold",
        metavar="N",
        min=1,
        help="Lag per consumer that keda-lag aims at: records, in a replay what --unit counts. "
        f"Default: {DEFAULTS.lag_threshold}.",
    ),
]
Sla = Annotated[float | None, sla_option(", for ll-ffd. Default: as the file says")]
TimeLimit = Annotated[float | None, time_limit_option()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """How far a plan may go: shared by all verbs that plan."""

    slack: Slack = None
    max_moves: MaxMoves = None
    max_moved_load: MaxMovedLoad = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TieBreaks:
    """How planners choose between what is equally good."""

    seed: Seed = 0
    order: InOrder = SortOrder.CANONICAL
    nf_first_bin: NfFirstBin = FirstBin.STICKY


def chosen_planners(names: Sequence[str]) -> list[PackingPlanner]:
    """The planners of these names, each once."""
    return [planner_of(Layer.CONSUMERS, name) for name in dict.fromkeys(names)]


def packing_options(
    planners: Sequence[PackingPlanner], *groups: Any, **more: Any
) -> PackingOptions:
    """The options given, single or in groups; one that none of the planners reads is refused.

    The conditions of a comparison are never refused: they are the same for all planners, also for
    those that leave nothing to chance.
    """
    every = [pair for group in groups for pair in _options_of(group)] + list(more.items())
    given = {name: value for name, value in every if value is not None}
    read = frozenset[str]().union(*(planner.reads for planner in planners)) | _CONDITIONS
    for name in given:
        known_as = _NAMES.get(name, name)
        if known_as not in read:
            readers = [p.name for p in PLANNERS[Layer.CONSUMERS].values() if known_as in p.reads]
            raise ConfigError(
                f"--{name.replace('_', '-')} is not supported by "
                f"{', '.join(p.name for p in planners)}.",
                hint=f"It is for {', '.join(sorted(readers))}." if readers else None,
            )
    return PackingOptions(**{_NAMES.get(name, name): value for name, value in given.items()})


def _options_of(group: Any) -> Iterator[tuple[str, Any]]:
    """The options of a group, and of the groups in it, by name."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from _options_of(value)
        else:
            yield field.name, value
