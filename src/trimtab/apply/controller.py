"""The controller of a consumer group whose partitions are given out by hand.

Why      Nobody but the controller says who reads what, so that a partition can be moved without
         stopping the group. It must never be read by two, whoever crashes, freezes or comes back.
Promise  A partition is given to a consumer only after its last one has said `stopped` under the
         incarnation that held it, or after the orchestrator has confirmed that this process is
         gone; silence alone proves nothing. What is believed after a start or a disagreement is
         what living consumers answer, never what was once written down. Every hand-over ends: by
         its last acknowledgement, or after `manage_timeout_s` by asking everybody anew.
Cost     A step costs as much as there are partitions, and a decision what its planner costs.
Paper    Landau et al., section V: synchronize → sentinel → reassign → group management. Differs:
         partitions move independently of one another, a stop is sent only when the consumer to
         come is ready, and consumers are judged by incarnation.

`step` is pure: time, what was heard and what the orchestrator sees come in as events, what is to be
done comes out as effects. `Send` and `Persist` of one step belong into one transaction, before all
other effects of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Command,
    Decision,
    GroupState,
    Hello,
    Rate,
    Report,
    Start,
    Started,
    State,
    StateQuery,
    Stop,
    Stopped,
)
from trimtab.model.plan import Plan

# ---------------------------------------------------------------- what happens


@dataclass(frozen=True, slots=True)
class Led:
    """This controller leads from now on; `found` is what the last one left behind.

    `living` is what the orchestrator has: consumer index → identity of the process.
    """

    now: float
    living: Mapping[int, str]
    found: GroupState | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A consumer has said something."""

    now: float
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Time has passed: the processes that exist, index → identity, and the partitions there are.

    `partitions` is None while the cluster cannot say.
    """

    now: float
    living: Mapping[int, str]
    partitions: frozenset[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class Gone:
    """The orchestrator has ended a consumer and confirms that this process of it is no more.

    Without an identity it could not be started: what lives under its index is not meant.
    """

    now: float
    consumer: int
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The orchestrator could not let these go, or did not want to: they may be used again."""

    now: float
    consumers: frozenset[int]


Event = Led | Heard | Looked | Gone | Kept

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
    """End this process of a consumer for certain, and report `Gone`."""

    consumer: int
    why: str
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision to be published, with what it rests on and the plan that it follows."""

    decision: Decision
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line in the log; a violation should never come up at all."""

    what: str
    consumer: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    violation: bool = False


Effect = Send | Persist | Create | Remove | Kill | Decide | Note

# ---------------------------------------------------------------- what is known


class Phase(StrEnum):
    """Where the controller is; to reassign takes no time, so it is no state to stay in."""

    SYNCHRONIZE = "synchronize"
    SENTINEL = "sentinel"
    MANAGE = "group management"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A consumer that exists; what it is called is unknown until it has answered.

    Attributes:
        since: When it was first seen, or was last asked in vain.
        heard: When it last spoke.
        identity: The process that the orchestrator had under this index, once it was looked at.
        seen: When the orchestrator last had that process.
        introduced: When the incarnation first spoke.
        rival: Another incarnation that has spoken under the same index, and since when.
    """

    since: float
    heard: float
    incarnation: str | None = None
    identity: str | None = None
    seen: float = float("-inf")
    introduced: float = float("-inf")
    max_bytes_s: float | None = None
    max_records_s: float | None = None
    rival: tuple[str, float] | None = None


class Stage(StrEnum):
    """How far the move of a partition has come."""

    WAITING = "waiting"
    STOPPING = "stopping"
    STARTING = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition on its way to `target`, or away from the group where that is None."""

    target: int | None
    stage: Stage = Stage.WAITING
    asked: int | None = None  # the consumer that was told
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a policy decides from."""

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision, and the assignment to go to where it asks for one, by a plan if there is one."""

    decision: Decision
    target: Assignment | None = None
    plan: Plan | None = None


