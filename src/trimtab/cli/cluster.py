"""`trimtab cluster`: a real Kafka cluster on this machine for tests and failure experiments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import AsJson, with_options
from trimtab.cli.output import TerminalProgress, result, result_json, say
from trimtab.errors import ConfigError
from trimtab.services.cluster import (
    BrokerAction,
    LocalClusterConfig,
    bring_up,
    change_broker,
    status_of,
    take_down,
)
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.local.cluster import ClusterStatus, SaslUser

app = typer.Typer(
    name="cluster",
    help="A real Kafka cluster on this machine: start it, fail its brokers, remove it.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Name of the local cluster; several can run at the same time.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The size of a new cluster, and its SASL user."""

    brokers: Annotated[int, typer.Option("--brokers", metavar="N", help="Number of brokers.")] = 3
    racks: Annotated[
        int,
        typer.Option(
            "--racks", metavar="N", help="Number of racks (a, b, c, …) to spread the brokers over."
        ),
    ] = 3
    name: Name = "default"
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="An additional Kafka property for every node; may be repeated.",
        ),
    ] = None
    sasl_user: Annotated[
        str | None,
        typer.Option(
            "--sasl-user",
            metavar="USER",
            help="Add a SASL listener (PLAIN, SCRAM-SHA-256) with this user.",
        ),
    ] = None
    sasl_password: Annotated[
        str | None,
        typer.Option(
            "--sasl-password",
            metavar="PASSWORD",
            envvar="TRIMTAB_SASL_PASSWORD",
            help="The password of --sasl-user. Others can read a command line; better set the "
            "variable.",
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """One broker of a local cluster."""

    broker: Annotated[int, typer.Argument(metavar="N", help="The broker's id, from 1.")]
    name: Name = "default"
    as_json: AsJson = False

    def show_after(self, action: BrokerAction) -> None:
        """Applies an action to the broker, then shows the cluster."""
        status = change_broker(_config(self.name), self.broker, action, TerminalProgress())
        _show(status, as_json=self.as_json)


@app.command()
@with_options
def up(context: typer.Context, options: UpOptions) -> None:
    """Start a cluster; a cluster that already runs is not changed.

    One KRaft controller and N brokers start on free ports of 127.0.0.1. The
    first time, their jars (40 MB) are downloaded into the user's cache folder.
    After a crash or a reboot the cluster starts again with its data, and a
    dead broker of a running cluster is restarted.
    """
    config = replace(
        _config(options.name),
        brokers=options.brokers,
        racks=options.racks,
        properties=_properties(options.property_ or []),
        sasl=_sasl_user(context, options),
    )
    status_now, logs = bring_up(config, TerminalProgress())
    _show(status_now, as_json=options.as_json)
    if not options.as_json:
        say(f"Logs: {logs}")
        say(f"Use it with --bootstrap-server {status_now.bootstrap_servers}")


@app.command()
def status(name: Name = "default", as_json: AsJson = False) -> None:
    """Show each broker: running, paused, dead, or absent after a stop."""
    _show(status_of(_config(name)), as_json=as_json)


@app.command()
@with_options
def kill(options: BrokerOptions) -> None:
    """Kill broker N at once, like `kill -9`; its data is kept."""
    options.show_after(BrokerAction.KILL)


@app.command()
@with_options
def pause(options: BrokerOptions) -> None:
    """Pause broker N: it keeps its connections but does not respond."""
    options.show_after(BrokerAction.PAUSE)


@app.command()
@with_options
def resume(options: BrokerOptions) -> None:
    """Resume the paused broker N."""
    options.show_after(BrokerAction.RESUME)


@app.command()
@with_options
def start(options: BrokerOptions) -> None:
    """Start the dead broker N with its data; wait until it has joined."""
    options.show_after(BrokerAction.START)


@app.command()
def down(
    name: Name = "default",
    keep_data: Annotated[
        bool,
        typer.Option(
            "--keep-data", help="Shut down cleanly and keep the topics for the next start."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a cluster, remove its data and logs; no error if none runs."""
    left, removed = take_down(_config(name), keep_data=keep_data, listener=TerminalProgress())
    if removed and not as_json:
        result(f'Cluster "{name}" is down; its data and logs are removed.')
    else:
        _show(left, as_json=as_json)


def _config(name: str) -> LocalClusterConfig:
    settings = load_settings()
    return LocalClusterConfig(name=name, home=settings.home, cache=settings.cache)


def _sasl_user(context: typer.Context, options: UpOptions) -> SaslUser | None:
    from trimtab.local.cluster import SaslUser

    source = context.get_parameter_source("sasl_password")
    given = (
        source is not None and source.name == "COMMANDLINE"
    )  # the environment variable may be set without --sasl-user
    user, password = options.sasl_user, options.sasl_password
    if (given and user is None) or (user is not None and password is None):
        raise ConfigError(
            "--sasl-user and --sasl-password must be given together.",
            hint="The password can also be set in TRIMTAB_SASL_PASSWORD.",
        )
    return SaslUser(user, password) if user and password else None


def _properties(given: list[str]) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in given]
    for key, equals, _ in pairs:
        if not equals:
            raise ConfigError(f'--property takes KEY=VALUE, not "{key}".')
    return {key.strip(): value.strip() for key, _, value in pairs}


def _show(status: ClusterStatus, *, as_json: bool) -> None:
    from trimtab.report.columns import new_table

    if as_json:
        result_json({"v": 1, **_as_values(status)})
        return
    if status.cluster_id is None:
        result(f'There is no local cluster "{status.name}".')
        return
    table = new_table("broker", "rack", "listens on", "pid", "state")
    for broker in status.brokers:
        pid = "" if broker.pid is None else str(broker.pid)
        table.add_row(str(broker.id), broker.rack, f"127.0.0.1:{broker.port}", pid, broker.state)
    result(f'Cluster "{status.name}" {status.cluster_id}, controller {status.controller}')
    result(table)
    if status.sasl_bootstrap_servers is not None:
        result(f"SASL listeners: {status.sasl_bootstrap_servers}")


def _as_values(status: ClusterStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "cluster_id": status.cluster_id,
        "bootstrap_servers": status.bootstrap_servers,
        "sasl_bootstrap_servers": status.sasl_bootstrap_servers,
        "controller": status.controller.value,
        "brokers": [
            {
                "id": broker.id,
                "rack": broker.rack,
                "port": broker.port,
                "pid": broker.pid,
                "state": broker.state.value,
            }
            for broker in status.brokers
        ],
    }
