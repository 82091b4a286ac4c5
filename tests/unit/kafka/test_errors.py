"""Errors of the client libraries leave the door as ours."""

from __future__ import annotations

import kafka.errors as theirs
import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab.errors import BrokerUnavailable, ConfigError, MeasurementError, TrimtabError
from trimtab.kafka.errors import kafka_errors


def librdkafka(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (theirs.KafkaTimeoutError("slow"), BrokerUnavailable),
        (theirs.NodeNotReadyError(1), BrokerUnavailable),
        (theirs.CoordinatorNotAvailableError(), BrokerUnavailable),
        (ConnectionRefusedError(111, "Connection refused"), BrokerUnavailable),
        (librdkafka(KafkaError._ALL_BROKERS_DOWN), BrokerUnavailable),
        (librdkafka(KafkaError._TIMED_OUT), BrokerUnavailable),
        (librdkafka(-137), BrokerUnavailable),  # a broker left while it was asked
        (theirs.SaslAuthenticationFailedError("no"), ConfigError),
        (theirs.UnsupportedSaslMechanismError(), ConfigError),
        (theirs.KafkaConfigurationError("what?"), ConfigError),
        (librdkafka(KafkaError._AUTHENTICATION), ConfigError),
        (librdkafka(KafkaError._INVALID_ARG), ConfigError),
        (theirs.ClusterAuthorizationFailedError(), MeasurementError),
        (librdkafka(KafkaError.GROUP_AUTHORIZATION_FAILED), MeasurementError),
        (theirs.InvalidReplicationFactorError("5"), MeasurementError),
    ],
)
def test_each_error_becomes_ours_and_keeps_its_cause(
    error: Exception, ours: type[TrimtabError]
) -> None:
    with pytest.raises(TrimtabError) as caught, kafka_errors("describing log dirs"):
        raise error

    assert type(caught.value) is ours
    assert caught.value.__cause__ is error
    assert "describing log dirs" in caught.value.message


def test_being_refused_points_at_the_command_config() -> None:
    with pytest.raises(ConfigError) as caught, kafka_errors("connecting"):
        raise theirs.SaslAuthenticationFailedError("Authentication failed: Invalid username")

    assert "Invalid username" in caught.value.message
    assert "--command-config" in (caught.value.hint or "")


def test_our_own_errors_pass_unchanged() -> None:
    ours = ConfigError("mine")

    with pytest.raises(ConfigError) as caught, kafka_errors("anything"):
        raise ours

    assert caught.value is ours
