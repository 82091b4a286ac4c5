"""Creates the topics beside a data topic, checks all of them, and says what tasks must know."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trimtab.apply.keys.kafka.keyed_work import KeyedTopicFacts
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.start_up_checks import (
    LARGEST,
    TopicFacts,
    data_findings,
    dead_findings,
    least_largest,
    state_findings,
    state_settings,
)
from trimtab.errors import ConfigError
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.topics import replicas_for
from trimtab.observe.logging import library_log

log = library_log()

_DEAD_KEPT_MS = 30 * 24 * 60 * 60 * 1000


def checked_topics(admin: Admin, names: Collection[str], group: str) -> dict[str, KeyedTopicFacts]:
    """The facts of these data topics; missing topics of states and dead letters are created."""
    ids = admin.topic_ids(names)
    found = {}
    for name in names:
        data = _facts(admin, name)
        if data is None or name not in ids:
            raise ConfigError(f"There is no topic {name}.", hint="Create it, or correct --topic.")
        _refuse(data_findings(data), name)
        topics = KeyedTopics(name, group)
        replication = max(1, min(data.replicas, replicas_for(admin)))
        for beside in (topics.state, topics.handover):
            settings = state_settings(data, replication)
            facts = _ensure(admin, beside, data, replication, settings)
            _refuse(state_findings(data, facts), name)
        dead = _ensure(
            admin,
            topics.dead,
            data,
            replication,
            {
                "retention.ms": str(_DEAD_KEPT_MS),
                "min.insync.replicas": str(max(1, replication - 1)),
                LARGEST: str(least_largest(data)),
            },
        )
        _refuse(dead_findings(data, dead), name)
        found[name] = KeyedTopicFacts(
            topic_id=ids[name], partitions=data.partitions, largest_bytes=least_largest(data)
        )
    return found


def _ensure(
    admin: Admin, name: str, data: TopicFacts, replication: int, settings: dict[str, str]
) -> TopicFacts:
    facts = _facts(admin, name)
    if facts is not None:
        return facts
    spec = TopicSpec(
        name=name, partitions=data.partitions, replication=replication, settings=settings
    )
    if admin.create_topic(spec):
        log.info("topic_created", topic=name, partitions=data.partitions)
    return _facts(admin, name) or TopicFacts(
        name=name, partitions=data.partitions, replicas=replication, settings=settings
    )


def _facts(admin: Admin, name: str) -> TopicFacts | None:
    partitions = admin.topics([name])
    settings = admin.topic_settings(name) if partitions else None
    if settings is None:
        return None
    return TopicFacts(
        name=name,
        partitions=len(partitions),
        replicas=min(len(p.replicas) for p in partitions),
        settings=settings,
    )


def _refuse(findings: Iterable[str], name: str) -> None:
    found = list(findings)
    if found:
        raise ConfigError(
            f"Topic {name} cannot be consumed by key: {'; '.join(found)}.",
            hint="Correct these settings with kafka-configs, then start again. Nothing was read.",
        )
