"""`trimtab evaluate plan`: compares a plan's forecast with the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.apply import read_named_plan
from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.options import AsJson, Output, Verbose, with_options
from trimtab.cli.output import say, show, warn
from trimtab.errors import ConfigError
from trimtab.evaluate.forecast import forecast_check_to
from trimtab.model.codec import read_loads
from trimtab.model.journal import PlanState
from trimtab.model.load import Measurement
from trimtab.observe.logging import configure
from trimtab.services.evaluate_plan import PlanOutcome, evaluate_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatePlanOptions:
    """The plan, and what it is compared with."""

    plan_file: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="A plan file, or the id of a plan stored in the cluster."
        ),
    ]
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="A measurement of the time after the plan. Default: the newest published rates.",
        ),
    ] = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def plan(options: EvaluatePlanOptions) -> None:
    """Compare a plan's forecast with the group as it is now.

    Compares the number of consumers and their highest load; the error is observed minus forecast.
    """
    from trimtab.report.plans import forecast_view

    configure(verbose=options.verbose)
    cluster = cluster_of(options.of.settings())
    given = read_named_plan(options.plan_file, cluster)
    found = evaluate_plan(given, cluster, _measured(options.loads))
    show(
        forecast_check_to(found.check),
        lambda: forecast_view(found.check, found.unit),
        as_json=options.as_json,
        output=options.output,
        indent=2,
    )
    if not options.as_json:
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
    """Warns if the state of the group may have other reasons than the plan."""
    entry = found.journal
    if entry is None:
        say("This plan was never carried out; the group may look like this for other reasons.")
    elif entry.state is not PlanState.DONE:
        say(f"The plan is {entry.state}: {entry.step} of {entry.of} moves were done.")
