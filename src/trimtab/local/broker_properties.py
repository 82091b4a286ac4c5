"""The `server.properties` and log settings of a local cluster's nodes, as pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.errors import ConfigError
from trimtab.local.cluster_state import CONTROLLER, LocalClusterState, LocalNode
from trimtab.local.ports import HOST

LOG4J_PROPERTIES = """\
rootLogger.level = INFO
rootLogger.appenderRef.stdout.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
"""

_SHORT_TIMEOUTS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
}
_SMALL_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_RESERVED = frozenset(
    {
        "node.id",
        "broker.id",
        "broker.rack",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "listener.security.protocol.map",
    }
)


@dataclass(frozen=True, slots=True)
class SaslUser:
    """The user of the SASL listener, with PLAIN and SCRAM-SHA-256."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for what, value in (("username", self.username), ("password", self.password)):
            if not re.fullmatch(r"[\w.~!@#%^*+:/?-]+", value, re.ASCII):
                raise ConfigError(
                    f"The SASL {what} of a local cluster must be letters, digits and any of "
                    "_.~!@#%^*+:/?-",
                    hint="Other characters have a special meaning in the brokers' JAAS settings.",
                )


def fingerprint(sasl: SaslUser) -> str:
    """A hash that shows whether the user or the password has changed."""
    return hashlib.sha256(f"{sasl.username}\n{sasl.password}".encode()).hexdigest()[:12]


def node_properties(
    node: LocalNode, state: LocalClusterState, *, data: Path, sasl: SaslUser | None
) -> dict[str, str]:
    """Returns the content of a node's `server.properties`."""
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    shared = {
        "node.id": str(node.id),
        "controller.quorum.bootstrap.servers": f"{HOST}:{state.controller.port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "log.dirs": str(data),
    }
    if node.id == CONTROLLER:
        listener = f"CONTROLLER://{HOST}:{node.port}"
        return {
            **shared,
            "process.roles": "controller",
            "listeners": listener,
            "advertised.listeners": listener,
            **_SHORT_TIMEOUTS,
            **dict(state.shape.properties),
        }
    listeners = [f"PLAINTEXT://{HOST}:{node.port}"]
    if sasl is not None:
        listeners.append(f"SASL://{HOST}:{node.sasl_port}")
    copies = str(min(3, state.shape.brokers))
    enough = str(min(2, state.shape.brokers))
    return {
        **shared,
        "process.roles": "broker",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "inter.broker.listener.name": "PLAINTEXT",
        "broker.rack": node.rack or "",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
        **_SHORT_TIMEOUTS,
        **_SMALL_DEFAULTS,
        **(_sasl_properties(sasl) if sasl else {}),
        **dict(state.shape.properties),
    }


def _sasl_properties(sasl: SaslUser) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{package}.plain.PlainLoginModule required user_{sasl.username}="{sasl.password}";'
        ),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            f"{package}.scram.ScramLoginModule required;"
        ),
    }


def check_properties(properties: Iterable[tuple[str, str]]) -> None:
    """Raises ConfigError for a property that is malformed, or that the local cluster sets."""
    for key, value in properties:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", key) or not value.isprintable() or "\\" in value:
            raise ConfigError(f'"{key}={value}" is not a valid broker property.')
        if key in _RESERVED:
            raise ConfigError(
                f"The broker property {key} is set by the local cluster and cannot be changed.",
                hint="Use the command's options for names, brokers and racks.",
            )
