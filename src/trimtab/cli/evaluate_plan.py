"""`trimtab evaluate plan`: what a plan promised beside what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.apply import read_named_plan
from trimtab.cli.connection import cluster_of
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output
from trimtab.cli.output import result, result_json, say, warn, write_file
from trimtab.errors import ConfigError
from trimtab.evaluate.forecast import forecast_check_to
from trimtab.model.codec import dumps, read_loads
from trimtab.model.journal import PlanState
from trimtab.model.load import Measurement
from trimtab.services.evaluate_plan import PlanOutcome, evaluate_plan
from trimtab.settings import load_settings


def plan(
    plan_file: Annotated[
        str,
        typer.Argument(metavar="PLAN", help="A plan file, or the id of a plan the cluster keeps."),
    ],
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="A measurement of the time after the plan. Default: the newest published rates.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compare a plan's forecast with the group as it is now.

    Both count consumers and the highest load of one; the error is how much more was found.
    """
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    cluster = cluster_of(settings)
    found = evaluate_plan(read_named_plan(plan_file, cluster), cluster, _measured(loads))
    document = forecast_check_to(found.check)
    if output is not None:
        write_file(output, dumps(document, indent=2) + "\n")
    if as_json:
        result_json(document)
        return
    from trimtab.report.plans import forecast_view

    result(forecast_view(found.check, found.unit))
    _remark(found)


def _measured(path: Path | None) -> Measurement | None:
    if path is None:
        return None
    found, warnings = read_loads(path)
    warn(warnings)
    if not isinstance(found, Measurement):
        raise ConfigError(f"{path} is a loads file, not a measurement.")
    return found


def _remark(found: PlanOutcome) -> None:
    """Says when the group may look so for other reasons than the plan."""
    entry = found.journal
    if entry is None:
        say(
            "Nobody asked for this plan to be carried out; the group may look so for other reasons."
        )
    elif entry.state is not PlanState.DONE:
        say(f"The plan is {entry.state}: {entry.step} of {entry.of} moves were done.")
