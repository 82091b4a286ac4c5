"""`trimtab steer`: weights per broker for producers with `weighted-node`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab.cli.connection import cluster_of
from trimtab.cli.durations import seconds
from trimtab.cli.metrics_options import METRICS_HOST, MetricsHost, MetricsPort, serve_metrics
from trimtab.cli.options import BootstrapServer, CommandConfig, Verbose
from trimtab.cli.output import result, result_json, say, talk
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError
from trimtab.model.codec import Json, weights_to
from trimtab.observe.logging import configure
from trimtab.report.columns import least_width, new_table
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.apply.records.kafka.steering import Step

_LEAST_INTERVAL_S = 0.05
_QUARTER = 0.25
_LEAST_VALID = 5
"""Weights are repeated three times while they hold; some of that is for steps that come late."""


def steer(
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Publish the weights. Without it they are shown; only probes are written.",
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="DURATION",
            parser=seconds,
            show_default="200ms",
            help="Between two looks; each broker is probed twice as often.",
        ),
    ] = 0.2,
    valid: Annotated[
        float,
        typer.Option(
            "--valid",
            metavar="DURATION",
            parser=seconds,
            show_default="10s",
            help="So long producers believe weights that are not repeated; then all are equal.",
        ),
    ] = 10.0,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="DURATION", parser=seconds, help="End after so long. Default: never."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON line for each change, and a last one in all."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Watch how quickly brokers store records, and steer producers away from slow ones.

    Producers with the partitioner weighted-node follow the weights.
    """
    if interval < _LEAST_INTERVAL_S:
        raise ConfigError(
            f"A look every {interval * 1000:g} ms is too much.",
            hint=f"Give --interval {_LEAST_INTERVAL_S * 1000:g}ms or more.",
        )
    if valid < _LEAST_VALID * interval:
        raise ConfigError(
            f"Weights that hold for {valid:g} s would go stale between two looks.",
            hint=f"Give --valid {_LEAST_VALID * interval:g}s or more.",
        )
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    cluster = cluster_of(settings)
    serve_metrics(metrics_port, metrics_host)
    from trimtab.apply.records.kafka.steering import open_steering

    with (
        until_interrupted() as stop,
        _shown(as_json=as_json) as show,
        open_steering(
            cluster,
            interval_s=interval,
            valid_s=valid,
            execute=execute,
            on_step=show,
        ) as steering,
    ):
        if execute:
            say("Steering; Ctrl-C ends it.")
        else:
            say("Only watching: weights are published with --execute. Ctrl-C ends it.")
        report = steering.run(stop, for_s=for_)
    if as_json:
        result_json(asdict(report) | {"weights": _named(report.weights)})
    else:
        result(
            f"{report.steps} looks, {report.changes} changes, {report.published} records published"
        )


def step_json(told: Step) -> Json:
    """A look, as --json shows it: the record that is published, and the reasons."""
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
def _shown(*, as_json: bool) -> Iterator[Callable[[Step], None]]:
    """A table that lives on a terminal; else a line for each change."""
    if not as_json and sys.stdout.isatty():
        with Live(console=talk, auto_refresh=False, transient=True) as live:
            yield lambda told: live.update(_fitting(told, talk), refresh=True)
        return

    shown: dict[int, tuple[float, str]] = {}

    def show(told: Step) -> None:
        if as_json and told.changed:
            result_json(step_json(told))
        elif not as_json and _is_news(told, shown):
            shown.clear()
            shown.update({b: (v.weight, v.why) for b, v in told.verdicts.items()})
            result("  ".join(_words(told)))

    yield show


def _is_news(told: Step, shown: Mapping[int, tuple[float, str]]) -> bool:
    """Whether a person would want to know: on the way up a line for each quarter will do."""
    return told.verdicts.keys() != shown.keys() or any(
        verdict.why != shown[broker][1] or abs(verdict.weight - shown[broker][0]) >= _QUARTER
        for broker, verdict in told.verdicts.items()
    )


def _words(told: Step) -> Iterator[str]:
    for broker, verdict in told.verdicts.items():
        reason = f" ({verdict.reason})" if verdict.weight < 1 else ""
        yield f"{broker}: {verdict.weight:.2f}{reason}"


def _fitting(told: Step, console: Console) -> RenderableType:
    """The table; on a terminal that is too narrow for it a line for each broker.

    What lives on a terminal cannot be wider than that: its lines would be broken anywhere.
    """
    table = steering_view(told)
    if least_width(table, console) <= console.width:
        return table
    return Text("\n".join(_words(told)))


def steering_view(told: Step) -> Table:
    """What was seen of each broker, and its weight; it fits 80 columns with ordinary figures."""
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
