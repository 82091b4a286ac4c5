"""How long the brokers of a cluster may take: one value, with one default for each time-out."""

from __future__ import annotations

from dataclasses import dataclass, fields

LONGEST_S = 300.0
"""The longest time-out: the largest `socket.timeout.ms` of librdkafka, and the default of
`max.poll.interval.ms`, after which brokers remove a member that waits for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait for brokers, in seconds, each above 0 and at most 300.

    >>> Timeouts(request_s=60).request_s
    60
    >>> Timeouts(request_s=0)
    Traceback (most recent call last):
        ...
    ValueError: invalid time-out: request_s must be above 0 and at most 300 s, not 0

    Attributes:
        connect_s: Until an admin client has its first connection.
        request_s: Until a request that is sent once is answered; no answer is an error.
        attempt_s: Until one attempt at a request is answered; without an answer it is repeated, or
            another broker is asked. A stop may wait for it, so it should stay below the time that a
            supervisor gives a process (30 s for `trimtab run` and for Kubernetes).
        delivery_s: Until sent records are acknowledged; after it they count as failed.
        transaction_s: Until a transaction of the controller is begun or committed.
        visible_s: Until a change is seen by all brokers, such as a topic that was created or a
            group coordinator that has moved.
        close_s: Until a client that is closed has sent its last records or has left its group.
    """

    connect_s: float = 10.0
    request_s: float = 20.0
    attempt_s: float = 10.0
    delivery_s: float = 60.0
    transaction_s: float = 30.0
    visible_s: float = 30.0
    close_s: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= LONGEST_S:  # also false for nan
                raise ValueError(
                    f"invalid time-out: {field.name} must be above 0 and at most {LONGEST_S:g} s, "
                    f"not {value:g}"
                )


def milliseconds(seconds: float) -> int:
    """A time-out as clients take it, at least 1 ms."""
    return max(1, round(seconds * 1000))
