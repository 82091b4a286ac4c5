"""`trimtab snapshot`: the cluster at this moment, as a table or as a snapshot file."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trimtab.cli.connection import admin_of
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output, Verbose
from trimtab.cli.output import result, result_json, write_file
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps, snapshot_to
from trimtab.observe.logging import configure
from trimtab.settings import load_settings


def snapshot(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="T",
            help="Only this topic; may be repeated. Default: all but Kafka's own and Trimtab's.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show brokers, leaders, replicas, log sizes and consumer groups as they are right now.

    The JSON is a snapshot file, which the verbs that look at brokers read.
    """
    from trimtab.kafka.snapshot import take_snapshot
    from trimtab.report.snapshot import snapshot_view

    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    with admin_of(settings) as admin:
        taken = take_snapshot(
            admin,
            topics=topic or None,
            clock=lambda: time.time_ns() // 1000,
            own_prefix=settings.topic_prefix,
        )
    for name in sorted(set(topic or ()) - set(taken.topics)):
        raise ConfigError(f'The cluster has no topic "{name}".')
    value = snapshot_to(taken)
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    if as_json:
        result_json(value)
    else:
        result(snapshot_view(taken))
