"""State, events and effects of the controller of a directed group.

The transitions are in `apply.consumers.controller`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Command, Decision, GroupState, Report
from trimtab.model.journal import JournalEntry
from trimtab.model.plan import ConsumerPlan

_DOUBLINGS = 4  # of the start timeout, at most

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class LeadershipGained:
    """This controller leads from now on; `found` is the state persisted by the previous one.

    `running` is what the backend lists: consumer index → identity of the process. `hold_plan` is a
    plan that is still held, for `hold_s` more.
    """

    now: float
    running: Mapping[int, str]
    found: GroupState | None = None
    hold_plan: str = ""
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A report of a consumer has arrived."""

    now: float
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObserved:
    """A periodic observation: running processes (index → identity) and existing partitions.

    `partitions` is None while brokers do not answer. `reasons` is why consumers exited or do not
    start, by index, as the backend knows it; `subscribed` names the group's members that brokers
    report, None while that is unknown.
    """

    now: float
    running: Mapping[int, str]
    partitions: frozenset[TopicPartition] | None
    reasons: Mapping[int, str] = field(default_factory=dict)
    subscribed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerExited:
    """The backend confirms that this process of a consumer has exited.

    Without an identity the consumer could not be started, for the reason `why`: a process that
    runs with its index is not meant.
    """

    now: float
    consumer: int
    identity: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RemovalRefused:
    """The backend did not remove these consumers: they may be used again."""

    now: float
    consumers: frozenset[int]


@dataclass(frozen=True, slots=True)
class PlanOrdered:
    """A user has ordered a plan, or an earlier controller had started it.

    `plan` is None if the plan was not found or is not for this group: `refused` is the reason.
    It must start before `until`. `step` is None for a new order, else the number of moves done.
    """

    now: float
    plan_id: str
    plan: ConsumerPlan | None
    until: float = float("inf")
    hold_s: float = 0.0
    ts: int = 0
    step: int | None = None
    refused: str = ""


Event = (
    LeadershipGained
    | ReportReceived
    | GroupObserved
    | ConsumerExited
    | RemovalRefused
    | PlanOrdered
)

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Send:
    """A command to one consumer."""

    consumer: int
    command: Command


@dataclass(frozen=True, slots=True)
class Persist:
    """The state to persist for the next controller."""

    state: GroupState


@dataclass(frozen=True, slots=True)
class Create:
    """Start these consumers."""

    consumers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop these idle consumers gracefully; they have no partitions and are not needed."""

    consumers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill this process of a consumer, and report `ConsumerExited` when that is confirmed."""

    consumer: int
    why: str
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision to publish, with its plan if it has one."""

    decision: Decision
    plan: ConsumerPlan | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something to log; a violation should never happen."""

    what: str
    consumer: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    violation: bool = False


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """An entry of a plan's journal; its time is set when the transaction is sent."""

    entry: JournalEntry


Effect = Send | Persist | WriteJournal | Create | Remove | Kill | Decide | Note

# ---------------------------------------------------------------- state


class Phase(StrEnum):
    """The phase of the controller; the paper's "reassign" takes no time, so it is not a phase."""

    SYNCHRONIZE = "synchronize"
    SENTINEL = "sentinel"
    MANAGE = "group management"


PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.SYNCHRONIZE: frozenset({Phase.SYNCHRONIZE, Phase.SENTINEL}),
    Phase.SENTINEL: frozenset({Phase.MANAGE}),
    Phase.MANAGE: frozenset({Phase.MANAGE, Phase.SENTINEL, Phase.SYNCHRONIZE}),
}
"""The allowed transitions; a new leader always begins with `SYNCHRONIZE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer that exists; its incarnation is unknown until it has answered.

    Attributes:
        since: When it was first seen, or was last queried without an answer so far.
        last_report: When its last report arrived.
        identity: The process that the backend listed with this index; None before it was listed.
        seen: When the backend last listed that process.
        introduced: When the first report of the incarnation arrived.
        fresh: It has not reported yet, and no controller can have given it partitions.
        rival: Another incarnation that has reported with the same index, and since when.
    """

    since: float
    last_report: float
    incarnation: str | None = None
    identity: str | None = None
    seen: float = float("-inf")
    introduced: float = float("-inf")
    fresh: bool = False
    max_bytes_s: float | None = None
    max_records_s: float | None = None
    rival: tuple[str, float] | None = None


