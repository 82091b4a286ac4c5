"""`trimtab cluster`: a real Kafka cluster on this machine, to try things on and to break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import AsJson
from trimtab.cli.output import result, result_json, say
from trimtab.errors import ConfigError

if TYPE_CHECKING:
    from trimtab.local.cluster import ClusterStatus, LocalCluster

app = typer.Typer(
    name="cluster",
    help="A real Kafka cluster on this machine: start it, break it, remove it.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Option(
        "--name", metavar="NAME", help="Which local cluster; several can be up side by side."
    ),
]
Broker = Annotated[int, typer.Argument(metavar="N", help="The broker's id, from 1.")]


@app.command()
def up(
    context: typer.Context,
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", help="How many brokers.")] = 3,
    racks: Annotated[
        int,
        typer.Option(
            "--racks", metavar="N", help="How many racks the brokers are dealt to: a, b, c, …"
        ),
    ] = 3,
    name: Name = "default",
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A further Kafka property of every node; may be repeated.",
        ),
    ] = None,
    sasl_user: Annotated[
        str | None,
        typer.Option(
            "--sasl-user",
            metavar="USER",
            help="Adds a SASL listener (PLAIN, SCRAM-SHA-256) for them.",
        ),
    ] = None,
    sasl_password: Annotated[
        str | None,
        typer.Option(
            "--sasl-password",
            metavar="PASSWORD",
            envvar="TRIMTAB_SASL_PASSWORD",
            help="The password of --sasl-user. Others can read a command line; better set the "
            "variable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring a cluster up; one that is up already is left as it is.

    One KRaft controller and N brokers start on free ports of 127.0.0.1. The
    first time, their jars (40 MB) are fetched into the user's cache folder. A
    cluster that a crash or a reboot ended comes up again on its data, and a
    dead broker of a running cluster is started again.
    """
    from trimtab.local.cluster import SaslUser

    source = context.get_parameter_source("sasl_password")
    given = source is not None and source.name == "COMMANDLINE"  # the variable may just be there
    if (given and sasl_user is None) or (sasl_user is not None and sasl_password is None):
        raise ConfigError(
            "--sasl-user and --sasl-password go together.",
            hint="The password may also be in TRIMTAB_SASL_PASSWORD.",
        )
    sasl = SaslUser(sasl_user, sasl_password) if sasl_user and sasl_password else None
    cluster = _cluster(
        name, brokers=brokers, racks=racks, properties=_properties(property_ or []), sasl=sasl
    )
    status_now = cluster.up()
    _show(status_now, as_json=as_json)
    if not as_json:
        say(f"Logs: {cluster.logs}")
        say(f"Use it with --bootstrap-server {status_now.bootstrap_servers}")


@app.command()
def status(name: Name = "default", as_json: AsJson = False) -> None:
    """Show each broker: running, paused, dead, or absent after a stop."""
    _show(_cluster(name).status(), as_json=as_json)


@app.command()
def kill(broker: Broker, name: Name = "default", as_json: AsJson = False) -> None:
    """End broker N at once, as `kill -9` does; its data stays."""
    cluster = _cluster(name)
    cluster.kill(broker)
    _show(cluster.status(), as_json=as_json)


@app.command()
def pause(broker: Broker, name: Name = "default", as_json: AsJson = False) -> None:
    """Freeze broker N: it keeps its connections and answers nothing."""
    cluster = _cluster(name)
    cluster.pause(broker)
    _show(cluster.status(), as_json=as_json)


@app.command()
def resume(broker: Broker, name: Name = "default", as_json: AsJson = False) -> None:
    """Let the paused broker N go on."""
    cluster = _cluster(name)
    cluster.resume(broker)
    _show(cluster.status(), as_json=as_json)


@app.command()
def start(broker: Broker, name: Name = "default", as_json: AsJson = False) -> None:
    """Start the dead broker N on its data; done when it has joined."""
    cluster = _cluster(name)
    cluster.start(broker)
    _show(cluster.status(), as_json=as_json)


@app.command()
def down(
    name: Name = "default",
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Stop in order, and keep topics for the next up.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End a cluster, remove data and logs; harmless if there is none."""
    cluster = _cluster(name)
    there = bool(cluster.status().brokers)
    cluster.down(keep_data=keep_data)
    if there and not keep_data and not as_json:
        result(f'Cluster "{name}" is down; its data and logs are removed.')
    else:
        _show(cluster.status(), as_json=as_json)


def _cluster(name: str, **shape: Any) -> LocalCluster:
    from trimtab.local.cluster import LocalCluster
    from trimtab.settings import load_settings

    settings = load_settings()
    return LocalCluster(name, home=settings.home, cache=settings.cache, say=say, **shape)


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
