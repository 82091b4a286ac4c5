"""Every error Trimtab raises on purpose, as one tree.

::

    TrimtabError(message, *, hint)          exit  70   ours, unless a branch says otherwise
    ├── Findings                            exit   1   a check ran and found something
    ├── ConfigError                         exit   2   settings, flags, environment of the machine
    │   ├── BadFile                                    a file that does not say what it should
    │   ├── PortTaken                                  another process listens there already
    │   ├── UnsupportedStore                           a key store a client cannot read
    │   └── ClusterStartFailed                         the local cluster could not be brought up
    ├── MeasurementError                    exit   3   facts could not be had
    │   ├── BrokerUnavailable (retriable)
    │   ├── ThinData                                   too little was seen to say anything
    │   └── SchemaMismatch                             a table without the columns it should have
    ├── PlanningError                       exit   4
    │   ├── NoFeasiblePlan
    │   ├── UnknownPlanner
    │   └── UnknownTopic                               a record for a topic nobody has seen
    └── ApplyError                          exit   5
        ├── PlanOutdated                               the world has moved on since
        ├── PlanDamaged                                the file is not the plan its id promises
        ├── ProtocolViolation
        ├── TokenRefused                               the controller wants another token
        └── Fenced                                     another controller has taken over

A message says what happened and to what; the hint says what to do.
Wrong arguments to a pure function stay `ValueError`.
"""

from __future__ import annotations

from typing import ClassVar


class TrimtabError(Exception):
    """Root of the tree; `str()` is the message, the hint is shown on a line of its own."""

    exit_code: ClassVar[int] = 70
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Findings(TrimtabError):
    """A check ran as it should and found something."""

    exit_code = 1


class ConfigError(TrimtabError):
    """Settings, flags or the machine's own state do not allow the work to begin."""

    exit_code = 2


class BadFile(ConfigError):
    """A file does not say what it should; the message names file and place."""


class PortTaken(ConfigError):
    """A service of ours cannot listen where it should: another process may have the port."""


class UnsupportedStore(ConfigError):
    """A TLS store in a format that not all of our Kafka clients can read."""


class ClusterStartFailed(ConfigError):
    """The local cluster could not be brought up."""


class MeasurementError(TrimtabError):
    """Facts could not be had."""

    exit_code = 3


class BrokerUnavailable(MeasurementError):
    """No broker answered in time."""

    retriable = True


class ThinData(MeasurementError):
    """Too little was seen to say anything: refused, not guessed from."""


class SchemaMismatch(MeasurementError):
    """A table or source lacks a column, or has it with another type."""


class PlanningError(TrimtabError):
    """No plan could be made."""

    exit_code = 4


class NoFeasiblePlan(PlanningError):
    """No plan meets the constraints."""


class UnknownPlanner(PlanningError):
    """No planner of that name stands in the registry."""


class UnknownTopic(PlanningError):
    """A record is for a topic that the snapshot does not know."""


class ApplyError(TrimtabError):
    """A plan could not be applied."""

    exit_code = 5


class PlanOutdated(ApplyError):
    """The world has moved on since the plan was made."""


class PlanDamaged(ApplyError):
    """The file is not the plan that its id promises."""


class ProtocolViolation(ApplyError):
    """A partner said something that the protocol does not allow."""


class TokenRefused(ApplyError):
    """The controller does not accept the token of a consumer, or requires one."""


class Fenced(ApplyError):
    """Another controller has taken over; whatever this one still says is not heard."""
