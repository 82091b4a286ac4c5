"""What the controller of a directed group knows, what happens to it, and what it wants done.

The rules by which one leads to the other are in `apply.controller`.
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

_DOUBLINGS = 4  # of the time that a consumer may take to start

# ---------------------------------------------------------------- what happens


@dataclass(frozen=True, slots=True)
class LeadershipGained:
    """This controller leads from now on; `found` is what the last one left behind.

    `living` is what the orchestrator has: consumer index → identity of the process. `hold_plan` is
    a plan that is still held, for `hold_s` more.
    """

    now: float
    living: Mapping[int, str]
    found: GroupState | None = None
    hold_plan: str = ""
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A consumer has said something."""

    now: float
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObserved:
    """Time has passed: the processes that exist, index → identity, and the partitions there are.

    `partitions` is None while the cluster cannot say. `words` is what the orchestrator knows of why
    a consumer ended or does not start, by index; `subscribed` names members that the group has in
    the brokers' eyes, None while that is unknown.
    """

    now: float
    living: Mapping[int, str]
    partitions: frozenset[TopicPartition] | None
    words: Mapping[int, str] = field(default_factory=dict)
    subscribed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerExited:
    """The orchestrator has ended a consumer and confirms that this process of it is no more.

    Without an identity it could not be started, and `why` says the reason: what lives under its
    index is not meant.
    """

    now: float
    consumer: int
    identity: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RemovalRefused:
    """The orchestrator could not let these go, or did not want to: they may be used again."""

    now: float
    consumers: frozenset[int]


@dataclass(frozen=True, slots=True)
class PlanOrdered:
    """Somebody asks for a plan to be carried out, or a controller before this one had begun it.

    `plan` is None where no such plan is kept, or it is none of this group's: `refused` says why.
    `until` is when it must have begun. `step` is None for a new order, else how far it had come.
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

# ---------------------------------------------------------------- what is to be done


@dataclass(frozen=True, slots=True)
class Send:
    """A command to one consumer."""

    consumer: int
    command: Command


@dataclass(frozen=True, slots=True)
class Persist:
    """What the next controller is to find."""

    state: GroupState


@dataclass(frozen=True, slots=True)
class Create:
    """Consumers that should exist."""

    consumers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Consumers that hold nothing and are not needed: let them go gently."""

    consumers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """End this process of a consumer for certain, and report `ConsumerExited`."""

    consumer: int
    why: str
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision to be published, with what it rests on and the plan that it follows."""

    decision: Decision
    plan: ConsumerPlan | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line in the log; a violation should never come up at all."""

    what: str
    consumer: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    violation: bool = False


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """An entry of a plan's journal; its time is that of its transaction."""

    entry: JournalEntry


Effect = Send | Persist | WriteJournal | Create | Remove | Kill | Decide | Note

# ---------------------------------------------------------------- what is known


class Phase(StrEnum):
    """Where the controller is; to reassign takes no time, so it is no state to stay in."""

    SYNCHRONIZE = "synchronize"
    SENTINEL = "sentinel"
    MANAGE = "group management"


PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.SYNCHRONIZE: frozenset({Phase.SYNCHRONIZE, Phase.SENTINEL}),
    Phase.SENTINEL: frozenset({Phase.MANAGE}),
    Phase.MANAGE: frozenset({Phase.MANAGE, Phase.SENTINEL, Phase.SYNCHRONIZE}),
}
"""What may follow what; a new leader begins with `SYNCHRONIZE`, whatever was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer that exists; what it is called is unknown until it has answered.

    Attributes:
        since: When it was first seen, or was last asked in vain.
        heard: When it last spoke.
        identity: The process that the orchestrator had under this index, once it was looked at.
        seen: When the orchestrator last had that process.
        introduced: When the incarnation first spoke.
        fresh: It has not said a word yet, and no controller can have given it anything.
        rival: Another incarnation that has spoken under the same index, and since when.
    """

    since: float
    heard: float
    incarnation: str | None = None
    identity: str | None = None
    seen: float = float("-inf")
    introduced: float = float("-inf")
    fresh: bool = False
    max_bytes_s: float | None = None
    max_records_s: float | None = None
    rival: tuple[str, float] | None = None


