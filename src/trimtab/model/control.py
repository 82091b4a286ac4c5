"""What controller and consumers tell one another, and what is kept of it: frozen values.

A `Command` goes from the controller to one consumer, a `Report` from a consumer to the controller.
`epoch` rises with every start of a controller, `seq` with every command of an epoch;
`incarnation` is a fresh random name of one consumer process; a command that names one is for that
process alone, for the next one under the same index may already read in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

Partitions = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Read these partitions from where they are committed."""

    epoch: int
    seq: int
    partitions: Partitions
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Read these partitions no more."""

    epoch: int
    seq: int
    partitions: Partitions
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateQuery:
    """Say what you read."""

    epoch: int
    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """These are read from now on."""

    consumer: int
    incarnation: str
    epoch: int
    seq: int
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """These are read no more; all up to `committed` is done, None where nothing ever was."""

    consumer: int
    incarnation: str
    epoch: int
    seq: int
    partitions: Partitions
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """The answer to a query: what is read now."""

    consumer: int
    incarnation: str
    query_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A consumer process has begun and waits for commands."""

    consumer: int
    incarnation: str
    partitions: Partitions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A sign of life, and the most that this consumer has been seen to handle; None is unknown."""

    consumer: int
    incarnation: str
    max_bytes_s: float | None
    max_records_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRate:
    """The same from a member of a subscribed group, which has a member id and no index."""

    member: str
    incarnation: str
    max_bytes_s: float | None
    max_records_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrder:
    """Somebody asks the controller to carry out a plan that is kept in `trimtab.plans`.

    It is not begun after `expires_ts`, and not undone without need before `hold_s` have passed.
    """

    plan: str
    hold_s: float
    expires_ts: int


Command = Start | Stop | StateQuery
Report = Started | Stopped | StateReport | Hello | Rate
ControlMessage = Command | Report | MemberRate | PlanOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a controller leaves behind for the next one; `clean` is false during a hand-over.

    `members` are the numbers of a subscribed group's members or pods, by name.
    """

    epoch: int
    clean: bool
    assignment: Assignment
    members: Mapping[str, int] = field(default_factory=dict)


class Action(StrEnum):
    """What a decision came to."""

    NONE = "none"
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    REASSIGN = "reassign"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided for a group, from how many consumers to how many, and why."""

    ts: int
    group: str
    action: Action
    before: int
    after: int
    reason: str
    plan: str | None = None
    forecast: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One record was processed: by whom, when, and its place in its key's sequence."""

    run: str
    group: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    seq: int | None
    consumer: int
    incarnation: str
    event_ts: int
    started_ts: int
    finished_ts: int
    set_id: int | None = None
    chain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRate:
    """What `trimtab.rates` says of one partition; None is unknown."""

    bytes_s: float | None
    records_s: float | None
    end_offset: int | None
    lag: Mapping[str, int | None]
    complete: bool
    stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRates:
    """One record of `trimtab.rates`: a topic with all its partitions, as of `ts`."""

    topic: str
    ts: int
    partitions: Mapping[int, PartitionRate]
