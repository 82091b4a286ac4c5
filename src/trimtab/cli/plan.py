"""`trimtab plan`: decides what should move, and says why; changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.connection import cluster_of
from trimtab.cli.durations import seconds
from trimtab.cli.numbers import positive
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output
from trimtab.cli.output import result, result_json, say, warn
from trimtab.cli.planner_options import (
    Consumers,
    InOrder,
    LagThreshold,
    MaxMovedLoad,
    MaxMoves,
    NfFirstBin,
    Seed,
    Sla,
    Slack,
    StickyKeeps,
    TimeLimit,
    asked_options,
    chosen_planners,
    over_after,
)
from trimtab.errors import ConfigError
from trimtab.measure.group_state import GroupSnapshot
from trimtab.model.codec import read_loads
from trimtab.model.load import Loads, Measurement, Unit
from trimtab.model.plan import Layer
from trimtab.model.plan_codec import plan_to
from trimtab.model.writing import write_plan
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import FirstBin, SortOrder
from trimtab.plan.consumers.situation import (
    Situation,
    cautions,
    check_lags,
    in_group,
    situation_of_file,
    situation_of_measurement,
)
from trimtab.plan.registry import PLANNERS
from trimtab.services.groups import present_group
from trimtab.settings import load_settings

app = typer.Typer(
    name="plan",
    help="Decide what should move, with reasons, forecast and bound; changes nothing.",
    no_args_is_help=True,
)


@app.callback()
def _plan() -> None:
    """Decide what should move, with reasons, forecast and bound; changes nothing."""


@app.command(name="consumers")
def consumers_plan(
    loads: Annotated[
        Path,
        typer.Option(
            "--loads", metavar="FILE", help="A loads file, or what `trimtab measure -o` wrote."
        ),
    ],
    planner: Annotated[
        str,
        typer.Option(
            "--planner",
            metavar="NAME",
            help=f"Who decides: {', '.join(sorted(PLANNERS[Layer.CONSUMERS]))}.",
        ),
    ] = "trim",
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="G",
            help="The consumer group. With a measurement, or with --bootstrap-server, its present "
            "assignment is asked of the cluster.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="Only this topic; may be repeated."),
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity",
            metavar="N",
            callback=positive,
            help="What one consumer carries, in --unit. Default: as the loads file says; with a "
            "measurement and --group 5/6 of what consumers with a backlog committed.",
        ),
    ] = None,
    unit: Annotated[
        Unit | None,
        typer.Option(
            "--unit", help="What loads are counted in. Default: the file's, else bytes/s."
        ),
    ] = None,
    dead: Annotated[
        list[int] | None,
        typer.Option(
            "--dead",
            metavar="N",
            min=0,
            help="A consumer that is gone: its partitions need a new one. May be repeated.",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=0, help="Which step of a file with several, from 0."
        ),
    ] = None,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Do not warn of rates with a gap or over too short a span."
        ),
    ] = False,
    max_age: Annotated[
        float,
        typer.Option(
            "--max-age",
            metavar="DURATION",
            parser=seconds,
            show_default="15m",
            help="Warn when a measurement ended longer ago than this.",
        ),
    ] = 900.0,
    consumers: Consumers = None,
    slack: Slack = None,
    max_moves: MaxMoves = None,
    max_moved_load: MaxMovedLoad = None,
    time_limit: TimeLimit = None,
    sla: Sla = None,
    lag_threshold: LagThreshold = None,
    sticky_keeps: StickyKeeps = None,
    seed: Seed = 0,
    order: InOrder = SortOrder.CANONICAL,
    nf_first_bin: NfFirstBin = FirstBin.STICKY,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Plan which consumer reads which partition.

    Prints each consumer before → after, and every move with its reason. The present assignment
    comes from the loads file, or from the live group; without either, all partitions are new.
    """
    (decides,) = chosen_planners([planner])
    options = asked_options(
        [decides],
        seed=seed,
        order=order,
        nf_first_bin=nf_first_bin,
        members=consumers,
        sticky_keeps=sticky_keeps,
        slack=slack,
        max_moves=max_moves,
        max_moved_load=max_moved_load,
        sla_s=sla,
        lag_threshold=lag_threshold,
        time_limit_s=time_limit,
    )
    found, warnings = read_loads(loads)
    warn(warnings)
    topics, live = frozenset(topic) if topic else None, None
    if group is not None and (isinstance(found, Measurement) or bootstrap_server is not None):
        settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
        live = present_group(cluster_of(settings), group, topics)
        topics = _topics(live, group, topics)
        warn(_about_cluster(found, live, origin=loads))
    if isinstance(found, Loads):
        situation = situation_of_file(
            found, origin=str(loads), step=step, topics=topics, capacity=capacity, unit=unit
        )
    elif step is not None:
        raise ConfigError(f"{loads} is a measurement, it has no steps.")
    else:
        situation = situation_of_measurement(
            found,
            topics=topics,
            capacity=capacity,
            unit=unit,
            group=group,
            live=live,
        )
    if live is not None:
        situation = in_group(situation, live)
    _remark(situation)
    now_ts = time.time_ns() // 1000
    warn(
        cautions(
            situation,
            found if isinstance(found, Measurement) else None,
            now_ts=now_ts,
            max_age_s=max_age,
            incomplete=not allow_incomplete,
        )
    )
    check_lags(situation, decides)
    if options.sla_s is None and situation.limits.unit is Unit.RECORDS_S:
        options = replace(options, sla_s=situation.sla_s)
    gone = frozenset(dead or ())
    idle = sorted(gone - frozenset(situation.current.consumers))
    warn(f"--dead {consumer}: that consumer reads nothing" for consumer in idle)
    plan = plan_consumers(
        situation.loads,
        situation.current,
        situation.limits,
        planner=planner,
        made_ts=now_ts,
        group=group,
        dead=gone,
        options=replace(options, lags=situation.lags, expired=over_after(time_limit)),
    )
    if live is not None:
        plan = replace(plan, members=live.members)
    if output is not None:
        write_plan(plan, output)
    if as_json:
        result_json(plan_to(plan))
    else:
        from trimtab.report.plans import plan_view

        result(plan_view(plan, situation.loads))


def _remark(situation: Situation) -> None:
    """Says what the plan takes for granted."""
    if situation.remark is not None:
        say(situation.remark)
    if situation.loads and not situation.current:
        say("Nobody reads anything yet: every partition is planned as a new one.")


def _about_cluster(
    found: Loads | Measurement, live: GroupSnapshot, *, origin: Path
) -> Iterator[str]:
    """A word about loads that were measured on another cluster than that of the group."""
    measured_on = found.cluster if isinstance(found, Measurement) else None
    if None not in (measured_on, live.cluster) and measured_on != live.cluster:
        yield f"{origin} was measured on cluster {measured_on}, not on {live.cluster}"


def _topics(live: GroupSnapshot, group: str, asked: frozenset[str] | None) -> frozenset[str]:
    """The topics to plan for, of those that exist."""
    there = frozenset(p.topic for p in live.partitions)
    if asked is None and not there:
        raise ConfigError(
            f'Group "{group}" reads no topic and has no offsets.',
            hint="Check its name, or say with --topic what it shall read.",
        )
    for topic in sorted((asked or frozenset()) - there):
        raise ConfigError(f'The cluster has no topic "{topic}".')
    return there
