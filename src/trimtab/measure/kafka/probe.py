"""Asks a broker which brokers it takes to be alive; the first question put to a cluster."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def brokers_seen(bootstrap: str, timeout_s: float) -> frozenset[int]:
    """Returns the ids of the live brokers in the metadata of `bootstrap`; empty if none answers."""
    client = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "trimtab-probe",
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # a broker that is not there yet is an answer, not a fault to log
        }
    )
    try:
        return frozenset(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return frozenset()
