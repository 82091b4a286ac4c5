"""Messages between controller and consumers, decisions and receipts, as frozen values.

The controller sends a `Command` to one consumer; a consumer sends a `Report` to the controller.
`epoch` increases with every start of a controller, `seq` with every command of an epoch.
`incarnation` is a random id of one consumer process. A command with an incarnation is only for
that process, since a new process with the same index may already have replaced it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.wire import NOT_WRITTEN, OMIT_EMPTY, REQUIRED, TIDY, Amount, Count, Wire

Partitions = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Command: read these partitions from their committed offsets."""

    epoch: Count
    seq: Count
    partitions: Partitions
    incarnation: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Command: stop reading these partitions."""

    epoch: Count
    seq: Count
    partitions: Partitions
    incarnation: Annotated[str | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateQuery:
    """Command: report the partitions that you read."""

    epoch: Count
    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingStarted:
    """Report: the consumer has started to read these partitions."""

    consumer: Count
    incarnation: str
    epoch: Count
    seq: Count
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingStopped:
    """Report: these partitions are no longer read.

    All records before `committed` are processed; it is None if nothing was ever committed.
    """

    consumer: Count
    incarnation: str
    epoch: Count
    seq: Count
    partitions: Partitions
    committed: Annotated[Mapping[TopicPartition, int | None], NOT_WRITTEN] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """Report: the partitions that are read now, in answer to a query."""

    consumer: Count
    incarnation: str
    query_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Report: a consumer process has started and waits for commands."""

    consumer: Count
    incarnation: str
    partitions: Annotated[Partitions, REQUIRED] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Heartbeat with the highest rate that this consumer has processed; None means unknown."""

    consumer: Count
    incarnation: str
    max_bytes_s: Amount | None
    max_records_s: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRate:
    """The same from a member of a subscribed group, which has a member id instead of an index."""

    member: str
    incarnation: str
    max_bytes_s: Amount | None
    max_records_s: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrder:
    """A request to the controller to carry out a plan that is stored in `trimtab.plans`.

    It is not started after `expires_ts`; for `hold_s` its result is changed only if necessary.
    """

    plan: str
    hold_s: Annotated[Amount, TIDY]
    expires_ts: Count


Command = Start | Stop | StateQuery
Report = ReadingStarted | ReadingStopped | StateReport | Hello | Rate
ControlMessage = Command | Report | MemberRate | PlanOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The saved state of a controller, for its successor; `clean` is false during a hand-over.

    `members` are the numbers of a subscribed group's members or pods, by name.
    """

    epoch: Count
    clean: bool
    assignment: Assignment
    members: Annotated[Mapping[str, Count], OMIT_EMPTY] = field(default_factory=dict)


class Action(StrEnum):
    """The action of a decision."""

    NONE = "none"
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    REASSIGN = "reassign"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision for a group: the action, the number of consumers before and after, the reason."""

    ts: int
    group: str
    action: Action
    before: Annotated[Count, Wire(name="from")]
    after: Annotated[Count, Wire(name="to")]
    plan: str | None = None
    reason: str
    forecast: Annotated[Mapping[str, Any], Wire(any_json=True, required=True)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A processed record: the consumer, the time, and its number among the records of its key."""

    run: str
    group: str
    topic: str
    partition: Count
    offset: Count
    key: bytes | None
    seq: int | None
    set_id: int | None = None
    consumer: Count
    incarnation: str
    event_ts: int
    started_ts: int
    finished_ts: int
    chain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRate:
    """The rates of a partition in `trimtab.rates`; None means unknown."""

    bytes_s: Amount | None
    records_s: Amount | None
    end_offset: Count | None
    lag: Mapping[str, Count | None] = field(default_factory=dict)
    lag_s: Mapping[str, Amount | None] = field(default_factory=dict)
    complete: bool
    stale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRates:
    """One record of `trimtab.rates`: a topic with all its partitions, as of `ts`.

    With `of` above 1 it has only some of them: it is one of that many parts, numbered from 0.
    """

    topic: str
    ts: int
    part: Count = 0
    of: Annotated[int, Wire(least=1)] = 1
    partitions: Mapping[int, PartitionRate]