class MoveStage(StrEnum):
    """The stage of a partition's move."""

    WAITING = "waiting"
    STOPPING = "stopping"
    STARTING = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """The move of a partition to `target`; without a target it is only taken from its consumer."""

    target: int | None
    stage: MoveStage = MoveStage.WAITING
    asked: int | None = None  # the consumer that was sent the command
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An ordered plan that is being carried out; `step` of its `moves` are done."""

    order: PlanOrdered
    target: Assignment
    moves: frozenset[TopicPartition]
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHold:
    """An ordered plan that only urgent decisions may undo, for `left_s` more."""

    plan: str = ""
    left_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """Consumers that are starting, and whether more may be started.

    Attributes:
        starting: How long each has been starting, in seconds.
        patience_s: The start timeout of the one that has taken longest.
        reason: Why that one has not started yet, as far as it is known.
        promised: Partitions that wait for one of these.
        retry_in_s: Seconds until another consumer may be started; 0 means at once.
        failure: Why the last one did not start.
    """

    starting: Mapping[int, float] = field(default_factory=dict)
    patience_s: float = 0.0
    reason: str = ""
    promised: frozenset[TopicPartition] = frozenset()
    retry_in_s: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The input of a policy.

    `consumers` are those that may be given partitions, whether or not they have some; `spares` of
    them are kept idle on purpose. `max_bytes_s` and `max_records_s` are the capacities that
    consumers report, by consumer; in a subscribed group the keys only number the reports.
    """

    now: float
    quiet_s: float
    since_scaling_s: float
    since_decision_s: float
    assignment: Assignment
    consumers: frozenset[int]
    partitions: frozenset[TopicPartition]
    orphans: frozenset[TopicPartition]
    max_bytes_s: Mapping[int, float]
    max_records_s: Mapping[int, float]
    spares: int = 0
    startup: Startup = Startup()
    lost: str = ""  # why the last consumer exited that had partitions
    ended: int = 0  # how many such consumers exited since the last assignment
    subscribed: tuple[str, ...] = ()  # members that brokers report; a directed group has none
    ending: Mapping[int, str] = field(default_factory=dict)  # exit not confirmed, and why
    withheld: frozenset[TopicPartition] = frozenset()  # not assigned until those exits
    hold: PlanHold = PlanHold()
    removes_highest_only: bool = False  # as in `ControllerRules`
    silent: frozenset[int] = frozenset()  # of `consumers`: a move to one would wait for its report


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A decision, with its target assignment and plan if it has them."""

    decision: Decision
    target: Assignment | None = None
    plan: ConsumerPlan | None = None


Policy = Callable[[GroupView], GroupVerdict | None]
"""Decides, or returns None if no decision is due; pure, as planners are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """The controller's time limits; `start_timeout_s` doubles with every failed start."""

    sync_timeout_s: float = 60.0
    start_timeout_s: float = 60.0
    manage_timeout_s: float = 300.0
    dead_after_s: float = 30.0
    contested_after_s: float = 5.0
    unseen_wait_s: float = 10.0  # two reports fit in
    responsive_s: float = 6.0  # a consumer silent for longer gets no partitions; reports: every 5 s
    longest_pause_s: float = 60.0  # between starts that fail
    warm_spares: int = 0
    removes_highest_only: bool = False  # a StatefulSet: no consumer below a busy one can be removed
    max_consumers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The whole state of the controller."""

    rules: ControllerRules = ControllerRules()
    epoch: int = 0
    seq: int = 0
    queries: int = 0
    phase: Phase = Phase.SYNCHRONIZE
    now: float = 0.0
    entered: float = 0.0
    scaled_at: float = float("-inf")
    decided_at: float = float("-inf")
    clean: bool = True
    members: Mapping[int, ConsumerInfo] = field(default_factory=dict)
    found: Assignment = field(default_factory=Assignment)
    held: Mapping[TopicPartition, int] = field(default_factory=dict)
    moves: Mapping[TopicPartition, PartitionMove] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = frozenset()
    creating: Mapping[int, float] = field(default_factory=dict)  # consumer → requested since
    leaving: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()  # idle, and the backend did not remove them
    killing: frozenset[int] = frozenset()
    unseen: frozenset[int] = frozenset()  # had partitions, and the backend does not list them
    unseen_until: float = float("-inf")
    failed_starts: int = 0  # in a row: consumers that exited before their first report
    tries: Mapping[int, int] = field(default_factory=dict)  # failed starts by consumer
    next_start_at: float = float("-inf")
    failure: str = ""
    lost: str = ""
    ended: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict)
    subscribed: tuple[str, ...] = ()
    order: PlanOrdered | None = None  # waits until the group is settled
    execution: Execution | None = None
    hold_plan: str = ""
    hold_until: float = float("-inf")

    @property
    def query_id(self) -> str:
        """The id of the newest query; answers to older ones are ignored."""
        return f"{self.epoch}.{self.queries}"

    @property
    def ready(self) -> frozenset[int]:
        """Consumers that have answered and may be given partitions."""
        off = self.leaving | self.killing
        return frozenset(
            c for c, m in self.members.items() if m.incarnation and not m.rival and c not in off
        )

    @property
    def responsive(self) -> frozenset[int]:
        """Ready consumers that reported lately: a silent one would not read a new partition."""
        since = self.now - self.rules.responsive_s
        return frozenset(c for c in self.ready if self.members[c].last_report >= since)

    @property
    def unknown(self) -> frozenset[int]:
        """Consumers that may have partitions and have not reported them yet."""
        return frozenset(c for c, m in self.members.items() if not (m.incarnation or m.fresh))

    @property
    def frozen(self) -> frozenset[TopicPartition]:
        """Partitions of consumers that are unreliable and whose exit is not confirmed.

        A consumer that never answered and cannot be killed may read any unassigned partition, so
        all of those are included while there is one.
        """
        unknown = self.unknown
        doubtful = {c for c, m in self.members.items() if m.rival} | unknown | self.killing
        frozen = {p for p, c in self.held.items() if c in doubtful}
        if unknown & self.killing:
            frozen |= self.partitions - self.held.keys()
        return frozenset(frozen)

    def patience_s(self, consumer: int) -> float:
        """How long a consumer may take to start; doubles with every failed start."""
        return self.rules.start_timeout_s * 2.0 ** min(self.tries.get(consumer, 0), _DOUBLINGS)

    @property
    def starting(self) -> dict[int, float]:
        """Consumers that are starting and have not reported yet, and since when."""
        off = self.leaving | self.killing
        seen = {c: m.since for c, m in self.members.items() if m.fresh}
        return {c: t for c, t in sorted({**self.creating, **seen}.items()) if c not in off}

    @property
    def parked(self) -> bool:
        """Whether all remaining moves wait for consumers that are starting."""
        doable, starting = {None, *self.ready}, self.starting
        return any(m.target in starting for m in self.moves.values()) and not any(
            m.stage is not MoveStage.WAITING or m.target in doable for m in self.moves.values()
        )

    def startup(self) -> Startup:
        """The progress of consumers that are starting."""
        starting = self.starting
        slowest = min(starting, key=lambda c: (starting[c], c), default=None)
        return Startup(
            starting={c: self.now - since for c, since in starting.items()},
            patience_s=0.0 if slowest is None else self.patience_s(slowest),
            reason="" if slowest is None else self.reasons.get(slowest, ""),
            promised=frozenset(p for p, m in self.moves.items() if m.target in starting),
            retry_in_s=max(0.0, self.next_start_at - self.now),
            failure=self.failure,
        )

    def view(self) -> GroupView:
        """The input of the policy."""
        known = {c: self.members[c] for c in sorted(self.ready)}
        frozen = self.frozen
        return GroupView(
            now=self.now,
            quiet_s=self.now - self.entered,
            since_scaling_s=self.now - self.scaled_at,
            since_decision_s=self.now - self.decided_at,
            assignment=Assignment({p: c for p, c in self.held.items() if p not in frozen}),
            consumers=frozenset(known),
            partitions=self.partitions - frozen,
            orphans=self.partitions - self.held.keys() - frozen,
            max_bytes_s={c: m.max_bytes_s for c, m in known.items() if m.max_bytes_s},
            max_records_s={c: m.max_records_s for c, m in known.items() if m.max_records_s},
            spares=self.rules.warm_spares,
            startup=self.startup(),
            lost=self.lost,
            ended=self.ended,
            subscribed=self.subscribed,
            ending={c: self.reasons.get(c, "") for c in sorted(self.killing)},
            withheld=self.partitions & frozen if self.killing else frozenset(),
            hold=PlanHold(plan=self.hold_plan, left_s=max(0.0, self.hold_until - self.now)),
            removes_highest_only=self.rules.removes_highest_only,
            silent=self.ready - self.responsive,
        )
