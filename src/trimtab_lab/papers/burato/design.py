"""The design of the experiment: topics, broker conditions, policies, and the grid of runs.

The scenarios were fixed before tuning. All combinations would take days; the default grid has what
is needed for the comparisons, each cell at least five times, in random order. Throughput is
measured with the thesis' records of 100 bytes, latency with 1 000: with small records a Python
client saturates before three brokers on the same machine do.

Promise  Pure and seeded: equal arguments give the same runs in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

from trimtab.errors import ConfigError
from trimtab.plan.records.partitioner import Granularity

_Any = TypeVar("_Any")

# ---------------------------------------------------------------- topics

PLACEMENT: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "B1": ((1,), (2,)),
    "B2": ((1, 2), (2, 1)),
    "U1": ((1,), (2,), (2,)),
    "U2": ((1, 2), (2, 1), (2, 1)),
    "U3": ((1, 3), (2, 1), (2, 3), (3, 1)),
}
"""Replicas of each partition, leader first: the four topics of the thesis, and one on three brokers
where half of the partitions have no replica on broker 2."""

BROKERS = 3
SLOWED = 2
"""The broker that is slowed or gets foreign load; it leads two partitions."""

SLOWED_SHARE, SLOWED_PERIOD_S = 0.6, 0.2
"""A slowed broker is paused for this share of every period."""

FOREIGN_MB_S = 20.0
"""Load of another producer on a topic that only this broker has."""

# ---------------------------------------------------------------- policies

LIBRDKAFKA = "librdkafka"
"""The client's built-in choice: the producer sets no partition."""

OURS = "weighted-node"
RACK_AWARE = "rack-aware"
PEERS = ("sticky", "uniform-sticky", "adaptive", RACK_AWARE)
BY_BATCH_ONLY = (*PEERS, LIBRDKAFKA)
STOCK = ("default", *(name for name in BY_BATCH_ONLY if name != RACK_AWARE))
"""Partitioners that are in use today: Kafka's of before and after 2.4, and the client's.

`rack-aware` is shown but not counted: it depends on the client's rack, so it can be the best or
the worst by position only.
"""


@dataclass(frozen=True, slots=True, order=True)
class PolicyName:
    """A partitioner, and whether it chooses per record or per batch.

    `rack` is the client's rack, only for `rack-aware`; broker 1 is in rack a, broker 2 in rack b.

    >>> str(PolicyName("node", Granularity.PER_RECORD)), str(PolicyName("sticky")), str(RACKS[0])
    ('node per record', 'sticky', 'rack-aware in a')
    """

    name: str
    granularity: Granularity = Granularity.PER_BATCH
    rack: str | None = None

    def __str__(self) -> str:
        if self.rack is not None:
            return f"{self.name} in {self.rack}"
        return self.name if self.name in BY_BATCH_ONLY else f"{self.name} per {self.granularity}"

    @property
    def stock(self) -> bool:
        """Whether it is in use today, and counts as a rival."""
        return self.name in STOCK


def _both(*names: str) -> tuple[PolicyName, ...]:
    return tuple(PolicyName(name, each) for name in names for each in Granularity)


RACKS = tuple(PolicyName(RACK_AWARE, rack=rack) for rack in "ab")
EVERY = (
    *_both("default", "improved", "node", "sqf", OURS),
    *(PolicyName(name) for name in BY_BATCH_ONLY if name != RACK_AWARE),
    *RACKS,
)
_MAIN = (
    *_both("default", "node", "sqf"),
    PolicyName(OURS),
    *(PolicyName(name) for name in ("sticky", "uniform-sticky", "adaptive", LIBRDKAFKA)),
    *RACKS,
)
_THESIS = (
    *(PolicyName(name, Granularity.PER_RECORD) for name in ("default", "node", "sqf")),
    *(PolicyName(name) for name in ("node", OURS, "uniform-sticky", LIBRDKAFKA)),
)
_ENDS = (
    PolicyName("default", Granularity.PER_RECORD),
    *(PolicyName(name) for name in (OURS, "uniform-sticky", "adaptive", LIBRDKAFKA)),
)
GAUGE = tuple(PolicyName(name) for name in (OURS, "node", "uniform-sticky"))
"""Loads are fractions of the best throughput of these. All choose in Python and cost the same; the
client's built-in choice costs less, and the others could not send at its throughput."""

# ---------------------------------------------------------------- settings and runs


class BrokerWorld(StrEnum):
    """The condition of the brokers."""

    EVEN = "even"
    SLOWED = "slowed"
    FOREIGN = "foreign load"


