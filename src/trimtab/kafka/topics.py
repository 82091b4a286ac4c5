"""The topics that Trimtab owns: their names, how they are created, and the settings they need.

Promise  An existing topic is never changed. If its settings do not fit its readers, it is refused
         with an error that names the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from trimtab.errors import ConfigError, MeasurementError, TrimtabError
from trimtab.kafka.retry import attempts

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin
    from trimtab.model.cluster import Replicas

_Answer = TypeVar("_Answer")

MOST_REPLICAS = 3
LEAST_RETENTION_MS = 10 * 60 * 1000
"""A restarted reader reads at least one window back; ten minutes allow for window and restart."""

CONTROL_PARTITIONS = 65
"""One for the controller and 64 for consumers; doubled when more are needed."""

_EXTENDED_WITHIN_S = 1.0  # short: steering asks between two of its steps, and every few seconds
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopic:
    """How one of Trimtab's topics is created.

    `only_partition`: its readers need exactly one partition. `compacted`: its readers need the
    newest record of each key, however old. `per_broker`: each broker has its own partition with
    one replica, so a broker that hangs does not delay the others.
    """

    name: str
    partitions: int
    retention_ms: int
    only_partition: bool = False
    compacted: bool = False
    per_broker: bool = False


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics under one prefix."""

    prefix: str = "trimtab."

    @property
    def telemetry(self) -> str:
        """Samples of the monitor."""
        return f"{self.prefix}telemetry"

    @property
    def rates(self) -> str:
        """Rates and lag per topic, one record per trigger."""
        return f"{self.prefix}rates"

    @property
    def hotkeys(self) -> str:
        """Heavy keys per window."""
        return f"{self.prefix}hotkeys"

    @property
    def receipts(self) -> str:
        """Processed records: by which consumer and when."""
        return f"{self.prefix}receipts"

    @property
    def decisions(self) -> str:
        """Decisions of controllers, with their reasons."""
        return f"{self.prefix}decisions"

    @property
    def plans(self) -> str:
        """Plans, by id."""
        return f"{self.prefix}plans"

    @property
    def weights(self) -> str:
        """The share of keyless records for each broker."""
        return f"{self.prefix}weights"

    @property
    def probe(self) -> str:
        """Records that steering writes to measure each broker; they are never read."""
        return f"{self.prefix}probe"

    def control(self, group: str) -> str:
        """Commands and reports of a group: partition 0 to its controller, i + 1 to consumer i."""
        return f"{self.prefix}control.{group}"

    def group(self, group: str) -> str:
        """Saved state of a group's controller, and its lease."""
        return f"{self.prefix}group.{group}"

    def of_group(self, group: str) -> tuple[OwnTopic, ...]:
        """The topics that a controlled group needs."""
        return (
            OwnTopic(name=self.control(group), partitions=CONTROL_PARTITIONS, retention_ms=_DAY_MS),
            OwnTopic(
                name=self.group(group),
                partitions=1,
                retention_ms=_DAY_MS,
                only_partition=True,
                compacted=True,
            ),
            OwnTopic(name=self.decisions, partitions=1, retention_ms=30 * _DAY_MS),
            OwnTopic(name=self.plans, partitions=1, retention_ms=30 * _DAY_MS, compacted=True),
            OwnTopic(name=self.receipts, partitions=4, retention_ms=7 * _DAY_MS),
        )

    @property
    def of_steering(self) -> tuple[OwnTopic, ...]:
        """The topics that steering needs."""
        return (
            OwnTopic(
                name=self.weights,
                partitions=1,
                retention_ms=_DAY_MS,
                compacted=True,
                per_broker=True,
            ),
            OwnTopic(
                name=self.probe, partitions=1, retention_ms=LEAST_RETENTION_MS, per_broker=True
            ),
        )

    @property
    def all(self) -> tuple[OwnTopic, ...]:
        """The topics that measuring needs."""
        return (
            OwnTopic(name=self.telemetry, partitions=4, retention_ms=7 * _DAY_MS),
            # One partition, so that the newest record of each topic is found in one log.
            OwnTopic(name=self.rates, partitions=1, retention_ms=_DAY_MS, only_partition=True),
            OwnTopic(name=self.hotkeys, partitions=1, retention_ms=7 * _DAY_MS),
        )


def ensure_topics(admin: Admin, own: OwnTopics) -> tuple[str, ...]:
    """Creates or checks the topics that measuring needs; returns the names created."""
    return ensure(admin, own.all)


def ensure(admin: Admin, topics: Iterable[OwnTopic]) -> tuple[str, ...]:
    """Creates missing topics and checks existing ones; returns the names created."""
    from trimtab.kafka.admin import TopicSpec

    created = []
    replication = 0
    for topic in topics:
        settings = admin.topic_settings(topic.name)
        if settings is None:
            replication = replication or replicas_for(admin)
            spec = TopicSpec(
                name=topic.name,
                partitions=topic.partitions,
                replication=replication,
                settings={
                    "cleanup.policy": "compact" if topic.compacted else "delete",
                    "retention.ms": str(topic.retention_ms),
                    # With one replica of three down, an acknowledged record is still on two.
                    "min.insync.replicas": str(max(1, replication - 1)),
                },
            )
            if admin.create_topic(spec):
                created.append(topic.name)
                continue
            # another process created it first
            settings = _once_visible(admin, partial(admin.topic_settings, topic.name)) or {}
        _check(topic, settings, _once_visible(admin, partial(admin.topics, [topic.name])) or ())
    return tuple(created)


