"""The controller of a directed group: it assigns every partition itself.

Promise  A partition is given to a consumer only after its previous consumer has reported `stopped`
         with the incarnation that held it, or the backend has confirmed the exit of that process;
         silence alone proves nothing. After a start or a disagreement, the answers of running
         consumers count, not the persisted state. Moves always end: with the last acknowledgement,
         after `sync_timeout_s` without consumers that cannot be killed, or after `manage_timeout_s`
         by a new synchronisation.
Cost     A step is linear in the number of partitions; a decision costs what its planner costs.
Paper    Landau et al., section V. Differs: partitions move independently of one another, a stop is
         sent only when the next consumer is ready and responsive, incarnations are distinguished.

              all consumers have answered                a decision, an ordered plan,
  SYNCHRONIZE ──────────────────────▶ SENTINEL            or deleted partitions
       ▲                               │     ▲
       │ the moves took too long       ▼     │ every move is done
       └─────────────────────────────── MANAGE ◀─┐ another decision, while all
                                            └────┘ moves wait for consumers that start

A move: WAITING ─▶ STOPPING (stop was sent) ─▶ WAITING (no consumer reads) ─▶ STARTING ─▶ done.
`PHASES` is the table of this drawing; a new leader begins with SYNCHRONIZE.

`step` is pure: time, reports and observations come in as events, actions go out as effects. `Send`,
`Persist` and `WriteJournal` of one step belong into one transaction, before its other effects.
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
from trimtab.apply.consumers.plan_orders import (
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
    """The idle consumers that can be removed when a decision changes nothing.

    Those that a plan would need are kept: it may be carried out when the cooldown is over.
    """
    if decision.action is not Action.NONE:
        return frozenset()
    idle = sorted(view.consumers - set(view.assignment.consumers))
    wanted = max(0, int(decision.forecast.get("consumers", 0)) - decision.before)
    return frozenset(idle[view.spares + wanted :])


def step(
    state: ControllerState, event: Event, policy: Policy
) -> tuple[ControllerState, tuple[Effect, ...]]:
    """The state after an event, and the effects to perform."""
    turn = _Turn(replace(state, now=event.now))
    match event:
        case LeadershipGained(running=running, found=found):
            turn.on_leadership_gained(running, found)
            until = event.now + event.hold_s
            turn.set(hold_plan=event.hold_plan, hold_until=until if event.hold_plan else -math.inf)
        case ReportReceived(report=report):
            turn.on_report(report)
        case GroupObserved(
            running=running, partitions=partitions, reasons=reasons, subscribed=subscribed
        ):
            turn.set(reasons=reasons)
            if subscribed is not None:
                turn.set(subscribed=subscribed)
            turn.on_observation(running, partitions)
        case ConsumerExited(consumer=consumer, identity=identity, why=why):
            if why:
                turn.set(reasons={**turn.state.reasons, consumer: why})
            turn.on_exit_confirmed(consumer, identity)
        case RemovalRefused(consumers=consumers):
            turn.set(leaving=turn.state.leaving - consumers, kept=turn.state.kept | set(consumers))
        case PlanOrdered():
            turn.accept_order(event)
        case _:
            assert_never(event)
    turn.advance(policy if isinstance(event, GroupObserved) else None)
    turn.record_progress()
    return turn.state, tuple(turn.effects)


_T = TypeVar("_T")
_ByConsumer = dict[int, list[TopicPartition]]


def _without(mapping: Mapping[int, _T], key: int) -> dict[int, _T]:
    return {k: value for k, value in mapping.items() if k != key}


class _Turn:
    """One step: the state as it changes, and the effects collected so far."""

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self.effects: list[Effect] = []

    def set(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def enter(self, phase: Phase, **changes: object) -> None:
        """Enters another phase; raises if the table does not allow it."""
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

    def on_leadership_gained(self, running: Mapping[int, str], found: GroupState | None) -> None:
        """Starts as a new leader: only the answers of consumers count."""
        old = self.state
        # A consumer without partitions in a clean state reads nothing, and may still be starting.
        settled = found is None or found.clean
        busy = found.assignment.consumers if found else ()
        members = {
            c: ConsumerInfo(
                since=old.now,
                last_report=old.now,
                identity=i,
                seen=old.now,
                fresh=settled and c not in busy,
            )
            for c, i in sorted(running.items())
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
        self.synchronize("a controller became leader")
        self.wait_for_unseen(self.state.found.consumers - running.keys())

    def wait_for_unseen(self, unseen: Set[int]) -> None:
        """Waits for reports of consumers that held partitions and that the backend does not list.

        They have exited, or run where this backend does not look, such as on another machine.
        """
        if unseen:
            until = self.state.now + self.state.rules.unseen_wait_s
            self.set(unseen=frozenset(unseen), unseen_until=until)
            for consumer in sorted(unseen):
                self.query(consumer)

    def synchronize(self, why: str) -> None:
        """Queries all consumers for their partitions, and drops moves in progress."""
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
        query = StateQuery(epoch=self.state.epoch, query_id=self.state.query_id)
        self.effects.append(Send(consumer, query))

    def on_report(self, report: Report) -> None:
        """Processes a report; ignores consumers that the backend does not list."""
        member = self.state.members.get(report.consumer)
        if member is None:
            if report.consumer in self.state.unseen and not isinstance(report, Hello):
                self.note("it runs elsewhere; no partition is assigned meanwhile", report.consumer)
                self.set(unseen_until=self.state.now + self.state.rules.unseen_wait_s)
            return
        if member.incarnation is None:
            self.on_first_report(report)
        elif report.incarnation != member.incarnation:
            self.on_rival_incarnation(member, report)
        else:
            self.member(report.consumer, last_report=self.state.now)
            self.on_member_report(report)

    def on_first_report(self, report: Report) -> None:
        """Registers the incarnation of a consumer, if the report lists its partitions."""
        match report:
            case StateReport(query_id=query_id) if query_id != self.state.query_id:
                return
            case StateReport() | Hello():
                self.member(
                    report.consumer,
                    incarnation=report.incarnation,
                    last_report=self.state.now,
                    introduced=self.state.now,
                    fresh=False,
                )
                self.set(
                    creating=_without(self.state.creating, report.consumer),
                    tries=_without(self.state.tries, report.consumer),
                    failed_starts=0,
                    next_start_at=float("-inf"),
                    failure="",
                )
                self.record_held(report.consumer, report.partitions)
            case _:
                return

    def record_held(self, consumer: int, partitions: Iterable[TopicPartition]) -> None:
        """Records the partitions that a consumer reads; if another one reads them too, kills both.

        It is unknown which of them was first, so both must exit before others may read.
        """
        others = {p: c for p, c in self.state.held.items() if c != consumer}
        twice = [p for p in partitions if p in others]
        self.set(held={**others, **{p: consumer for p in partitions if p not in twice}})
        if twice:
            self.note("two consumers read the same partition", consumer, twice, violation=True)
            for other in sorted({self.state.held[p] for p in twice} | {consumer}):
                self.kill(other, "it reads a partition that another consumer reads too")

    def on_rival_incarnation(self, member: ConsumerInfo, report: Report) -> None:
        """Another incarnation reports with a known index: the exit of one must be confirmed."""
        if member.rival is None or member.rival[0] != report.incarnation:
            self.member(report.consumer, rival=(report.incarnation, self.state.now))
            self.note("another process reports with the same index", report.consumer)

    def on_member_report(self, report: Report) -> None:
        """Processes a report of the known incarnation."""
        match report:
            case Rate(max_bytes_s=bytes_s, max_records_s=records_s):
                self.member(report.consumer, max_bytes_s=bytes_s, max_records_s=records_s)
            case Stopped():
                for partition in self.acknowledged(report, MoveStage.STOPPING):
                    held = {p: c for p, c in self.state.held.items() if p != partition}
                    self.set(held=held)
                    self.on_released(partition)
            case Started():
                for partition in self.acknowledged(report, MoveStage.STARTING):
                    self.set(held={**self.state.held, partition: report.consumer})
                    self.drop_move(partition)
            case StateReport() | Hello():
                pass  # repeated
            case _:
                assert_never(report)

    def acknowledged(self, report: Started | Stopped, stage: MoveStage) -> list[TopicPartition]:
        """The moves that a report acknowledges: of this epoch, requested of this consumer."""
        if report.epoch != self.state.epoch:
            return []
        wanted = {"stage": stage, "asked": report.consumer, "seq": report.seq}
        return [
            p
            for p in report.partitions
            if (move := self.state.moves.get(p)) is not None
            and {"stage": move.stage, "asked": move.asked, "seq": move.seq} == wanted
        ]

    def on_released(self, partition: TopicPartition) -> None:
        """No consumer reads it now: it waits for its target; without a target the move is done."""
        move = self.state.moves[partition]
        if move.target is None:
            self.drop_move(partition)
        else:
            self.set(moves={**self.state.moves, partition: PartitionMove(target=move.target)})

    def drop_move(self, partition: TopicPartition) -> None:
        self.set(moves={p: m for p, m in self.state.moves.items() if p != partition})

    def on_observation(
        self, running: Mapping[int, str], partitions: frozenset[TopicPartition] | None
    ) -> None:
        """Compares the state with the processes and partitions that exist."""
        if partitions is not None:
            self.set(partitions=partitions)
        for consumer in sorted(self.state.members):
            self.check_identity(consumer, running.get(consumer))
        for consumer in sorted(running.keys() - self.state.members.keys()):
            now, identity = self.state.now, running[consumer]
            since = self.state.creating.get(consumer, now)
            new = consumer not in self.state.unseen
            fresh = ConsumerInfo(
                since=since, last_report=now, identity=identity, seen=now, fresh=new
            )
            self.set(members={**self.state.members, consumer: fresh})
            self.query(consumer)
        for consumer, since in sorted(self.state.creating.items()):
            if consumer not in running and self.state.now - since > self.state.patience_s(consumer):
                self.remove_member(consumer)
        for consumer, member in sorted(self.state.members.items()):
            self.check_liveness(consumer, member)
        if partitions is not None:
            self.release_deleted(self.state.held.keys() - partitions - self.state.frozen)

    def check_identity(self, consumer: int, identity: str | None) -> None:
        """Checks that the process is still the one that was seen before."""
        member, now = self.state.members[consumer], self.state.now
        if identity is not None and member.identity in (None, identity):
            self.member(consumer, identity=identity, seen=now)
        elif identity is None or member.incarnation is None or member.introduced < member.seen:
            self.remove_member(consumer)
        else:
            # The known incarnation may be the old or the new process: its partitions stay assigned
            # to it until it answers.
            again = {"identity": identity, "incarnation": None, "rival": None}
            self.member(consumer, **again, since=now, last_report=now, seen=now)
            self.set(
                killing=self.state.killing - {consumer}, leaving=self.state.leaving - {consumer}
            )
            self.query(consumer)

    def release_deleted(self, vanished: Set[TopicPartition]) -> None:
        """Takes deleted partitions from their consumers, which may have released them already.

        If partitions of the same name are created again, they are assigned like new ones.
        """
        if vanished and self.state.phase is Phase.SENTINEL:
            self.note("partitions were deleted", partitions=vanished)
            self.abandon("partitions were deleted meanwhile")
            self.begin_moves(
                Assignment({p: c for p, c in self.state.held.items() if p not in vanished})
            )

    def check_liveness(self, consumer: int, member: ConsumerInfo) -> None:
        """Kills a consumer that does not answer, is silent, or whose index is used twice."""
        rules, now = self.state.rules, self.state.now
        if consumer in self.state.killing:
            return
        patience_s = self.state.patience_s(consumer) if member.fresh else rules.sync_timeout_s
        if member.incarnation is None and now - member.since > patience_s:
            self.kill(consumer, f"no answer for {patience_s:g} s")
        elif member.incarnation is not None and now - member.last_report > rules.dead_after_s:
            self.kill(consumer, f"silent for {rules.dead_after_s:g} s")
        elif member.rival is not None and now - member.rival[1] > rules.contested_after_s:
            self.kill(consumer, "two processes report with its index")

    def kill(self, consumer: int, why: str) -> None:
        if consumer not in self.state.killing:
            self.set(killing=self.state.killing | {consumer})
            self.effects.append(Kill(consumer, why, self.state.members[consumer].identity))

    def on_exit_confirmed(self, consumer: int, identity: str | None) -> None:
        """Removes a consumer whose exit is confirmed; ignored when a newer process runs."""
        member = self.state.members.get(consumer)
        if member is None or member.identity == identity:
            self.remove_member(consumer)

    def remove_member(self, consumer: int) -> None:
        """Removes a consumer that has certainly exited; its partitions and moves become free."""
        state = self.state
        reason = f": {state.reasons[consumer]}" if consumer in state.reasons else ""
        lost = {p for p, c in state.held.items() if c == consumer}
        if lost:
            self.note(f"a consumer exited{reason}", consumer, lost)
            self.set(lost=f"consumer {consumer} exited{reason}", ended=state.ended + 1)
        member = state.members.get(consumer)
        if consumer in state.creating or (member is not None and member.fresh):
            self.on_failed_start(consumer, reason)
        self.set(
            members=_without(state.members, consumer),
            held={p: c for p, c in state.held.items() if c != consumer},
            leaving=state.leaving - {consumer},
            killing=state.killing - {consumer},
            creating=_without(state.creating, consumer),
        )
        for partition, move in sorted(state.moves.items()):
            if move.asked == consumer and move.stage is MoveStage.STOPPING:
                self.on_released(partition)
            elif move.target == consumer:
                if move.stage is MoveStage.STOPPING:  # a later decision chooses another target
                    self.set(moves={**self.state.moves, partition: replace(move, target=None)})
                else:
                    self.drop_move(partition)

    def on_failed_start(self, consumer: int, reason: str) -> None:
        """A consumer exited before its first report: the next start waits for a growing pause."""
        state = self.state
        if consumer in state.leaving:  # it was no longer needed
            return
        timed_out = f" within {state.patience_s(consumer):g} s" if consumer in state.killing else ""
        why = f"{timed_out}{reason}"
        self.set(
            failure=f"consumer {consumer} did not start{why}",
            tries={**state.tries, consumer: state.tries.get(consumer, 0) + 1},
        )
        if state.now >= state.next_start_at:  # once for all that were requested together
            pause_s = min(2.0 ** min(state.failed_starts, 9), state.rules.longest_pause_s)
            self.set(failed_starts=state.failed_starts + 1, next_start_at=state.now + pause_s)
            self.note(f"it did not start{why}; the next try is in {pause_s:g} s", consumer)

    # ------------------------------------------------------------ phases

    def advance(self, policy: Policy | None) -> None:
        """Takes every phase transition and action that is possible now."""
        if self.state.phase is Phase.SYNCHRONIZE:
            self.finish_synchronize_if_complete()
        if self.state.phase is Phase.SENTINEL and not self.state.clean and not self.state.unknown:
            self.persist_settled()
        if self.state.order is not None:
            self.start_or_refuse_order(self.state.order)
        if self.state.phase is Phase.SENTINEL and policy is not None:
            self.decide(policy)
        if self.state.phase is Phase.MANAGE:
            if self.state.parked and policy is not None:
                self.decide(policy)
            self.manage_moves()

    def finish_synchronize_if_complete(self) -> None:
        if self.state.unknown - self.state.killing:
            return
        if self.state.killing and self.state.now - self.state.entered < self._patience_s:
            return
        if self.state.unseen and self.state.now < self.state.unseen_until:
            return
        found, held = self.state.found, self.state.held
        other = [p for p in found.keys() | held.keys() if found.get(p) != held.get(p)]
        self.note("all consumers have answered", partitions=other)
        self.enter(Phase.SENTINEL, unseen=frozenset())
        self.persist_settled()

    @property
    def _patience_s(self) -> float:
        """How long the group waits for the exit of consumers that did not answer."""
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
        self.begin_moves(verdict.target)

    # ------------------------------------------------------------ ordered plans

    def accept_order(self, order: PlanOrdered) -> None:
        """Stores an order until the group is settled; one at a time."""
        state = self.state
        current = state.execution.order if state.execution is not None else state.order
        if current is None:
            self.set(order=order)
        elif current.plan_id != order.plan_id:  # a repeated order changes nothing
            self.refuse_order(order, f"plan {current.plan_id} is being carried out")

    def refuse_order(self, order: PlanOrdered, why: str) -> None:
        consumers = len(set(self.state.held.values()))
        self.effects.append(WriteJournal(entry_of(order, PlanState.FAILED, why=why)))
        self.effects.append(Decide(refusal_of(order, why, consumers)))

    def start_or_refuse_order(self, order: PlanOrdered) -> None:
        """Starts an ordered plan once the group is settled, or refuses it."""
        state = self.state
        if order.refused or order.plan is None:
            self.set(order=None)
            self.refuse_order(order, order.refused or f"plan {order.plan_id} is not known")
            return
        settled = state.phase is Phase.SENTINEL and not (state.unknown or state.killing)
        if settled and state.partitions:
            self.set(order=None)
            held = Assignment(dict(state.held))
            why = unfit(order, state.partitions, held, most=state.rules.max_consumers)
            if state.subscribed:
                why = f"the group has subscribed members ({', '.join(state.subscribed[:3])})"
            if why:
                self.refuse_order(order, why)
            else:
                self.carry_out(order, held, target_of(order.plan, held))
        elif state.now > order.until:
            self.set(order=None)
            self.refuse_order(order, "the group was not settled in time")

    def carry_out(self, order: PlanOrdered, held: Assignment, target: Assignment) -> None:
        moves = frozenset(p for p, c in target.items() if held.get(p) != c)
        plan = order.plan
        if plan is not None and order.step is not None:  # also moves done by an earlier leader
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
        self.begin_moves(target)

    def done_moves(self) -> int:
        """How many of the plan's moves are done."""
        execution = self.state.execution
        if execution is None:
            return 0
        return sum(self.state.held.get(p) == execution.target.get(p) for p in execution.moves)

    def record_progress(self) -> None:
        """Writes the plan's progress to the journal, in the transaction of the next commands."""
        execution, done = self.state.execution, self.done_moves()
        if execution is not None and done != execution.step:
            self.set(execution=replace(execution, step=done))
            entry = entry_of(execution.order, PlanState.RUNNING, step=done, of=len(execution.moves))
            self.effects.append(WriteJournal(entry))

    def end_execution(self) -> None:
        """All moves are over: the plan is done, or has failed if a move was dropped."""
        execution, done = self.state.execution, self.done_moves()
        if execution is None:
            return
        total = len(execution.moves)
        if done < total:
            self.abandon(f"{total - done} of {total} moves were not done: a consumer exited")
            return
        order = execution.order
        self.set(execution=None, hold_until=self.state.now + order.hold_s)
        self.effects.append(WriteJournal(entry_of(order, PlanState.DONE, step=done, of=total)))

    def abandon(self, why: str) -> None:
        """Gives up the plan in progress; partitions that were moved stay where they are."""
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

    def begin_moves(self, target: Assignment) -> None:
        """Starts the moves that lead from the current assignment to the target."""
        held = self.state.held
        moves: dict[TopicPartition, PartitionMove] = {
            p: PartitionMove(target=c) for p, c in sorted(target.items()) if held.get(p) != c
        }
        stay = self.state.frozen.union(target)
        moves |= {p: PartitionMove(target=None) for p in sorted(held) if p not in stay}
        self.enter(Phase.MANAGE, moves=moves, lost="", ended=0)

    def manage_moves(self) -> None:
        """Sends all commands that are possible now; the rest waits for acknowledgements."""
        if self.state.now - self.state.entered > self.state.rules.sync_timeout_s:
            self.skip_unkillable()
        if not self.state.moves:
            self.finish()
            return
        late = self.state.now - self.state.entered > self.state.rules.manage_timeout_s
        if late and not self.state.parked:
            self.synchronize("the moves took too long")
            return
        self.create_missing()
        stops, starts = self.due_commands()
        if (stops or starts) and self.state.clean:
            self.set(clean=False)
            self.persist()
        for consumer, partitions in sorted(stops.items()):
            self.send_command(Stop, MoveStage.STOPPING, consumer, partitions)
        for consumer, partitions in sorted(starts.items()):
            self.send_command(Start, MoveStage.STARTING, consumer, partitions)
        if not self.state.moves:
            self.finish()

    def skip_unkillable(self) -> None:
        """Drops moves that wait for consumers that cannot be killed, so that others can go on.

        Such a consumer keeps what it reads or was told to read until its exit is confirmed.
        """
        ending = self.state.killing
        for partition, move in sorted(self.state.moves.items()):
            if move.asked in ending:
                if move.stage is MoveStage.STARTING:
                    self.set(held={**self.state.held, partition: move.asked})
                self.drop_move(partition)
            elif move.stage is MoveStage.STOPPING and move.target in ending:
                self.set(moves={**self.state.moves, partition: replace(move, target=None)})
            elif move.stage is MoveStage.WAITING and (
                move.target in ending or self.state.held.get(partition) in ending
            ):
                self.drop_move(partition)

    def due_commands(self) -> tuple[_ByConsumer, _ByConsumer]:
        """The partitions that can be stopped and started now, by consumer."""
        stops: _ByConsumer = {}
        starts: _ByConsumer = {}
        possible = {None, *self.state.responsive}
        for partition, move in sorted(self.state.moves.items()):
            if move.stage is not MoveStage.WAITING or move.target not in possible:
                continue
            holder = self.state.held.get(partition)
            if holder is not None and self.state.members[holder].incarnation is None:
                continue  # its answer to a query is awaited
            if holder is not None:
                stops.setdefault(holder, []).append(partition)
            elif move.target is not None:
                starts.setdefault(move.target, []).append(partition)
            else:
                self.drop_move(partition)
        return stops, starts

    def create_missing(self) -> None:
        """Requests consumers that moves need and that do not exist; a leaving one after its exit.

        During the pause after failed starts, moves to missing consumers are dropped instead.
        """
        targets = {m.target for m in self.state.moves.values() if m.target is not None}
        missing = targets - self.state.members.keys() - self.state.creating.keys()
        if missing and self.state.now >= self.state.next_start_at:
            asked = dict.fromkeys(sorted(missing), self.state.now)
            self.set(creating={**self.state.creating, **asked})
            self.effects.append(Create(tuple(sorted(missing))))
        elif missing:
            for partition, move in sorted(self.state.moves.items()):
                if move.target in missing and move.stage is MoveStage.WAITING:
                    self.drop_move(partition)

    def send_command(
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
        """All moves are done: persists the assignment, releases idle consumers, and watches."""
        self.enter(Phase.SENTINEL)
        self.persist_settled()
        self.end_execution()
        self.set(kept=frozenset())
        idle = sorted(self.state.ready - set(self.state.held.values()))
        self.release(frozenset(idle[self.state.rules.warm_spares :]))

    def persist_settled(self) -> None:
        """Persists the assignment; it is clean if all consumers have reported their partitions.

        After a clean state, the next controller need not wait for consumers without partitions.
        """
        self.set(clean=not self.state.unknown)
        self.persist()

    def release(self, idle: frozenset[int]) -> None:
        """Removes consumers that read nothing and are not kept as spares."""
        if idle:
            self.set(leaving=self.state.leaving | idle)
            self.effects.append(Remove(tuple(sorted(idle))))

    def persist(self, assignment: Assignment | None = None) -> None:
        if assignment is None:
            assignment = Assignment(dict(sorted(self.state.held.items())))
        kept = GroupState(epoch=self.state.epoch, clean=self.state.clean, assignment=assignment)
        self.effects.append(Persist(kept))
