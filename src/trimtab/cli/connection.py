"""Which cluster a command connects to, and with which client properties."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.addresses import check_servers
from trimtab.cli.options import BootstrapServer, CommandConfig
from trimtab.cli.output import warn
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.local.cluster import ClusterStatus


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that name a cluster."""

    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None

    def settings(self) -> Settings:
        """The settings, overridden by these options."""
        return load_settings(
            bootstrap_server=self.bootstrap_server, command_config=self.command_config
        )


def cluster_of(settings: Settings) -> Cluster:
    """The cluster given by the settings, else the running local cluster."""
    properties = client_properties(settings)
    named = settings.bootstrap_server or properties.get("bootstrap.servers")
    if named:
        check_servers(named)
    servers = named or _local_cluster(settings, properties)
    return Cluster(servers, properties, OwnTopics(settings.topic_prefix), settings.timeouts.value)


def client_properties(settings: Settings) -> ClientProperties:
    """The client properties of `--command-config`; warns of properties that a client ignores."""
    return properties_of(settings.command_config)


def properties_of(file: Path | None) -> ClientProperties:
    """The client properties of a file, if any; warns of properties that a client ignores."""
    if file is None:
        return ClientProperties.none()
    properties = ClientProperties.read(file)
    warn(properties.warnings())
    return properties


def controller_token(settings: Settings) -> str | None:
    """The token of the assignment service, from the setting or from the token file."""
    token, file = settings.controller.token, settings.controller.token_file
    if file is None:
        text, origin = token.get_secret_value().strip() if token else None, "controller.token"
    elif token is not None:
        raise ConfigError(
            "controller.token and controller.token_file are both set.", hint="Give one of them."
        )
    else:
        try:
            text, origin = file.read_text(encoding="utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The token file {file} cannot be read: {error}.",
                hint="Correct controller.token_file.",
            ) from error
    if text is None:
        return None
    if not (text and text.isascii() and text.isprintable() and " " not in text):
        raise ConfigError(
            f"The token in {origin} is empty, or has spaces or characters outside ASCII.",
            hint="Make one with: openssl rand -hex 32",
        )
    return text


def local_cluster_runs(settings: Settings) -> bool:
    """Whether a local cluster runs and can be used as the default."""
    return _running(settings) is not None


def _local_cluster(settings: Settings, properties: ClientProperties) -> str:
    status = _running(settings)
    if status is None:
        raise ConfigError(
            "No cluster was given, and no local cluster is running.",
            hint="Give --bootstrap-server HOST:PORT, or start a cluster with: trimtab cluster up",
        )
    if properties.authenticated and status.sasl_bootstrap_servers:
        return status.sasl_bootstrap_servers
    return status.bootstrap_servers


def _running(settings: Settings) -> ClusterStatus | None:
    from trimtab.local.cluster import BrokerProcessState, LocalCluster

    status = LocalCluster(home=settings.home).status()
    runs = any(broker.state is BrokerProcessState.RUNNING for broker in status.brokers)
    return status if runs else None
