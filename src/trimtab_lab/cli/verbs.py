"""The verbs that the laboratory adds to the command line: demo, experiment, bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from trimtab.cli.examples import add_examples
from trimtab_lab.cli import bench, demo, experiment
from trimtab_lab.papers.registry import EXPERIMENTS

EXAMPLES: Mapping[str, Sequence[str]] = {
    "demo": (
        "trimtab demo",
        "trimtab demo --duration 1m --rate 5000 --keep -o ./demo",
    ),
    **{f"experiment {one.name}": one.examples for one in EXPERIMENTS.values()},
    "experiment keyed-faults": (
        "trimtab experiment keyed-faults --minutes 10 --seed 3 --mode group",
        "trimtab experiment keyed-faults --variant no-left --manner low-latency",
    ),
    "bench": (
        "trimtab bench",
        "trimtab bench rates --runs 5 --json",
    ),
}


def add_verbs(app: typer.Typer) -> None:
    """Registers the verbs; called through the entry point of the package."""
    app.command(
        "demo",
        rich_help_panel="Try",
        short_help="The whole loop on a local cluster, and one HTML report.",
    )(demo.demo)
    app.add_typer(
        experiment.app,
        name="experiment",
        rich_help_panel="Try",
        short_help="Reproduce the papers' tables and figures.",
    )
    app.command(
        "bench",
        rich_help_panel="Try",
        short_help="Compare Trimtab's speed with direct library calls.",
    )(bench.bench)
    add_examples(app, EXAMPLES)