Policy = Callable[[View], Verdict | None]
"""Looks, and decides or finds no reason to; pure, as planners are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How patient the controller is."""

    sync_timeout_s: float = 60.0
    manage_timeout_s: float = 300.0
    dead_after_s: float = 30.0
    contested_after_s: float = 5.0
    strangers_s: float = 10.0  # two signs of life fit in
    longest_pause_s: float = 60.0  # between consumers that end as they start
    warm_spares: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """All that the controller knows."""

    rules: Rules = Rules()
    epoch: int = 0
    seq: int = 0
    queries: int = 0
    phase: Phase = Phase.SYNCHRONIZE
    now: float = 0.0
    entered: float = 0.0
    scaled_at: float = float("-inf")
    decided_at: float = float("-inf")
    clean: bool = True
    members: Mapping[int, Member] = field(default_factory=dict)
    found: Assignment = field(default_factory=Assignment)
    held: Mapping[TopicPartition, int] = field(default_factory=dict)
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = frozenset()
    creating: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    killing: frozenset[int] = frozenset()
    unseen: frozenset[int] = frozenset()  # had partitions, and the orchestrator has them not
    listens_until: float = float("-inf")
    stillborn: int = 0  # consumers in a row that ended before they said a word
    creates_from: float = float("-inf")

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
    def frozen(self) -> frozenset[TopicPartition]:
        """Partitions whose consumer can be relied on no more and is not yet gone for certain.

        While one that never answered cannot be ended either, it may read whatever nobody claims.
        """
        unknown = {c for c, m in self.members.items() if m.incarnation is None}
        doubtful = {c for c, m in self.members.items() if m.rival} | unknown | self.killing
        frozen = {p for p, c in self.held.items() if c in doubtful}
        if unknown & self.killing:
            frozen |= self.partitions - self.held.keys()
        return frozenset(frozen)

    def view(self) -> View:
        """What is to be decided from."""
        known = {c: self.members[c] for c in sorted(self.ready)}
        frozen = self.frozen
        return View(
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
        )


def step(state: Controller, event: Event, policy: Policy) -> tuple[Controller, tuple[Effect, ...]]:
    """What is known after an event, and what is to be done about it."""
    turn = _Turn(replace(state, now=event.now))
    match event:
        case Led(living=living, found=found):
            turn.lead(living, found)
        case Heard(report=report):
            turn.hear(report)
        case Looked(living=living, partitions=partitions):
            turn.look(living, partitions)
        case Gone(consumer=consumer, identity=identity):
            turn.mourn(consumer, identity)
        case Kept(consumers=consumers):
            turn.set(leaving=turn.state.leaving - consumers)
        case _:
            assert_never(event)
    turn.go_on(policy if isinstance(event, Looked) else None)
    return turn.state, tuple(turn.effects)


_Told = dict[int, list[TopicPartition]]


