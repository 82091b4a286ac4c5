"""`trimtab steer`: publishes broker weights for producers with `weighted-node`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.options import RunFor, Verbose, duration_option, with_options
from trimtab.cli.output import TerminalProgress, result, result_json, show, talk
from trimtab.cli.signals import until_interrupted
from trimtab.model.codec import Json, weights_to
from trimtab.observe.logging import configure
from trimtab.report.columns import least_width, new_table
from trimtab.services.steer import steer_producers

if TYPE_CHECKING:
    from trimtab.apply.records.kafka.steering import SteeringStep

_QUARTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerOptions:
    """How often brokers are measured, and whether weights are published."""

    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Publish the weights. Without it, only show them; probes are still written.",
        ),
    ] = False
    interval: Annotated[
        float,
        duration_option(
            "--interval",
            shown="200ms",
            help="Time between two updates; each broker is probed twice as often.",
        ),
    ] = 0.2
    valid: Annotated[
        float,
        duration_option(
            "--valid",
            shown="10s",
            help="How long weights are valid without an update; then all brokers are equal.",
        ),
    ] = 10.0
    for_: RunFor = None
    metrics: MetricsOptions
    of: ClusterOptions
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON line for each change, and a summary at the end."),
    ] = False
    verbose: Verbose = False


@with_options
def steer(options: SteerOptions) -> None:
    """Measure how fast brokers store records, and steer producers away from slow ones.

    Producers with the partitioner weighted-node follow the weights.
    """
    configure(verbose=options.verbose)
    cluster = cluster_of(options.of.settings())
    options.metrics.serve()
    with (
        until_interrupted() as stop,
        _shown(as_json=options.as_json) as on_step,
        TerminalProgress() as listener,
    ):
        report = steer_producers(
            cluster,
            execute=options.execute,
            interval_s=options.interval,
            valid_s=options.valid,
            stop=stop,
            for_s=options.for_,
            on_step=on_step,
            listener=listener,
        )
    show(
        asdict(report) | {"weights": _named(report.weights)},
        lambda: (
            f"{report.steps} updates, {report.changes} changes, "
            f"{report.published} records published"
        ),
        as_json=options.as_json,
    )


def step_json(told: SteeringStep) -> Json:
    """One update as --json shows it: the published record and the reasons."""
    return weights_to(told.weights) | {
        "published": told.published,
        "brokers": {
            str(broker): {
                "weight": verdict.weight,
                "why": str(verdict.why),
                "reason": verdict.reason,
                "slowness": verdict.slowness,
                "probe_p90_s": verdict.latency_s,
                "bytes_s": told.seen[broker].bytes_s,
                "records_s": told.seen[broker].records_s,
            }
            for broker, verdict in told.verdicts.items()
        },
    }


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Callable[[SteeringStep], None]]:
    """A live table on a terminal, else a line for each change."""
    if not as_json and sys.stdout.isatty():
        with Live(console=talk, auto_refresh=False, transient=True) as live:
            yield lambda told: live.update(_fitting(told, talk), refresh=True)
        return

    shown: dict[int, tuple[float, str]] = {}

    def on_step(told: SteeringStep) -> None:
        if as_json and told.changed:
            result_json(step_json(told))
        elif not as_json and _is_worth_a_line(told, shown):
            shown.clear()
            shown.update({b: (v.weight, v.why) for b, v in told.verdicts.items()})
            result("  ".join(_as_lines(told)))

    yield on_step


def _is_worth_a_line(told: SteeringStep, shown: Mapping[int, tuple[float, str]]) -> bool:
    """Whether to print an update: while a weight recovers, one line per quarter is enough."""
    return told.verdicts.keys() != shown.keys() or any(
        verdict.why != shown[broker][1] or abs(verdict.weight - shown[broker][0]) >= _QUARTER
        for broker, verdict in told.verdicts.items()
    )


def _as_lines(told: SteeringStep) -> Iterator[str]:
    for broker, verdict in told.verdicts.items():
        reason = f" ({verdict.reason})" if verdict.weight < 1 else ""
        yield f"{broker}: {verdict.weight:.2f}{reason}"


def _fitting(told: SteeringStep, console: Console) -> RenderableType:
    """The table, or a line per broker if the terminal is too narrow for it.

    A live display cannot be wider than the terminal: its lines would be wrapped.
    """
    table = steering_view(told)
    if least_width(table, console) <= console.width:
        return table
    return Text("\n".join(_as_lines(told)))


def steering_view(told: SteeringStep) -> Table:
    """The measurements and weight of each broker; fits 80 columns with ordinary figures."""
    table = new_table(
        *("broker", "weight", "probes\np90", "requests\np50", "leads", "why"),
        show_edge=False,
        pad_edge=False,
    )
    for broker, verdict in told.verdicts.items():
        seen = told.seen[broker]
        asked = sorted(seen.requests_s)
        table.add_row(
            str(broker),
            f"{verdict.weight:.2f}",
            _ms(verdict.latency_s),
            _ms(asked[len(asked) // 2] if asked else None),
            "not measured" if seen.bytes_s is None else f"{seen.bytes_s / 1e6:.2f} MB/s",
            verdict.reason,
        )
    return table


def _ms(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s * 1000:.1f} ms"


def _named(weights: Mapping[int, float]) -> dict[str, float]:
    return {str(broker): weight for broker, weight in weights.items()}
