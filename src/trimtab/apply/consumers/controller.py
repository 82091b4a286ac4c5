"""The controller of a consumer group whose partitions are given out by hand.

Why      Nobody but the controller says who reads what, so that a partition can be moved without
         stopping the group. It must never be read by two, whoever crashes, freezes or comes back.
Promise  A partition is given to a consumer only after its last one has said `stopped` under the
         incarnation that held it, or after the orchestrator has confirmed that this process is
         gone; silence alone proves nothing. What is believed after a start or a disagreement is
         what living consumers answer, never what was once written down. Every hand-over ends: by
         its last acknowledgement, after `sync_timeout_s` without those that cannot be ended, or
         after `manage_timeout_s` by asking everybody anew.
Cost     A step costs as much as there are partitions, and a decision what its planner costs.
Paper    Landau et al., section V: synchronize → sentinel → reassign → group management. Differs:
         partitions move independently of one another, a stop is sent only when the consumer to
         come is ready and was heard lately, and consumers are judged by incarnation.

              everybody has answered                     a decision, a plan that was ordered,
  SYNCHRONIZE ──────────────────────▶ SENTINEL            or partitions that are no more
       ▲                               │     ▲
       │ a hand-over took too long     ▼     │ every move is done
       └─────────────────────────────── MANAGE ◀─┐ another decision, while all
                                            └────┘ moves wait for consumers that start

A move: WAITING ─▶ STOPPING (its reader is told) ─▶ WAITING (nobody reads it) ─▶ STARTING ─▶ done.
`PHASES` is the table of this drawing; a new leader begins with SYNCHRONIZE.

`step` is pure: time, what was heard and what the orchestrator sees come in as events, what is to be
done comes out as effects. `Send` and `Persist` of one step belong into one transaction, before all
other effects of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import TypeVar, assert_never

from trimtab.apply.consumers.controller_state import (
    PHASES,
    ConsumerExited,
    ConsumerInfo,
    ControllerRules,
    ControllerState,
    Create,
    Decide,
    Effect,
    Event,
    Execution,
    GroupObserved,
    GroupVerdict,
    GroupView,
    Kill,
    LeadershipGained,
    MoveStage,
    Note,
    PartitionMove,
    Persist,
    Phase,
    PlanHold,
    PlanOrdered,
    Policy,
    RemovalRefused,
    Remove,
    ReportReceived,
    Send,
    Startup,
    WriteJournal,
)
from trimtab.apply.consumers.orders import (
    decision_of,
    entry_of,
    refusal_of,
    target_of,
    unfit,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Action,
    Decision,
    GroupState,
    Hello,
    Rate,
    Report,
    Start,
    Started,
    StateQuery,
    StateReport,
    Stop,
    Stopped,
)
from trimtab.model.journal import PlanState

__all__ = [
    "ConsumerExited",
    "ConsumerInfo",
    "ControllerRules",
    "ControllerState",
    "Create",
    "Decide",
    "Effect",
    "Event",
    "GroupObserved",
    "GroupVerdict",
    "GroupView",
    "Kill",
    "LeadershipGained",
    "MoveStage",
    "Note",
    "PartitionMove",
    "Persist",
    "Phase",
    "PlanHold",
    "PlanOrdered",
    "Policy",
    "RemovalRefused",
    "Remove",
    "ReportReceived",
    "Send",
    "Startup",
    "WriteJournal",
    "step",
    "surplus",
]


def surplus(view: GroupView, decision: Decision) -> frozenset[int]:
    """The idle consumers that a decision to leave the group as it is has no use for.

    Those that a plan would need stay: it may be carried out when a cooldown is over.
    """
    if decision.action is not Action.NONE:
        return frozenset()
    idle = sorted(view.consumers - set(view.assignment.consumers))
    wanted = max(0, int(decision.forecast.get("consumers", 0)) - decision.before)
    return frozenset(idle[view.spares + wanted :])


def step(
    state: ControllerState, event: Event, policy: Policy
) -> tuple[ControllerState, tuple[Effect, ...]]:
    """What is known after an event, and what is to be done about it."""
    turn = _Turn(replace(state, now=event.now))
    match event:
        case LeadershipGained(living=living, found=found):
            turn.lead(living, found)
            until = event.now + event.hold_s
            turn.set(hold_plan=event.hold_plan, hold_until=until if event.hold_plan else -math.inf)
        case ReportReceived(report=report):
            turn.hear(report)
        case GroupObserved(
            living=living, partitions=partitions, words=words, subscribed=subscribed
        ):
            turn.set(words=words)
            if subscribed is not None:
                turn.set(subscribed=subscribed)
            turn.look(living, partitions)
        case ConsumerExited(consumer=consumer, identity=identity, why=why):
            if why:
                turn.set(words={**turn.state.words, consumer: why})
            turn.mourn(consumer, identity)
        case RemovalRefused(consumers=consumers):
            turn.set(leaving=turn.state.leaving - consumers, kept=turn.state.kept | set(consumers))
        case PlanOrdered():
            turn.take_order(event)
        case _:
            assert_never(event)
    turn.go_on(policy if isinstance(event, GroupObserved) else None)
    turn.record_progress()
    return turn.state, tuple(turn.effects)


_T = TypeVar("_T")
_Told = dict[int, list[TopicPartition]]


def _without(mapping: Mapping[int, _T], key: int) -> dict[int, _T]:
    return {k: value for k, value in mapping.items() if k != key}


class _Turn:
    """One step: the state as it becomes, and the effects as they add up."""

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self.effects: list[Effect] = []

    def set(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def enter(self, phase: Phase, **changes: object) -> None:
        """Goes on to another phase, if the table allows it."""
        if phase not in PHASES[self.state.phase]:
            raise AssertionError(f"{self.state.phase} cannot become {phase}")
        self.set(phase=phase, entered=self.state.now, **changes)

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
        # Whoever had nothing when all was settled cannot read anything, and may yet be starting.
        settled = found is None or found.clean
        busy = found.assignment.consumers if found else ()
        members = {
            c: ConsumerInfo(
                since=old.now,
                heard=old.now,
                identity=i,
                seen=old.now,
                fresh=settled and c not in busy,
            )
            for c, i in sorted(living.items())
        }
        self.state = ControllerState(
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
        self.abandon(f"it was interrupted: {why}")
        state = self.state
        members = {
            c: m if m.fresh else replace(m, incarnation=None, rival=None, since=state.now)
            for c, m in state.members.items()
        }
        self.enter(
            Phase.SYNCHRONIZE,
            queries=state.queries + 1,
            members=members,
            held={},
            moves={},
            creating={},
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
            case StateReport(query_id=query_id) if query_id != self.state.query_id:
                return
            case StateReport() | Hello():
                self.member(
                    report.consumer,
                    incarnation=report.incarnation,
                    heard=self.state.now,
                    introduced=self.state.now,
                    fresh=False,
                )
                self.set(
                    creating=_without(self.state.creating, report.consumer),
                    tries=_without(self.state.tries, report.consumer),
                    failed_starts=0,
                    creates_from=float("-inf"),
                    failure="",
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

    def doubt(self, member: ConsumerInfo, report: Report) -> None:
        """Another incarnation under a known index: its predecessor must be gone for certain."""
        if member.rival is None or member.rival[0] != report.incarnation:
            self.member(report.consumer, rival=(report.incarnation, self.state.now))
            self.note("another process speaks under a known index", report.consumer)

    def obeyed(self, report: Report) -> None:
        match report:
            case Rate(max_bytes_s=bytes_s, max_records_s=records_s):
                self.member(report.consumer, max_bytes_s=bytes_s, max_records_s=records_s)
            case Stopped():
                for partition in self.acknowledged(report, MoveStage.STOPPING):
                    held = {p: c for p, c in self.state.held.items() if p != partition}
                    self.set(held=held)
                    self.free(partition)
            case Started():
                for partition in self.acknowledged(report, MoveStage.STARTING):
                    self.set(held={**self.state.held, partition: report.consumer})
                    self.drop(partition)
            case StateReport() | Hello():
                pass  # said again
            case _:
                assert_never(report)

    def acknowledged(self, report: Started | Stopped, stage: MoveStage) -> list[TopicPartition]:
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
            self.set(moves={**self.state.moves, partition: PartitionMove(target=move.target)})

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
            since = self.state.creating.get(consumer, now)
            new = consumer not in self.state.unseen
            fresh = ConsumerInfo(since=since, heard=now, identity=identity, seen=now, fresh=new)
            self.set(members={**self.state.members, consumer: fresh})
            self.query(consumer)
        for consumer, since in sorted(self.state.creating.items()):
            if consumer not in living and self.state.now - since > self.state.patience_s(consumer):
                self.bury(consumer)
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
            self.abandon("partitions were deleted meanwhile")
            self.begin(Assignment({p: c for p, c in self.state.held.items() if p not in vanished}))

    def examine(self, consumer: int, member: ConsumerInfo) -> None:
        """Has a consumer ended that cannot be relied on, however it looks."""
        rules, now = self.state.rules, self.state.now
        if consumer in self.state.killing:
            return
        patience_s = self.state.patience_s(consumer) if member.fresh else rules.sync_timeout_s
        if member.incarnation is None and now - member.since > patience_s:
            self.kill(consumer, f"no answer for {patience_s:g} s")
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
        words = f": {state.words[consumer]}" if consumer in state.words else ""
        lost = {p for p, c in state.held.items() if c == consumer}
        if lost:
            self.note(f"a consumer is gone{words}", consumer, lost)
            self.set(lost=f"consumer {consumer} ended{words}", ended=state.ended + 1)
        member = state.members.get(consumer)
        if consumer in state.creating or (member is not None and member.fresh):
            self.not_started(consumer, words)
        self.set(
            members=_without(state.members, consumer),
            held={p: c for p, c in state.held.items() if c != consumer},
            leaving=state.leaving - {consumer},
            killing=state.killing - {consumer},
            creating=_without(state.creating, consumer),
        )
        for partition, move in sorted(state.moves.items()):
            if move.asked == consumer and move.stage is MoveStage.STOPPING:
                self.free(partition)
            elif move.target == consumer:
                if move.stage is MoveStage.STOPPING:  # who reads it then is a new question
                    self.set(moves={**self.state.moves, partition: replace(move, target=None)})
                else:
                    self.drop(partition)

    def not_started(self, consumer: int, words: str) -> None:
        """A consumer ended before it said a word: the next one comes after a pause that grows."""
        state = self.state
        if consumer in state.leaving:  # it was not wanted any more
            return
        timed_out = f" within {state.patience_s(consumer):g} s" if consumer in state.killing else ""
        why = f"{timed_out}{words}"
        self.set(
            failure=f"consumer {consumer} did not start{why}",
            tries={**state.tries, consumer: state.tries.get(consumer, 0) + 1},
        )
        if state.now >= state.creates_from:  # once for all that were asked for together
            pause_s = min(2.0 ** min(state.failed_starts, 9), state.rules.longest_pause_s)
            self.set(failed_starts=state.failed_starts + 1, creates_from=state.now + pause_s)
            self.note(f"it did not start{why}; the next try is in {pause_s:g} s", consumer)

    # ------------------------------------------------------------ going on

    def go_on(self, policy: Policy | None) -> None:
        """What follows from what is known now."""
        if self.state.phase is Phase.SYNCHRONIZE:
            self.see_whether_all_have_answered()
        if self.state.phase is Phase.SENTINEL and not self.state.clean and not self.state.unknown:
            self.settle()
        if self.state.order is not None:
            self.see_to_order(self.state.order)
        if self.state.phase is Phase.SENTINEL and policy is not None:
            self.decide(policy)
        if self.state.phase is Phase.MANAGE:
            if self.state.parked and policy is not None:
                self.decide(policy)
            self.manage()

    def see_whether_all_have_answered(self) -> None:
        if self.state.unknown - self.state.killing:
            return
        if self.state.killing and self.state.now - self.state.entered < self._patience_s:
            return
        if self.state.unseen and self.state.now < self.state.listens_until:
            return
        found, held = self.state.found, self.state.held
        other = [p for p in found.keys() | held.keys() if found.get(p) != held.get(p)]
        self.note("all consumers have answered", partitions=other)
        self.enter(Phase.SENTINEL, unseen=frozenset())
        self.settle()

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
            if self.state.phase is Phase.MANAGE:
                return
            self.release(surplus(self.state.view(), verdict.decision) - self.state.kept)
            return
        self.abandon(f"another decision came first: {verdict.decision.reason}")
        if verdict.decision.before != verdict.decision.after:
            self.set(scaled_at=self.state.now)
        self.begin(verdict.target)

    # ------------------------------------------------------------ plans that are ordered

    def take_order(self, order: PlanOrdered) -> None:
        """Keeps an order until everything is settled; one at a time."""
        state = self.state
        under_way = state.execution.order if state.execution is not None else state.order
        if under_way is None:
            self.set(order=order)
        elif under_way.plan_id != order.plan_id:  # an order that is repeated changes nothing
            self.refuse(order, f"plan {under_way.plan_id} is being carried out")

    def refuse(self, order: PlanOrdered, why: str) -> None:
        consumers = len(set(self.state.held.values()))
        self.effects.append(WriteJournal(entry_of(order, PlanState.FAILED, why=why)))
        self.effects.append(Decide(refusal_of(order, why, consumers)))

    def see_to_order(self, order: PlanOrdered) -> None:
        """Begins with a plan once the group is settled, or refuses it."""
        state = self.state
        if order.refused or order.plan is None:
            self.set(order=None)
            self.refuse(order, order.refused or f"plan {order.plan_id} is not known")
            return
        settled = state.phase is Phase.SENTINEL and not (state.unknown or state.killing)
        if settled and state.partitions:
            self.set(order=None)
            held = Assignment(dict(state.held))
            why = unfit(order, state.partitions, held, most=state.rules.max_consumers)
            if state.subscribed:
                why = f"the group has subscribed members ({', '.join(state.subscribed[:3])})"
            if why:
                self.refuse(order, why)
            else:
                self.carry_out(order, held, target_of(order.plan, held))
        elif state.now > order.until:
            self.set(order=None)
            self.refuse(order, "the group was not settled in time")

    def carry_out(self, order: PlanOrdered, held: Assignment, target: Assignment) -> None:
        moves = frozenset(p for p, c in target.items() if held.get(p) != c)
        plan = order.plan
        if plan is not None and order.step is not None:  # also those that were done before
            moves |= {m.name for m in plan.moves}
        execution = Execution(order=order, target=target, moves=moves)
        self.set(
            execution=execution,
            decided_at=self.state.now,
            hold_plan=order.plan_id,
            hold_until=self.state.now + order.hold_s,
        )
        done = self.done_moves()
        self.effects.append(
            WriteJournal(entry_of(order, PlanState.RUNNING, step=done, of=len(moves)))
        )
        self.set(execution=replace(execution, step=done))
        self.effects.append(Decide(decision_of(order, held, target), plan))
        if len(held.consumers) != len(target.consumers):
            self.set(scaled_at=self.state.now)
        self.begin(target)

    def done_moves(self) -> int:
        """How many partitions are where the plan wants them."""
        execution = self.state.execution
        if execution is None:
            return 0
        return sum(self.state.held.get(p) == execution.target.get(p) for p in execution.moves)

    def record_progress(self) -> None:
        """Writes down how far the plan is, with the commands that lead further."""
        execution, done = self.state.execution, self.done_moves()
        if execution is not None and done != execution.step:
            self.set(execution=replace(execution, step=done))
            entry = entry_of(execution.order, PlanState.RUNNING, step=done, of=len(execution.moves))
            self.effects.append(WriteJournal(entry))

    def end_execution(self) -> None:
        """All moves are over: the plan is done, if nothing came between."""
        execution, done = self.state.execution, self.done_moves()
        if execution is None:
            return
        total = len(execution.moves)
        if done < total:
            self.abandon(f"{total - done} of {total} moves were not done: a consumer has ended")
            return
        order = execution.order
        self.set(execution=None, hold_until=self.state.now + order.hold_s)
        self.effects.append(WriteJournal(entry_of(order, PlanState.DONE, step=done, of=total)))

    def abandon(self, why: str) -> None:
        """The plan under way will not be finished; what was moved stays where it is."""
        execution = self.state.execution
        if execution is None:
            return
        entry = entry_of(
            execution.order,
            PlanState.FAILED,
            step=self.done_moves(),
            of=len(execution.moves),
            why=why,
        )
        self.set(execution=None, hold_plan="", hold_until=-math.inf)
        self.effects.append(WriteJournal(entry))

    # ------------------------------------------------------------ moves

    def begin(self, target: Assignment) -> None:
        """The difference of what is and what should be, as moves."""
        held = self.state.held
        moves: dict[TopicPartition, PartitionMove] = {
            p: PartitionMove(target=c) for p, c in sorted(target.items()) if held.get(p) != c
        }
        stay = self.state.frozen.union(target)
        moves |= {p: PartitionMove(target=None) for p in sorted(held) if p not in stay}
        self.enter(Phase.MANAGE, moves=moves, lost="", ended=0)

    def manage(self) -> None:
        """Tells everybody what can be told now; the rest waits for acknowledgements."""
        if self.state.now - self.state.entered > self.state.rules.sync_timeout_s:
            self.let_be()
        if not self.state.moves:
            self.finish()
            return
        late = self.state.now - self.state.entered > self.state.rules.manage_timeout_s
        if late and not self.state.parked:
            self.synchronize("a hand-over took too long")
            return
        self.create_missing()
        stops, starts = self.due()
        if (stops or starts) and self.state.clean:
            self.set(clean=False)
            self.persist()
        for consumer, partitions in sorted(stops.items()):
            self.tell(Stop, MoveStage.STOPPING, consumer, partitions)
        for consumer, partitions in sorted(starts.items()):
            self.tell(Start, MoveStage.STARTING, consumer, partitions)
        if not self.state.moves:
            self.finish()

    def let_be(self) -> None:
        """Waits no longer for consumers that cannot be ended, so that others can be helped.

        What they read, or were told to read, stays theirs until they are gone for certain.
        """
        ending = self.state.killing
        for partition, move in sorted(self.state.moves.items()):
            if move.asked in ending:
                if move.stage is MoveStage.STARTING:
                    self.set(held={**self.state.held, partition: move.asked})
                self.drop(partition)
            elif move.stage is MoveStage.STOPPING and move.target in ending:
                self.set(moves={**self.state.moves, partition: replace(move, target=None)})
            elif move.stage is MoveStage.WAITING and (
                move.target in ending or self.state.held.get(partition) in ending
            ):
                self.drop(partition)

    def due(self) -> tuple[_Told, _Told]:
        """What can be stopped and what can be started now, by consumer."""
        stops: _Told = {}
        starts: _Told = {}
        possible = {None, *self.state.awake}
        for partition, move in sorted(self.state.moves.items()):
            if move.stage is not MoveStage.WAITING or move.target not in possible:
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
        missing = targets - self.state.members.keys() - self.state.creating.keys()
        if missing and self.state.now >= self.state.creates_from:
            asked = dict.fromkeys(sorted(missing), self.state.now)
            self.set(creating={**self.state.creating, **asked})
            self.effects.append(Create(tuple(sorted(missing))))
        elif missing:
            for partition, move in sorted(self.state.moves.items()):
                if move.target in missing and move.stage is MoveStage.WAITING:
                    self.drop(partition)

    def tell(
        self,
        kind: type[Start] | type[Stop],
        stage: MoveStage,
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
        self.enter(Phase.SENTINEL)
        self.settle()
        self.end_execution()
        self.set(kept=frozenset())
        idle = sorted(self.state.ready - set(self.state.held.values()))
        self.release(frozenset(idle[self.state.rules.warm_spares :]))

    def settle(self) -> None:
        """Writes down who reads what; it is all there is only if everybody has said so.

        The next controller asks those that are not named in it nothing, if this is clean.
        """
        self.set(clean=not self.state.unknown)
        self.persist()

    def release(self, idle: frozenset[int]) -> None:
        """Has consumers ended that read nothing and are not kept as spares."""
        if idle:
            self.set(leaving=self.state.leaving | idle)
            self.effects.append(Remove(tuple(sorted(idle))))

    def persist(self, assignment: Assignment | None = None) -> None:
        if assignment is None:
            assignment = Assignment(dict(sorted(self.state.held.items())))
        kept = GroupState(epoch=self.state.epoch, clean=self.state.clean, assignment=assignment)
        self.effects.append(Persist(kept))