def _once_visible(admin: Admin, ask: Callable[[], _Answer]) -> _Answer | None:
    """Asks about a topic that may have just been created until the answer is not empty, or None.

    Requests may go to different brokers, and some brokers learn of a new topic later than others:
    after one has returned its settings, the next may not know its partitions yet.
    """
    for _ in attempts(within_s=admin.timeouts.visible_s):
        if answer := ask():
            return answer
    return None


def ensure_per_broker(
    admin: Admin, topic: OwnTopic, brokers: Collection[int], live: Collection[int]
) -> dict[int, int]:
    """Creates or extends a topic with a partition on each broker; returns broker → partition.

    A broker that is down gets its partition when it is back. The partition of a broker that has
    left the cluster remains without a leader.
    """
    from trimtab.kafka.admin import TopicSpec

    placed = admin.topics([topic.name])
    if not placed:
        order = sorted(live)
        spec = TopicSpec(
            name=topic.name,
            partitions=len(order),
            replication=1,
            settings={
                "cleanup.policy": "compact" if topic.compacted else "delete",
                "retention.ms": str(topic.retention_ms),
                "segment.ms": str(LEAST_RETENTION_MS),
                "segment.bytes": str(2**20),
                "min.insync.replicas": "1",
            },
            assignment={number: (broker,) for number, broker in enumerate(order)},
        )
        if not order or admin.create_topic(spec):
            return {broker: number for number, broker in enumerate(order)}
        # another process created it first
        placed = _once_visible(admin, partial(admin.topics, [topic.name])) or ()
    found = _alone_on(placed)
    missing = sorted(set(live) - found.keys())
    if missing and placed:
        total = len(placed) + len(missing)
        try:
            admin.add_partitions(topic.name, total, held_by=[(broker,) for broker in missing])
        except TrimtabError:
            found = _extended_by_another(admin, topic.name, live)
            if not found:
                raise
        else:
            found |= {broker: len(placed) + n for n, broker in enumerate(missing)}
    return {broker: number for broker, number in found.items() if broker in brokers}


def _extended_by_another(admin: Admin, name: str, live: Collection[int]) -> dict[int, int]:
    """The partition of each broker; empty if a live broker still has none.

    Asks more than once: the broker that answers may learn of new partitions a little late.
    """
    for _ in attempts(within_s=_EXTENDED_WITHIN_S):
        found = _alone_on(admin.topics([name]))
        if found.keys() >= set(live):
            return found
    return {}


def _alone_on(placed: Iterable[Replicas]) -> dict[int, int]:
    """The partition whose only replica each broker holds."""
    return {int(p.replicas[0]): p.partition for p in placed if len(p.replicas) == 1}


def replicas_for(admin: Admin) -> int:
    """The replication factor of Trimtab's topics on this cluster."""
    return max(1, min(MOST_REPLICAS, len(admin.cluster().live)))


def _check(topic: OwnTopic, settings: Mapping[str, str], partitions: Sequence[Replicas]) -> None:
    if not partitions:
        raise MeasurementError(
            f"The brokers returned settings but no partitions for topic {topic.name}.",
            hint="It may be in creation or deletion; try again.",
        )
    wrong = "; ".join(_wrong_settings(topic, settings, partitions))
    if wrong:
        raise ConfigError(
            f"Topic {topic.name} cannot be used: {wrong}.",
            hint="Correct its settings, delete it to have it created again, or set another prefix "
            "(TRIMTAB_TOPIC_PREFIX).",
        )


def _wrong_settings(
    topic: OwnTopic, settings: Mapping[str, str], partitions: Sequence[Replicas]
) -> Iterator[str]:
    if topic.only_partition and len(partitions) > 1:
        yield f"it has {len(partitions)} partitions, but must have exactly one"
    policy = settings.get("cleanup.policy", "delete")
    if topic.compacted and policy != "compact":
        yield f"cleanup.policy={policy} deletes old records that are still needed"
    if not topic.compacted and "compact" in policy:
        yield f"cleanup.policy={policy} deletes records before they are read"
    retention_ms = int(settings.get("retention.ms") or -1)
    if not topic.compacted and 0 <= retention_ms < LEAST_RETENTION_MS:
        yield f"retention.ms={retention_ms} is below {LEAST_RETENTION_MS}"
    replicas = min(len(p.replicas) for p in partitions)
    in_sync = int(settings.get("min.insync.replicas") or 1)
    if in_sync > replicas:
        yield f"min.insync.replicas={in_sync} is more than its number of replicas, {replicas}"
