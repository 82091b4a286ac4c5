"""Checks and set-up of a new cluster: its live brokers, and its SASL users."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from trimtab.kafka.errors import kafka_errors


def brokers_seen(bootstrap: str, timeout_s: float) -> frozenset[int]:
    """Returns the ids of the live brokers in the metadata of `bootstrap`; empty if none answers."""
    return _brokers(_client(bootstrap), timeout_s)


def accepts_user(bootstrap: str, username: str, password: str, timeout_s: float) -> bool:
    """Whether the SASL listener at `bootstrap` accepts this user with SCRAM-SHA-256."""
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": username,
        "sasl.password": password,
    }
    return bool(_brokers(_client(bootstrap, login), timeout_s))


def add_scram_user(bootstrap: str, username: str, password: str, timeout_s: float) -> None:
    """Creates a SCRAM-SHA-256 user or changes the password; brokers apply it a little later."""
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations=4096)
    user = UserScramCredentialUpsertion(username, kind, password.encode())
    client = _client(bootstrap)  # keep a reference: requests fail once the client is collected
    with kafka_errors(f"adding the SASL user {username}"):
        answers = client.alter_user_scram_credentials([user], request_timeout=timeout_s)
        answers[username].result(timeout=timeout_s)


def _client(bootstrap: str, login: Mapping[str, str] | None = None) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "trimtab-probe",
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # a broker that is not up yet is an expected result
            **(login or {}),
        }
    )


def _brokers(client: AdminClient, timeout_s: float) -> frozenset[int]:
    try:
        return frozenset(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return frozenset()
