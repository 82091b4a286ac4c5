"""Options of planners, shared by the verbs that run them; one that no planner reads is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from trimtab.cli.durations import seconds
from trimtab.cli.numbers import finite
from trimtab.errors import ConfigError
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    FirstBin,
    Keeps,
    PackingOptions,
    PackingPlanner,
    SortOrder,
    never,
)
from trimtab.plan.registry import PLANNERS, planner_of

_WORDS = {"members": "consumers", "sla_s": "sla", "time_limit_s": "time-limit"}
_CONDITIONS = frozenset({"seed", "order", "nf_first_bin"})

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
Sla = Annotated[
    float | None,
    typer.Option(
        "--sla",
        metavar="DURATION",
        parser=seconds,
        help="How long a record may wait, for ll-ffd. Default: as the file says.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="DURATION",
        parser=seconds,
        help="After that long exact and trim give the best plan found so far.",
    ),
]


def chosen_planners(names: Sequence[str]) -> list[PackingPlanner]:
    """The planners of these names, each once."""
    return [planner_of(Layer.CONSUMERS, name) for name in dict.fromkeys(names)]


def asked_options(planners: Sequence[PackingPlanner], **given: Any) -> PackingOptions:
    """What was asked for; an option that none of the planners reads is a mistake.

    The conditions of a comparison are no mistake: they hold for planners, too, that leave nothing
    to chance.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    read = frozenset[str]().union(*(planner.reads for planner in planners))
    for name in asked:
        if name not in read | _CONDITIONS:
            readers = [p.name for p in PLANNERS[Layer.CONSUMERS].values() if name in p.reads]
            option = _WORDS.get(name, name).replace("_", "-")
            raise ConfigError(
                f"--{option} is not supported by {', '.join(p.name for p in planners)}.",
                hint=f"It is for {', '.join(sorted(readers))}." if readers else None,
            )
    return PackingOptions(**asked)


def over_after(time_limit: float | None) -> Callable[[], bool]:
    """Whether so much time has passed since now."""
    if time_limit is None:
        return never
    end = time.monotonic() + time_limit
    return lambda: time.monotonic() >= end