class MoveStage(StrEnum):
    """How far the move of a partition has come."""

    WAITING = "waiting"
    STOPPING = "stopping"
    STARTING = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """A partition on its way to `target`, or away from the group where that is None."""

    target: int | None
    stage: MoveStage = MoveStage.WAITING
    asked: int | None = None  # the consumer that was told
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A plan that was ordered and is being carried out; `step` of its `moves` are done."""

    order: PlanOrdered
    target: Assignment
    moves: frozenset[TopicPartition]
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHold:
    """A plan that was ordered and is not to be undone without need for a while."""

    plan: str = ""
    left_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """Consumers that are on their way, and whether more may be started.

    Attributes:
        starting: How long each has been starting, in seconds.
        patience_s: How long the one that has taken longest may take.
        words: What is known of why that one is not there yet.
        promised: Partitions that wait for one of these.
        retry_in_s: No other consumer is started before that; 0 means at once.
        failure: Why the last one did not start.
    """

    starting: Mapping[int, float] = field(default_factory=dict)
    patience_s: float = 0.0
    words: str = ""
    promised: frozenset[TopicPartition] = frozenset()
    retry_in_s: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """What a policy decides from.

    `consumers` are those that may be given something, with or without partitions; `spares` of them
    are kept idle on purpose. `max_bytes_s` and `max_records_s` are what consumers report of their
    capacity, by consumer; in a subscribed group members are interchangeable, and the keys merely
    count the reports.
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
    lost: str = ""  # what became of the last consumer that took partitions with it
    ended: int = 0  # how many did so since partitions were last given out
    subscribed: tuple[str, ...] = ()  # members that the brokers know, which must not be
    ending: Mapping[int, str] = field(default_factory=dict)  # not yet gone, and what is known why
    withheld: frozenset[TopicPartition] = frozenset()  # until those are gone
    hold: PlanHold = PlanHold()


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A decision, and the assignment to go to where it asks for one, by a plan if there is one."""

    decision: Decision
    target: Assignment | None = None
    plan: ConsumerPlan | None = None


Policy = Callable[[GroupView], GroupVerdict | None]
"""Looks, and decides or finds no reason to; pure, as planners are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """How patient the controller is; `start_timeout_s` doubles with every failed start."""

    sync_timeout_s: float = 60.0
    start_timeout_s: float = 60.0
    manage_timeout_s: float = 300.0
    dead_after_s: float = 30.0
    contested_after_s: float = 5.0
    strangers_s: float = 10.0  # two signs of life fit in
    awake_s: float = 6.0  # nothing is handed to a consumer silent for longer; they report every 5 s
    longest_pause_s: float = 60.0  # between consumers that end as they start
    warm_spares: int = 0
    max_consumers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """All that the controller knows."""

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
    creating: Mapping[int, float] = field(default_factory=dict)  # consumer → asked for since
    leaving: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()  # idle, and the orchestrator could not let them go
    killing: frozenset[int] = frozenset()
    unseen: frozenset[int] = frozenset()  # had partitions, and the orchestrator has them not
    listens_until: float = float("-inf")
    failed_starts: int = 0  # in a row: consumers that ended before they said a word
    tries: Mapping[int, int] = field(default_factory=dict)  # failed starts by consumer
    creates_from: float = float("-inf")
    failure: str = ""
    lost: str = ""
    ended: int = 0
    words: Mapping[int, str] = field(default_factory=dict)
    subscribed: tuple[str, ...] = ()
    order: PlanOrdered | None = None  # waits until everything is settled
    execution: Execution | None = None
    hold_plan: str = ""
    hold_until: float = float("-inf")

    @property
    def query_id(self) -> str:
        """The query that counts: of this epoch, and the newest."""
        return f"{self.epoch}.{self.queries}"

    @property
    def ready(self) -> frozenset[int]:
        """Consumers that are known and may be given something."""
        off = self.leaving | self.killing
        return frozenset(
            c for c, m in self.members.items() if m.incarnation and not m.rival and c not in off
        )

    @property
    def awake(self) -> frozenset[int]:
        """Those of them that were heard lately: a silent one would not read what it is given."""
        since = self.now - self.rules.awake_s
        return frozenset(c for c in self.ready if self.members[c].heard >= since)

    @property
    def unknown(self) -> frozenset[int]:
        """Consumers that have not said yet what they read, and may read something."""
        return frozenset(c for c, m in self.members.items() if not (m.incarnation or m.fresh))

    @property
    def frozen(self) -> frozenset[TopicPartition]:
        """Partitions whose consumer can be relied on no more and is not yet gone for certain.

        While one that never answered cannot be ended either, it may read whatever nobody claims.
        """
        unknown = self.unknown
        doubtful = {c for c, m in self.members.items() if m.rival} | unknown | self.killing
        frozen = {p for p, c in self.held.items() if c in doubtful}
        if unknown & self.killing:
            frozen |= self.partitions - self.held.keys()
        return frozenset(frozen)

    def patience_s(self, consumer: int) -> float:
        """How long a consumer may take to start; longer with every try that failed."""
        return self.rules.start_timeout_s * 2.0 ** min(self.tries.get(consumer, 0), _DOUBLINGS)

    @property
    def starting(self) -> dict[int, float]:
        """Consumers on their way that have not said a word yet, and since when."""
        off = self.leaving | self.killing
        seen = {c: m.since for c, m in self.members.items() if m.fresh}
        return {c: t for c, t in sorted({**self.creating, **seen}.items()) if c not in off}

    @property
    def parked(self) -> bool:
        """Whether everything that is left to do waits for consumers that are starting."""
        doable, starting = {None, *self.ready}, self.starting
        return any(m.target in starting for m in self.moves.values()) and not any(
            m.stage is not MoveStage.WAITING or m.target in doable for m in self.moves.values()
        )

    def startup(self) -> Startup:
        """How far consumers are that are on their way."""
        starting = self.starting
        slowest = min(starting, key=lambda c: (starting[c], c), default=None)
        return Startup(
            starting={c: self.now - since for c, since in starting.items()},
            patience_s=0.0 if slowest is None else self.patience_s(slowest),
            words="" if slowest is None else self.words.get(slowest, ""),
            promised=frozenset(p for p, m in self.moves.items() if m.target in starting),
            retry_in_s=max(0.0, self.creates_from - self.now),
            failure=self.failure,
        )

    def view(self) -> GroupView:
        """What is to be decided from."""
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
            ending={c: self.words.get(c, "") for c in sorted(self.killing)},
            withheld=self.partitions & frozen if self.killing else frozenset(),
            hold=PlanHold(plan=self.hold_plan, left_s=max(0.0, self.hold_until - self.now)),
        )