class RunKind(StrEnum):
    """How records are sent."""

    SATURATING = "saturating"  # as fast as the client's buffer empties
    OPEN_LOOP = "open loop"  # at given times


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class ExperimentSetting:
    """A topic, the acks setting, the brokers' condition, and a record size."""

    topic: str
    acks: str
    world: BrokerWorld = BrokerWorld.EVEN
    value_bytes: int = 100

    @property
    def key(self) -> str:
        """A name for use in file names."""
        world = str(self.world).replace(" ", "-")
        return f"{self.topic}-acks-{self.acks}-{world}-{self.value_bytes}B"

    def __str__(self) -> str:
        size = "" if self.value_bytes == 100 else f", {self.value_bytes} B"
        return f"{self.topic} acks={self.acks}, {self.world}{size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuratoCell:
    """One policy in one setting; `load` is a fraction of the best throughput, 0 if saturating."""

    setting: ExperimentSetting
    policy: PolicyName
    load: float = 0.0

    @property
    def kind(self) -> RunKind:
        """How records are sent."""
        return RunKind.OPEN_LOOP if self.load else RunKind.SATURATING


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRun:
    """One repetition of a cell; `rate` is records/s in an open loop."""

    cell: BuratoCell
    repetition: int
    duration_s: float
    seed: int = 0
    rate: float = 0.0

    @property
    def key(self) -> str:
        """The name of its kept result."""
        policy = str(self.cell.policy).replace(" ", "-")
        return f"{self.cell.setting.key}-{policy}-{self.cell.load * 100:.0f}-{self.repetition}"

    def settings(self) -> dict[str, Any]:
        """Everything its result depends on, apart from the code and the machine."""
        return {
            "method": METHOD,
            "duration_s": self.duration_s,
            "seed": self.seed,
            "rate": self.rate,
            "placement": [list(replicas) for replicas in PLACEMENT[self.cell.setting.topic]],
            "slowed": [SLOWED, SLOWED_SHARE, SLOWED_PERIOD_S],
            "foreign_mb_s": FOREIGN_MB_S,
            "producer": {**PRODUCER, **({} if self.cell.load else SATURATING)},
        }


PRODUCER: Mapping[str, Any] = {
    "linger.ms": 5,
    "batch.size": 16384,
    "queue.buffering.max.kbytes": 32768,
    "queue.buffering.max.messages": 1_000_000,
    "max.in.flight.requests.per.connection": 5,
    "compression.type": "none",
}
"""Today's defaults of the Java client, as librdkafka properties."""

SATURATING: Mapping[str, Any] = {"queue.buffering.max.kbytes": 4096}
"""For saturating runs: a buffer that fills up quickly, so that the brokers limit the rate."""

METHOD = 2
"""Results of another method are not reused: 1 had no blocks, and used both JVM compilers."""

LOADS = (0.5, 0.7, 0.85)
WARM_UP = 0.2
"""The first part of each run, whose results are discarded."""

_UNEVEN_SLOW = (
    ExperimentSetting(topic="U2", acks="1", world=BrokerWorld.SLOWED, value_bytes=1000),
    ExperimentSetting(topic="U2", acks="all", world=BrokerWorld.SLOWED, value_bytes=1000),
    ExperimentSetting(topic="U3", acks="all", world=BrokerWorld.SLOWED, value_bytes=1000),
)
_PAPER = tuple(
    ExperimentSetting(topic=topic, acks=acks)
    for topic, each in (("B1", "1"), ("B2", "1 all"), ("U1", "1"), ("U2", "1 all"))
    for acks in each.split()
)
_EVEN = tuple(ExperimentSetting(topic="B2", acks=acks, value_bytes=1000) for acks in ("1", "all"))
_FOREIGN = ExperimentSetting(topic="U2", acks="1", world=BrokerWorld.FOREIGN, value_bytes=1000)


