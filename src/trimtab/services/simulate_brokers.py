"""Compares policies for spreading records over brokers, simulated as queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.model.codec import read_snapshot
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.plan.records.leaders import LeaderSnapshot
    from trimtab.simulate.brokers import QueueWorld, Service, SpeedChange
    from trimtab.simulate.policy import DispatchPolicy
    from trimtab.simulate.policy import DispatchSettings as PolicySettings
    from trimtab.simulate.policy_comparison import ComparisonCell, Effort

DEFAULT_BROKERS = 10


@dataclass(frozen=True, slots=True)
class BrokerTopology:
    """The leaders of each topic, and the speed of each broker."""

    leaders: LeaderSnapshot
    speeds: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPeriod:
    """Another speed of a broker for a part of the run; start and end are between 0 and 1."""

    broker: int
    speed: float
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """The policies to compare, the brokers, and their utilisation."""

    topology: BrokerTopology
    policies: Sequence[DispatchPolicy]
    utilisations: Sequence[float]
    dispatchers: Sequence[int]
    service: Service
    settings: PolicySettings
    effort: Effort
    rates: Mapping[str, float] = field(default_factory=dict)
    foreign: Mapping[int, float] = field(default_factory=dict)
    slow: Sequence[SlowPeriod] = ()


def topology_of(
    brokers: int | None,
    topology: str | None,
    *,
    own_prefix: str,
    listener: ProgressListener = NO_LISTENER,
) -> BrokerTopology:
    """A number of equal brokers, or a built-in topology, or that of a snapshot file."""
    from trimtab.plan.records.leaders import LeaderSnapshot
    from trimtab.simulate.brokers import TOPIC
    from trimtab.simulate.policy_comparison import TOPOLOGIES

    if topology is None:
        count = DEFAULT_BROKERS if brokers is None else brokers
        even = LeaderSnapshot({TOPIC: {n: n + 1 for n in range(count)}})
        return BrokerTopology(even, dict.fromkeys(range(1, count + 1), 1.0))
    if brokers is not None:
        raise ConfigError("--brokers and --topology cannot be combined.", hint="Give one of them.")
    if topology in TOPOLOGIES:
        built_in = LeaderSnapshot(TOPOLOGIES[topology])
        return BrokerTopology(built_in, dict.fromkeys(sorted(built_in.leading), 1.0))
    if not Path(topology).exists():
        raise ConfigError(
            f"{topology} is neither a file nor a built-in topology.",
            hint=f"Built-in topologies: {', '.join(TOPOLOGIES)}.",
        )
    return _of_file(Path(topology), own_prefix, listener)


def compare_policies(
    asked: PolicyComparison, *, listener: ProgressListener = NO_LISTENER
) -> tuple[list[ComparisonCell], QueueWorld]:
    """A result for each utilisation, policy and number of dispatchers; and the queue model."""
    from trimtab.simulate.policy_comparison import cells, sweep

    worlds = {busy: _world(asked, busy) for busy in asked.utilisations}
    per_utilisation = len(cells(asked.policies, asked.dispatchers, asked.settings))
    total = len(asked.utilisations) * per_utilisation * asked.effort.seeds
    done = 0

    def on_run(name: str) -> None:
        nonlocal done
        done += 1
        listener.progress(name, done, total)

    listener.progress("simulating", 0, total)
    found = sweep(
        worlds.__getitem__,
        asked.policies,
        utilisations=asked.utilisations,
        dispatchers=asked.dispatchers,
        settings=asked.settings,
        effort=asked.effort,
        on_run=on_run,
    )
    return list(found), worlds[asked.utilisations[0]]


def _of_file(path: Path, own_prefix: str, listener: ProgressListener) -> BrokerTopology:
    from trimtab.kafka.snapshot import without_internal
    from trimtab.plan.records.leaders import LeaderSnapshot

    snapshot, warnings = read_snapshot(path)
    for line in warnings:
        listener.warning(line)
    led: dict[str, dict[int, int]] = {}
    for p in without_internal(snapshot.partitions, own_prefix=own_prefix):
        led.setdefault(p.topic, {})[p.partition] = p.leader
    offline = sorted(topic for topic, leaders in led.items() if max(leaders.values()) < 0)
    for topic in offline:
        listener.warning(f"topic {topic} has no leader and is left out")
    online = {topic: leaders for topic, leaders in led.items() if topic not in offline}
    if not online:
        raise ConfigError(f"No partition has a leader in {path}.")
    speeds = {int(b.id): 1.0 if b.capacity is None else b.capacity for b in snapshot.brokers}
    return BrokerTopology(LeaderSnapshot(online), speeds)


def _world(asked: PolicyComparison, utilisation: float) -> QueueWorld:
    from trimtab.simulate.brokers import QueueWorld

    speeds = asked.topology.speeds
    length = asked.effort.count / (utilisation * sum(speeds.values()))
    try:
        world = QueueWorld(
            leaders=((0.0, asked.topology.leaders),),
            speeds=speeds,
            rates=asked.rates,
            foreign=asked.foreign,
            changes=tuple(c for slow in asked.slow for c in _changes(slow, speeds, length)),
            service=asked.service,
        )
        world.own_rate(utilisation)
        len(world.paces)
    except ValueError as error:
        raise ConfigError(f"Invalid simulation: {error}.") from error
    return world


def _changes(slow: SlowPeriod, speeds: Mapping[int, float], length: float) -> list[SpeedChange]:
    from trimtab.simulate.brokers import SpeedChange

    return [
        SpeedChange(broker=slow.broker, at=slow.start * length, speed=slow.speed),
        SpeedChange(broker=slow.broker, at=slow.end * length, speed=speeds[slow.broker]),
    ]
