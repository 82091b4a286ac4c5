"""`trimtab apply`: shows a plan, and refuses one that is damaged or no longer for this world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.apply.freshness import check_fresh
from trimtab.cli.connection import local_cluster_runs
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig
from trimtab.cli.output import result, result_json, say, warn
from trimtab.cli.plan import ask_group
from trimtab.errors import ConfigError
from trimtab.measure.group_state import GroupState
from trimtab.model.codec import VERSION, plan_to, read_loads, read_plan
from trimtab.model.load import Measurement
from trimtab.model.plan import Plan
from trimtab.plan.consumers.situation import situation_of_file
from trimtab.settings import load_settings


def apply(
    plan_file: Annotated[
        Path, typer.Argument(metavar="PLAN", help="What `trimtab plan … -o` wrote.")
    ],
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Carry the plan out. Comes with a later release."),
    ] = False,
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="Compare with the partitions and the assignment of this loads file, "
            "instead of the live group.",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=0, help="Which step of a file with several, from 0."
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a plan, and check that it still fits the world it was made for.

    The world is the loads file given by --loads, or the live group where a bootstrap server is
    set. A plan made for another partition count or assignment is refused with exit code 5.
    """
    if execute:
        raise ConfigError(
            "--execute comes with a later release; nothing was done.",
            hint="Leave it out to look at the plan.",
        )
    plan, warnings = read_plan(plan_file)
    warn(warnings)
    if not as_json:
        from trimtab.report.tables import plan_view

        result(plan_view(plan))
    now = (
        _of_file(plan, loads, step)
        if loads is not None
        else _of_cluster(plan, bootstrap_server, command_config)
    )
    if now is not None:
        check_fresh(plan, now.partitions, now.assignment)
    fresh = None if now is None else True
    if as_json:
        result_json({"v": VERSION, "plan": plan_to(plan), "fresh": fresh})
    elif fresh:
        say("The plan is fresh: partitions and owners are as it found them.")
    else:
        say(
            "Whether the plan is still fresh was not checked: that needs its group and "
            "a cluster (--bootstrap-server, or a running local one), or --loads."
        )


def _of_file(plan: Plan, path: Path, step: int | None) -> GroupState:
    found, warnings = read_loads(path)
    warn(warnings)
    if isinstance(found, Measurement):
        raise ConfigError(
            f"{path} is a measurement, which does not say who reads what.",
            hint="Give a loads file, or --bootstrap-server.",
        )
    topics = frozenset(plan.scope.topics)
    situation = situation_of_file(found, origin=str(path), step=step)
    return GroupState(frozenset(p for p in situation.loads if p.topic in topics), situation.current)


def _of_cluster(
    plan: Plan, bootstrap_server: str | None, command_config: Path | None
) -> GroupState | None:
    if plan.scope.group is None:
        return None
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    named = settings.bootstrap_server is not None or settings.command_config is not None
    if not named and not local_cluster_runs(settings):
        return None
    return ask_group(settings, plan.scope.group, frozenset(plan.scope.topics))