def default_grid() -> tuple[BuratoCell, ...]:
    """The default grid, which takes about 45 minutes."""
    cells = [BuratoCell(setting=s, policy=p) for s in _PAPER for p in _THESIS]
    cells += [
        BuratoCell(setting=s, policy=p) for s in (*_EVEN, *_UNEVEN_SLOW, _FOREIGN) for p in GAUGE
    ]
    # Throughput of the stock partitioners with a slow broker: it shows how much the open loops
    # overload them.
    cells += [
        BuratoCell(setting=s, policy=p)
        for s in _UNEVEN_SLOW
        for p in (*_ENDS, PolicyName("sticky"))
    ]
    cells += [
        BuratoCell(setting=s, policy=p, load=0.7) for s in (*_EVEN, *_UNEVEN_SLOW) for p in _MAIN
    ]
    cells += [BuratoCell(setting=_FOREIGN, policy=p, load=0.7) for p in _ENDS]
    for setting in (_EVEN[0], _UNEVEN_SLOW[0]):
        cells += [BuratoCell(setting=setting, policy=p, load=f) for f in (0.5, 0.85) for p in _ENDS]
    return tuple(dict.fromkeys(cells))


def full_grid() -> tuple[BuratoCell, ...]:
    """All combinations, starting with the default grid."""
    settings = [
        ExperimentSetting(topic=topic, acks=acks, world=world, value_bytes=size)
        for size in (100, 1000)
        for topic in PLACEMENT
        for acks in ("1", "all")
        for world in BrokerWorld
    ]
    rest = [BuratoCell(setting=s, policy=p) for s in settings for p in EVERY]
    rest += [
        BuratoCell(setting=s, policy=p, load=f) for s in settings for f in LOADS for p in EVERY
    ]
    return tuple(dict.fromkeys((*default_grid(), *rest)))


def narrowed(
    cells: Iterable[BuratoCell],
    *,
    policies: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    worlds: Sequence[str] | None = None,
) -> tuple[BuratoCell, ...]:
    """The cells with these policies, topics and conditions; raises if a name is unknown."""
    all_cells = tuple(cells)
    asked = {"policy": policies, "topic": topics, "world": worlds}

    def of(cell: BuratoCell) -> dict[str, str]:
        s = cell.setting
        return {"policy": cell.policy.name, "topic": s.topic, "world": str(s.world)}

    for what, names in asked.items():
        known = {of(cell)[what] for cell in all_cells}
        for name in names or ():
            if name not in known:
                raise ConfigError(
                    f'The grid has no {what} "{name}".',
                    hint=f"Choose from {', '.join(sorted(known))}.",
                )
    chosen = tuple(
        cell
        for cell in all_cells
        if all(names is None or of(cell)[what] in names for what, names in asked.items())
    )
    if not chosen:
        raise ConfigError(
            "The grid has no cell with this combination of --policies, --topics and --worlds.",
            hint="Use fewer of these options, or --full for all combinations.",
        )
    return chosen


def in_random_order(
    cells: Iterable[BuratoCell], *, repetitions: int, duration_s: float, seed: int
) -> tuple[BrokerRun, ...]:
    """Every cell once per repetition: random order of conditions, settings, loads and policies.

    All cells of one condition run together in a repetition, because brokers and weights need time
    to become stable. The policies of one setting and load run directly after each other, because
    they are compared and the machine's speed changes over time. Saturating runs come first: loads
    are fractions of their throughput.
    """
    rng = Random(seed)
    blocks: dict[BrokerWorld, dict[ExperimentSetting, dict[float, list[BuratoCell]]]] = {}
    for cell in cells:
        of_world = blocks.setdefault(cell.setting.world, {})
        of_world.setdefault(cell.setting, {}).setdefault(cell.load, []).append(cell)
    return tuple(
        BrokerRun(cell=cell, repetition=repetition, duration_s=duration_s, seed=seed)
        for repetition in range(repetitions)
        for world in _shuffled(blocks, rng)
        for setting in _shuffled(blocks[world], rng)
        for load in sorted(_shuffled(blocks[world][setting], rng), key=bool)
        for cell in _shuffled(blocks[world][setting][load], rng)
    )


def _shuffled(of: Iterable[_Any], rng: Random) -> list[_Any]:
    every = list(of)
    return rng.sample(every, len(every))


def with_gauges(cells: Iterable[BuratoCell]) -> tuple[BuratoCell, ...]:
    """These cells, and the saturating cells that determine the rates of open loops among them."""
    asked = tuple(cells)
    gauges = (
        BuratoCell(setting=cell.setting, policy=policy)
        for cell in asked
        if cell.kind is RunKind.OPEN_LOOP
        for policy in GAUGE
    )
    return tuple(dict.fromkeys((*asked, *gauges)))


def cell_to(cell: BuratoCell) -> dict[str, Any]:
    """A cell as a JSON object, for results."""
    return {
        **asdict(cell.setting),
        "world": str(cell.setting.world),
        "policy": str(cell.policy),
        "load": cell.load,
    }
