"""Interprets the settings of a confluent-kafka producer for routing.

Promise  `keyless_of` tells which records the client itself would spread instead of hashing their
         key; only those may be routed without moving a key. `connection_settings` are the settings
         with which another client connects to the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_PARTITIONER = "consistent_random"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessRule:
    """Which records count as keyless.

    Attributes:
        null: Records without a key.
        empty: Records with an empty key.
        keyed: All other records.
    """

    null: bool
    empty: bool
    keyed: bool

    @property
    def nothing(self) -> bool:
        """Whether no record counts as keyless."""
        return not (self.null or self.empty or self.keyed)


EVERY_RECORD = KeylessRule(null=True, empty=True, keyed=True)
WITHOUT_A_KEY = KeylessRule(null=True, empty=False, keyed=False)
_NO_RECORD = KeylessRule(null=False, empty=False, keyed=False)

KEYLESS: Mapping[str, KeylessRule] = {
    "random": EVERY_RECORD,
    "consistent": _NO_RECORD,
    "consistent_random": KeylessRule(null=True, empty=True, keyed=False),
    "murmur2": _NO_RECORD,
    "murmur2_random": WITHOUT_A_KEY,
    "fnv1a": _NO_RECORD,
    "fnv1a_random": WITHOUT_A_KEY,
}
"""librdkafka's values of `partitioner`, and which records each of them spreads."""

_OF_THE_PRODUCER = frozenset(
    {
        *("error_cb", "on_delivery", "stats_cb", "throttle_cb", "statistics.interval.ms"),
        *("acks", "request.required.acks", "request.timeout.ms"),
        *("delivery.timeout.ms", "message.timeout.ms", "message.send.max.retries", "retries"),
        *("enable.idempotence", "enable.gapless.guarantee"),
        *("transactional.id", "transaction.timeout.ms"),
        *("batch.num.messages", "batch.size", "linger.ms", "queue.buffering.max.ms"),
        *("queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("queue.buffering.backpressure.threshold", "queuing.strategy", "produce.offset.report"),
        *("compression.codec", "compression.level", "compression.type"),
        *("delivery.report.only.error", "default.topic.config"),
        *("partitioner", "topic.partitioner", "sticky.partitioning.linger.ms"),
    }
)


def keyless_of(config: Mapping[str, Any]) -> KeylessRule:
    """Which records a client with these settings spreads; none for an invalid value."""
    found = (config.get("default.topic.config") or {}).get("partitioner", DEFAULT_PARTITIONER)
    for name in ("topic.partitioner", "partitioner"):
        found = config.get(name, found)
    return KEYLESS.get(str(found), _NO_RECORD)


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those for producers only, such as callbacks."""
    return {
        name: value
        for name, value in config.items()
        if name not in _OF_THE_PRODUCER and not name.startswith("test.mock.")
    }
