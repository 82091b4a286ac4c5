"""`trimtab plan`: decides what should move, and says why; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.options import (
    AsJson,
    LoadsMaxAge,
    LoadsStep,
    LoadsUnit,
    Output,
    ReportFile,
    SomeTopics,
    capacity_option,
    group_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, warn, write_report
from trimtab.cli.plan_keys import keys_plan
from trimtab.cli.planner_options import (
    PlannerChoices,
    PlannerName,
    configured_planners,
)
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import read_loads
from trimtab.model.json_files import write_plan
from trimtab.model.load import Loads, Measurement
from trimtab.model.plan_codec import plan_to
from trimtab.services.plan import PlanRequest, plan_group

app = typer.Typer(
    name="plan",
    help="Decide what should move, with reasons, forecast and bound; changes nothing.",
    no_args_is_help=True,
)


@app.callback()
def _plan() -> None:
    """Decide what should move, with reasons, forecast and bound; changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The loads, the group and the planner, and where the plan goes."""

    loads: Annotated[
        Path,
        typer.Option(
            "--loads", metavar="FILE", help="A loads file, or what `trimtab measure -o` wrote."
        ),
    ]
    planner: PlannerName = "trim"
    group: Annotated[
        str | None,
        group_option(
            " With a measurement, or with --bootstrap-server, its present assignment is read from "
            "the cluster."
        ),
    ] = None
    topic: SomeTopics = None
    capacity: Annotated[
        float | None,
        capacity_option(
            "Capacity of one consumer, in --unit. Default: that of the loads file; with a "
            "measurement and --group, 5/6 of the rate that consumers with a backlog committed."
        ),
    ] = None
    unit: LoadsUnit = None
    dead: Annotated[
        list[int] | None,
        typer.Option(
            "--dead",
            metavar="N",
            min=0,
            help="A consumer that has failed: its partitions go to others. May be repeated.",
        ),
    ] = None
    step: LoadsStep = None
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Do not warn of rates with gaps or from too short a span."
        ),
    ] = False
    max_age: LoadsMaxAge = None
    packing: PlannerChoices
    of: ClusterOptions
    output: Output = None
    report: ReportFile = None
    as_json: AsJson = False


@app.command(name="consumers")
@with_options
def consumers_plan(options: PlanOptions) -> None:
    """Plan which consumer reads which partition.

    Prints each consumer before → after, and every move with its reason. The present assignment
    comes from the loads file, or from the live group; without either, all partitions are new.
    """
    (planner,), context = configured_planners([options.planner], options.packing)
    loads, warnings = read_loads(options.loads)
    warn(warnings)
    request = PlanRequest(
        loads=loads,
        origin=str(options.loads),
        planner=planner,
        context=context,
        group=options.group,
        topics=frozenset(options.topic) if options.topic else None,
        capacity=options.capacity,
        unit=options.unit,
        step=options.step,
        dead=frozenset(options.dead or ()),
        allow_incomplete=options.allow_incomplete,
        max_age_s=options.max_age,
    )
    found = plan_group(request, _cluster(options, loads), listener=TerminalProgress())
    if options.output is not None:
        write_plan(found.plan, options.output)
    if options.report is not None:
        from trimtab.report.plan_page import plan_page

        write_report(options.report, plan_page(found.plan, found.loads))
    if options.as_json:
        result_json(plan_to(found.plan))
    else:
        from trimtab.report.plans import plan_view

        result(plan_view(found.plan, found.loads))


app.command(name="keys")(keys_plan)


def _cluster(options: PlanOptions, loads: Loads | Measurement) -> Cluster | None:
    """The cluster of the group, if that is asked: a loads file has an assignment of its own."""
    asked = isinstance(loads, Measurement) or options.of.bootstrap_server is not None
    return cluster_of(options.of.settings()) if asked and options.group is not None else None
