"""Translates the errors of both Kafka client libraries into Trimtab's errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import kafka.errors as theirs
from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import KafkaException as LibrdkafkaException

from trimtab.errors import BrokerUnavailable, ConfigError, MeasurementError, TrimtabError

# Without a handler, Python prints the client's log to stderr when logging is not configured.
logging.getLogger("librdkafka").addHandler(logging.NullHandler())

_AUTHENTICATION = (
    theirs.SaslAuthenticationFailedError,
    theirs.UnsupportedSaslMechanismError,
    theirs.IllegalSaslStateError,
)

_BROKER_REMOVED = -137
"""librdkafka's `_DESTROY_BROKER`: the broker was asked when it left the cluster's metadata."""


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Raises errors of the client libraries as Trimtab's; `what` names the operation."""
    try:
        yield
    except (theirs.KafkaError, LibrdkafkaException, OSError) as error:
        raise translated(error, what) from error


def translated(error: Exception, what: str) -> TrimtabError:
    """Trimtab's error for an error of a client library."""
    reason = reason_of(error)
    if is_authentication(error):
        return ConfigError(
            f"Authentication failed while {what}: {reason}",
            hint="Check security.protocol, sasl.* and ssl.* in the file given by --command-config.",
        )
    if _is_authorization(error):
        return MeasurementError(
            f"Authorization failed while {what}: {reason}",
            hint="Grant the missing ACL to the user in --command-config.",
        )
    if _is_configuration(error):
        return ConfigError(
            f"The Kafka client rejected its configuration while {what}: {reason}",
            hint="Check --bootstrap-server and the file given by --command-config.",
        )
    if is_retriable(error):
        return BrokerUnavailable(
            f"No broker answered while {what}: {reason}",
            hint="Check that the brokers are running and that --bootstrap-server is correct. "
            "A listener with TLS or SASL needs --command-config.",
        )
    return MeasurementError(f"Kafka reported an error while {what}: {reason}")


def reason_of(error: Exception) -> str:
    """The client's error message, on one line and without the request it contains."""
    if isinstance(error, LibrdkafkaException):
        text = error.args[0].str() if error.args else ""
    elif isinstance(error, theirs.BrokerResponseError):
        # The rest of the client's message is the full request and response.
        name = type(error).__name__.removesuffix("Error")
        has_reason = error.args and isinstance(error, _AUTHENTICATION)
        text = (
            str(error.args[0]).removeprefix("SaslAuthenticationFailedError: ")
            if has_reason
            else name
        )
    elif isinstance(error, theirs.NodeNotReadyError | theirs.UnknownBrokerIdError):
        text = "not connected"  # the client's message has only the broker's id
    elif isinstance(error, theirs.KafkaError) and error.args:
        text = str(error.args[0])
    else:
        text = str(error)
    lines = text.strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


def is_authentication(error: Exception) -> bool:
    """Whether authentication failed, by SASL or by TLS."""
    if isinstance(error, LibrdkafkaException):
        return _code(error) in {
            LibrdkafkaError._AUTHENTICATION,
            LibrdkafkaError.SASL_AUTHENTICATION_FAILED,
            LibrdkafkaError.UNSUPPORTED_SASL_MECHANISM,
            LibrdkafkaError._SSL,
        }
    return isinstance(error, _AUTHENTICATION)


def _is_authorization(error: Exception) -> bool:
    if isinstance(error, LibrdkafkaException):
        return _code(error) in {
            LibrdkafkaError.TOPIC_AUTHORIZATION_FAILED,
            LibrdkafkaError.GROUP_AUTHORIZATION_FAILED,
            LibrdkafkaError.CLUSTER_AUTHORIZATION_FAILED,
        }
    return isinstance(error, theirs.AuthorizationError)


def _is_configuration(error: Exception) -> bool:
    if isinstance(error, LibrdkafkaException):
        return bool(_code(error) == LibrdkafkaError._INVALID_ARG)
    return isinstance(error, theirs.KafkaConfigurationError)


def is_retriable(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, LibrdkafkaException):
        return bool(error.args) and (
            _code(error)
            in {
                LibrdkafkaError._ALL_BROKERS_DOWN,
                LibrdkafkaError._TRANSPORT,
                LibrdkafkaError._TIMED_OUT,
                LibrdkafkaError._RESOLVE,
                _BROKER_REMOVED,
                LibrdkafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                LibrdkafkaError.COORDINATOR_NOT_AVAILABLE,
                LibrdkafkaError.NOT_COORDINATOR,
            }
            or bool(error.args[0].retriable())
        )
    return isinstance(error, OSError | theirs.UnknownBrokerIdError) or bool(
        getattr(error, "retriable", False)
    )


def _code(error: LibrdkafkaException) -> int | None:
    return error.args[0].code() if error.args else None
