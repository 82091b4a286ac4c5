"""Every error Trimtab raises on purpose, as one tree.

::

    TrimtabError(message, *, hint)          exit  70   an error in Trimtab itself
    ├── Findings                            exit   1   a check ran and found something
    ├── ConfigError                         exit   2   settings, flags, environment of the machine
    │   ├── BadFile                                    a file with invalid content
    │   ├── PortTaken                                  the port is already in use
    │   ├── UnsupportedStore                           a TLS store that a client cannot read
    │   └── ClusterStartFailed                         the local cluster did not start
    ├── MeasurementError                    exit   3   measurement failed
    │   ├── BrokerUnavailable (retriable)
    │   ├── ThinData                                   not enough data for a result
    │   └── SchemaMismatch                             a table with missing or wrong columns
    ├── PlanningError                       exit   4
    │   ├── NoFeasiblePlan
    │   ├── UnknownPlanner
    │   └── UnknownTopic                               a topic that is not in the snapshot
    └── ApplyError                          exit   5
        ├── PlanOutdated                               partitions or owners changed since
        ├── PlanDamaged                                the plan's content does not match its id
        ├── ProtocolViolation
        ├── TokenRefused                               the controller did not accept the token
        ├── Fenced                                     another controller has taken over
        └── StateTooLarge                              states of keys outgrow memory or disk

The message says what happened and to what; the hint says what to do.
Wrong arguments to a pure function raise `ValueError`.
"""

from __future__ import annotations

from typing import ClassVar


class TrimtabError(Exception):
    """Root of all errors; `str()` gives the message, and the hint is shown on its own line."""

    exit_code: ClassVar[int] = 70
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Findings(TrimtabError):
    """A check completed and found problems."""

    exit_code = 1


class ConfigError(TrimtabError):
    """Settings, options or the state of this machine do not allow the command to start."""

    exit_code = 2


class BadFile(ConfigError):
    """A file has invalid content; the message names the file and the place in it."""


class PortTaken(ConfigError):
    """A Trimtab service cannot listen on its address: another process may use the port."""


class UnsupportedStore(ConfigError):
    """A TLS store has a format that not all of the Kafka clients can read."""


class ClusterStartFailed(ConfigError):
    """The local cluster did not start."""


class MeasurementError(TrimtabError):
    """Measurement failed."""

    exit_code = 3


class BrokerUnavailable(MeasurementError):
    """No broker answered in time."""

    retriable = True


class ThinData(MeasurementError):
    """There is not enough data for a result; none is guessed."""


class SchemaMismatch(MeasurementError):
    """A table or source has no such column, or has it with another type."""


class PlanningError(TrimtabError):
    """No plan could be made."""

    exit_code = 4


class NoFeasiblePlan(PlanningError):
    """No plan meets the constraints."""


class UnknownPlanner(PlanningError):
    """The registry has no planner of that name."""


class UnknownTopic(PlanningError):
    """A record is for a topic that is not in the snapshot."""


class ApplyError(TrimtabError):
    """A plan could not be applied."""

    exit_code = 5


class PlanOutdated(ApplyError):
    """Partitions or owners have changed since the plan was made."""


class PlanDamaged(ApplyError):
    """The content of a plan does not match its id."""


class ProtocolViolation(ApplyError):
    """The other side sent something that the protocol does not allow."""


class TokenRefused(ApplyError):
    """The controller requires a token from consumers, or did not accept the one it got."""


class Fenced(ApplyError):
    """Another controller has taken over; consumers ignore commands of this one."""


class StateTooLarge(ApplyError):
    """The states of a keyed consumer do not fit where they are kept; nothing is lost."""