class _Turn:
    """One step: the state as it becomes, and the effects as they add up."""

    def __init__(self, state: Controller) -> None:
        self.state = state
        self.effects: list[Effect] = []

    def set(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def member(self, consumer: int, **changes: object) -> None:
        known = self.state.members[consumer]
        changed = replace(known, **changes)  # type: ignore[arg-type]
        self.set(members={**self.state.members, consumer: changed})

    def note(
        self,
        what: str,
        consumer: int | None = None,
        partitions: Iterable[TopicPartition] = (),
        *,
        violation: bool = False,
    ) -> None:
        self.effects.append(Note(what, consumer, tuple(sorted(partitions)), violation))

    # ------------------------------------------------------------ events

    def lead(self, living: Mapping[int, str], found: GroupState | None) -> None:
        """A new reign: nothing is believed but what consumers answer."""
        old = self.state
        members = {
            c: Member(since=old.now, heard=old.now, identity=i, seen=old.now)
            for c, i in sorted(living.items())
        }
        self.state = Controller(
            rules=old.rules,
            epoch=found.epoch + 1 if found else 1,
            now=old.now,
            members=members,
            partitions=old.partitions,
            clean=False,
            found=found.assignment if found else Assignment(),
        )
        self.persist(self.state.found)
        self.synchronize("a controller took the lead")
        self.listen_for(self.state.found.consumers - living.keys())

    def listen_for(self, unseen: Set[int]) -> None:
        """Consumers that should be there are dead, or run where this orchestrator does not look."""
        if unseen:
            until = self.state.now + self.state.rules.strangers_s
            self.set(unseen=frozenset(unseen), listens_until=until)
            for consumer in sorted(unseen):
                self.query(consumer)

    def synchronize(self, why: str) -> None:
        """Asks everybody what they read, and forgets what was under way."""
        state = self.state
        members = {
            c: replace(m, incarnation=None, rival=None, since=state.now)
            for c, m in state.members.items()
        }
        self.set(
            phase=Phase.SYNCHRONIZE,
            entered=state.now,
            queries=state.queries + 1,
            members=members,
            held={},
            moves={},
            creating=frozenset(),
        )
        self.note(f"synchronizing: {why}")
        for consumer in sorted(members):
            self.query(consumer)

    def query(self, consumer: int) -> None:
        question = StateQuery(epoch=self.state.epoch, query_id=self.state.query_id)
        self.effects.append(Send(consumer, question))

    def hear(self, report: Report) -> None:
        """Takes in what a consumer says; one that the orchestrator does not have is not heard."""
        member = self.state.members.get(report.consumer)
        if member is None:
            if report.consumer in self.state.unseen and not isinstance(report, Hello):
                self.note("it runs elsewhere, and nothing is given out meanwhile", report.consumer)
                self.set(listens_until=self.state.now + self.state.rules.strangers_s)
            return
        if member.incarnation is None:
            self.introduce(report)
        elif report.incarnation != member.incarnation:
            self.doubt(member, report)
        else:
            self.member(report.consumer, heard=self.state.now)
            self.obeyed(report)

    def introduce(self, report: Report) -> None:
        """The first word of a consumer: only one that says what it reads makes it known."""
        match report:
            case State(query_id=query_id) if query_id != self.state.query_id:
                return
            case State() | Hello():
                self.member(
                    report.consumer,
                    incarnation=report.incarnation,
                    heard=self.state.now,
                    introduced=self.state.now,
                )
                self.set(
                    creating=self.state.creating - {report.consumer},
                    stillborn=0,
                    creates_from=float("-inf"),
                )
                self.believe(report.consumer, report.partitions)
            case _:
                return

    def believe(self, consumer: int, partitions: Iterable[TopicPartition]) -> None:
        """What it reads is so; what another one reads as well must be stopped on both."""
        others = {p: c for p, c in self.state.held.items() if c != consumer}
        twice = [p for p in partitions if p in others]
        self.set(held={**others, **{p: consumer for p in partitions if p not in twice}})
        if twice:
            self.note("two consumers read the same partition", consumer, twice, violation=True)
            for other in sorted({self.state.held[p] for p in twice} | {consumer}):
                # Nobody can say who read what first: both go, and both are buried before others.
                self.kill(other, "it reads what another one reads")

    def doubt(self, member: Member, report: Report) -> None:
        """Another incarnation under a known index: its predecessor must be gone for certain."""
        if member.rival is None or member.rival[0] != report.incarnation:
            self.member(report.consumer, rival=(report.incarnation, self.state.now))
            self.note("another process speaks under a known index", report.consumer)

    def obeyed(self, report: Report) -> None:
        match report:
            case Rate(max_bytes_s=bytes_s, max_records_s=records_s):
                self.member(report.consumer, max_bytes_s=bytes_s, max_records_s=records_s)
            case Stopped():
                for partition in self.acknowledged(report, Stage.STOPPING):
                    held = {p: c for p, c in self.state.held.items() if p != partition}
                    self.set(held=held)
                    self.free(partition)
            case Started():
                for partition in self.acknowledged(report, Stage.STARTING):
                    self.set(held={**self.state.held, partition: report.consumer})
                    self.drop(partition)
            case State() | Hello():
                pass  # said again
            case _:
                assert_never(report)

    def acknowledged(self, report: Started | Stopped, stage: Stage) -> list[TopicPartition]:
        """The moves that an acknowledgement speaks of: of this epoch, asked of this consumer."""
        if report.epoch != self.state.epoch:
            return []
        wanted = {"stage": stage, "asked": report.consumer, "seq": report.seq}
        return [
            p
            for p in report.partitions
            if (move := self.state.moves.get(p)) is not None
            and {"stage": move.stage, "asked": move.asked, "seq": move.seq} == wanted
        ]

    def free(self, partition: TopicPartition) -> None:
        """Nobody reads it now: on to its target, or done where it has none."""
        move = self.state.moves[partition]
        if move.target is None:
            self.drop(partition)
        else:
            self.set(moves={**self.state.moves, partition: Move(target=move.target)})

    def drop(self, partition: TopicPartition) -> None:
        self.set(moves={p: m for p, m in self.state.moves.items() if p != partition})

    def look(self, living: Mapping[int, str], partitions: frozenset[TopicPartition] | None) -> None:
        """Compares what is known with what exists."""
        if partitions is not None:
            self.set(partitions=partitions)
        for consumer in sorted(self.state.members):
            self.recognize(consumer, living.get(consumer))
        for consumer in sorted(living.keys() - self.state.members.keys()):
            now, identity = self.state.now, living[consumer]
            fresh = Member(since=now, heard=now, identity=identity, seen=now)
            self.set(members={**self.state.members, consumer: fresh})
            self.query(consumer)
        for consumer, member in sorted(self.state.members.items()):
            self.examine(consumer, member)
        if partitions is not None:
            self.give_up(self.state.held.keys() - partitions - self.state.frozen)

    def recognize(self, consumer: int, identity: str | None) -> None:
        """Is it still the process that was seen before?"""
        member, now = self.state.members[consumer], self.state.now
        if identity is not None and member.identity in (None, identity):
            self.member(consumer, identity=identity, seen=now)
        elif identity is None or member.incarnation is None or member.introduced < member.seen:
            self.bury(consumer)
        else:
            # The one before has spoken, or this one has: until it says, it keeps what it was given.
            again = {"identity": identity, "incarnation": None, "rival": None}
            self.member(consumer, **again, since=now, heard=now, seen=now)
            self.set(
                killing=self.state.killing - {consumer}, leaving=self.state.leaving - {consumer}
            )
            self.query(consumer)

    def give_up(self, vanished: Set[TopicPartition]) -> None:
        """Takes partitions that are no more from their consumers, who may have let them go.

        Should they come back under the same name, they are given out like new ones.
        """
        if vanished and self.state.phase is Phase.SENTINEL:
            self.note("partitions are no more", partitions=vanished)
            self.begin(Assignment({p: c for p, c in self.state.held.items() if p not in vanished}))

    def examine(self, consumer: int, member: Member) -> None:
        """Has a consumer ended that cannot be relied on, however it looks."""
        rules, now = self.state.rules, self.state.now
        if consumer in self.state.killing:
            return
        if member.incarnation is None and now - member.since > rules.sync_timeout_s:
            self.kill(consumer, f"no answer for {rules.sync_timeout_s:g} s")
        elif member.incarnation is not None and now - member.heard > rules.dead_after_s:
            self.kill(consumer, f"silent for {rules.dead_after_s:g} s")
        elif member.rival is not None and now - member.rival[1] > rules.contested_after_s:
            self.kill(consumer, "two processes speak under its index")

    def kill(self, consumer: int, why: str) -> None:
        if consumer not in self.state.killing:
            self.set(killing=self.state.killing | {consumer})
            self.effects.append(Kill(consumer, why, self.state.members[consumer].identity))

    def mourn(self, consumer: int, identity: str | None) -> None:
        """Buries a consumer, unless another process is there by now: then it is old news."""
        member = self.state.members.get(consumer)
        if member is None or member.identity == identity:
            self.bury(consumer)

    def bury(self, consumer: int) -> None:
        """A consumer is gone for certain: what it read is free, what it was to read is not read."""
        state = self.state
        lost = {p for p, c in state.held.items() if c == consumer}
        if lost:
            self.note("a consumer is gone", consumer, lost)
        if consumer in state.creating and state.now >= state.creates_from:  # once per attempt
            pause_s = min(2.0 ** min(state.stillborn, 9), state.rules.longest_pause_s)
            self.set(stillborn=state.stillborn + 1, creates_from=state.now + pause_s)
            self.note(f"it ended before it said a word; the next one in {pause_s:g} s", consumer)
        self.set(
            members={c: m for c, m in state.members.items() if c != consumer},
            held={p: c for p, c in state.held.items() if c != consumer},
            leaving=state.leaving - {consumer},
            killing=state.killing - {consumer},
            creating=state.creating - {consumer},
        )
        for partition, move in sorted(state.moves.items()):
            if move.asked == consumer and move.stage is Stage.STOPPING:
                self.free(partition)
            elif move.target == consumer:
                if move.stage is Stage.STOPPING:  # who reads it then is a new question
                    self.set(moves={**self.state.moves, partition: replace(move, target=None)})
                else:
                    self.drop(partition)

    # ------------------------------------------------------------ going on

    def go_on(self, policy: Policy | None) -> None:
        """What follows from what is known now."""
        if self.state.phase is Phase.SYNCHRONIZE:
            self.see_whether_all_have_answered()
        if self.state.phase is Phase.SENTINEL and policy is not None:
            self.decide(policy)
        if self.state.phase is Phase.MANAGE:
            self.manage()

    def see_whether_all_have_answered(self) -> None:
        silent = {c for c, m in self.state.members.items() if m.incarnation is None}
        if silent - self.state.killing:
            return
        if self.state.killing and self.state.now - self.state.entered < self._patience_s:
            return
        if self.state.unseen and self.state.now < self.state.listens_until:
            return
        found, held = self.state.found, self.state.held
        other = [p for p in found.keys() | held.keys() if found.get(p) != held.get(p)]
        self.note("all consumers have answered", partitions=other)
        self.set(phase=Phase.SENTINEL, entered=self.state.now, clean=True, unseen=frozenset())
        self.persist()

    @property
    def _patience_s(self) -> float:
        """How long the others wait for the end of those that did not answer."""
        return 2 * self.state.rules.sync_timeout_s

    def decide(self, policy: Policy) -> None:
        verdict = policy(self.state.view())
        if verdict is None:
            return
        self.set(decided_at=self.state.now)
        self.effects.append(Decide(verdict.decision, verdict.plan))
        if verdict.target is None:
            return
        if verdict.decision.before != verdict.decision.after:
            self.set(scaled_at=self.state.now)
        self.begin(verdict.target)

    def begin(self, target: Assignment) -> None:
        """The difference of what is and what should be, as moves."""
        held = self.state.held
        moves: dict[TopicPartition, Move] = {
            p: Move(target=c) for p, c in sorted(target.items()) if held.get(p) != c
        }
        stay = self.state.frozen.union(target)
        moves |= {p: Move(target=None) for p in sorted(held) if p not in stay}
        self.set(phase=Phase.MANAGE, entered=self.state.now, moves=moves)

    def manage(self) -> None:
        """Tells everybody what can be told now; the rest waits for acknowledgements."""
        if not self.state.moves:
            self.finish()
            return
        if self.state.now - self.state.entered > self.state.rules.manage_timeout_s:
            self.synchronize("a hand-over took too long")
            return
        self.create_missing()
        stops, starts = self.due()
        if (stops or starts) and self.state.clean:
            self.set(clean=False)
            self.persist()
        for consumer, partitions in sorted(stops.items()):
            self.tell(Stop, Stage.STOPPING, consumer, partitions)
        for consumer, partitions in sorted(starts.items()):
            self.tell(Start, Stage.STARTING, consumer, partitions)
        if not self.state.moves:
            self.finish()

    def due(self) -> tuple[_Told, _Told]:
        """What can be stopped and what can be started now, by consumer."""
        stops: _Told = {}
        starts: _Told = {}
        possible = {None, *self.state.ready}
        for partition, move in sorted(self.state.moves.items()):
            if move.stage is not Stage.WAITING or move.target not in possible:
                continue
            holder = self.state.held.get(partition)
            if holder is not None and self.state.members[holder].incarnation is None:
                continue  # it is being asked what it reads
            if holder is not None:
                stops.setdefault(holder, []).append(partition)
            elif move.target is not None:
                starts.setdefault(move.target, []).append(partition)
            else:
                self.drop(partition)
        return stops, starts

    def create_missing(self) -> None:
        """Asks for consumers that the moves need and that do not exist, a leaving one once gone.

        While those just started have ended at once, nobody waits for another try.
        """
        targets = {m.target for m in self.state.moves.values() if m.target is not None}
        missing = targets - self.state.members.keys() - self.state.creating
        if missing and self.state.now >= self.state.creates_from:
            self.set(creating=self.state.creating | missing)
            self.effects.append(Create(tuple(sorted(missing))))
        elif missing:
            for partition, move in sorted(self.state.moves.items()):
                if move.target in missing and move.stage is Stage.WAITING:
                    self.drop(partition)

    def tell(
        self,
        kind: type[Start] | type[Stop],
        stage: Stage,
        consumer: int,
        partitions: list[TopicPartition],
    ) -> None:
        seq = self.state.seq + 1
        moves = {
            p: replace(self.state.moves[p], stage=stage, asked=consumer, seq=seq)
            for p in partitions
        }
        self.set(seq=seq, moves={**self.state.moves, **moves})
        command = kind(
            epoch=self.state.epoch,
            seq=seq,
            partitions=tuple(partitions),
            incarnation=self.state.members[consumer].incarnation,
        )
        self.effects.append(Send(consumer, command))

    def finish(self) -> None:
        """All moves are done: writes it down, lets the idle go, and watches again."""
        self.set(phase=Phase.SENTINEL, entered=self.state.now, clean=True)
        self.persist()
        busy = set(self.state.held.values())
        idle = sorted(self.state.ready - busy)[self.state.rules.warm_spares :]
        if idle:
            self.set(leaving=self.state.leaving | set(idle))
            self.effects.append(Remove(tuple(idle)))

    def persist(self, assignment: Assignment | None = None) -> None:
        if assignment is None:
            assignment = Assignment(dict(sorted(self.state.held.items())))
        kept = GroupState(epoch=self.state.epoch, clean=self.state.clean, assignment=assignment)
        self.effects.append(Persist(kept))
