"""A real Kafka cluster on this machine: start it, fail its brokers, remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.local.cluster import ClusterStatus, LocalCluster, SaslUser


class BrokerAction(StrEnum):
    """An action on one broker."""

    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterConfig:
    """The name of a local cluster, its folder, and its size when it is created."""

    name: str
    home: Path
    cache: Path
    brokers: int = 3
    racks: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    sasl: SaslUser | None = None


def bring_up(
    config: LocalClusterConfig, listener: ProgressListener = NO_LISTENER
) -> tuple[ClusterStatus, Path]:
    """Starts the cluster unless it is up; returns its status and the folder of its logs."""
    cluster = _cluster(config, listener)
    return cluster.up(), cluster.logs


def status_of(config: LocalClusterConfig) -> ClusterStatus:
    """The state of each broker."""
    return _cluster(config, NO_LISTENER).status()


def change_broker(
    config: LocalClusterConfig,
    broker: int,
    action: BrokerAction,
    listener: ProgressListener = NO_LISTENER,
) -> ClusterStatus:
    """Kills, pauses, resumes or starts one broker; returns the status afterwards."""
    cluster = _cluster(config, listener)
    match action:
        case BrokerAction.KILL:
            cluster.kill(broker)
        case BrokerAction.PAUSE:
            cluster.pause(broker)
        case BrokerAction.RESUME:
            cluster.resume(broker)
        case BrokerAction.START:
            cluster.start(broker)
        case _:
            assert_never(action)
    return cluster.status()


def take_down(
    config: LocalClusterConfig,
    *,
    keep_data: bool = False,
    listener: ProgressListener = NO_LISTENER,
) -> tuple[ClusterStatus, bool]:
    """Stops the cluster; returns its status, and whether there was one that is now removed."""
    cluster = _cluster(config, listener)
    there = bool(cluster.status().brokers)
    cluster.down(keep_data=keep_data)
    return cluster.status(), there and not keep_data


def _cluster(config: LocalClusterConfig, listener: ProgressListener) -> LocalCluster:
    from trimtab.local.cluster import LocalCluster

    return LocalCluster(
        config.name,
        home=config.home,
        cache=config.cache,
        say=listener.note,
        brokers=config.brokers,
        racks=config.racks,
        properties=config.properties,
        sasl=config.sasl,
    )
