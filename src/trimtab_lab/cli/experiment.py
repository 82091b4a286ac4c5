"""`trimtab experiment`: a verb for every experiment of the registry."""

from __future__ import annotations

import typer

from trimtab_lab.cli.experiment_faults import keyed_faults
from trimtab_lab.papers.registry import EXPERIMENTS, loaded

app = typer.Typer(
    name="experiment",
    help="Reproduce the papers' tables and figures, and go beyond them.",
    no_args_is_help=True,
)


@app.callback()
def _experiment() -> None:
    """Reproduce the papers' tables and figures, and go beyond them.

    The result of every run is kept under TRIMTAB_HOME/experiments until the code it depends on
    changes, so an interrupted experiment continues where it stopped.
    """


for _one in EXPERIMENTS.values():
    app.command(_one.name, short_help=_one.summary)(loaded(_one.verb))
app.command("keyed-faults", short_help="Faults on keyed consumers while keys migrate.")(
    keyed_faults
)
