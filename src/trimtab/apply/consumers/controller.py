"""The controller of a directed group: it assigns every partition itself.

Promise  A partition is given to a consumer only after its previous consumer has reported `stopped`
         with the incarnation that held it, or its exit is confirmed. After a start or a
         disagreement, the answers of running consumers count, not the persisted state. Moves always
         end: with the last acknowledgement, after `sync_timeout_s` without consumers that cannot be
         killed, or after `manage_timeout_s` by a new synchronisation. `step` is pure; `Send`,
         `Persist` and `WriteJournal` of one step belong into one transaction.
Paper    Landau et al., section V. Differs: partitions move independently of one another.

              all consumers have answered                a decision, an ordered plan,
  SYNCHRONIZE ──────────────────────▶ SENTINEL            or deleted partitions
       ▲                               │     ▲
       │ the moves took too long       ▼     │ every move is done
       └─────────────────────────────── MANAGE ◀─┐ another decision, while all
                                            └────┘ moves wait for consumers that start

`PHASES` is the table of this drawing; a new leader begins with SYNCHRONIZE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import assert_never

from trimtab.apply.consumers.controller_state import (
    ConsumerExited,
    ConsumerInfo,
    ControllerState,
    Decide,
    Effect,
    Event,
    GroupObserved,
    GroupView,
    LeadershipGained,
    Phase,
    PlanOrdered,
    Policy,
    RemovalRefused,
    ReportReceived,
)
from trimtab.apply.consumers.controller_turn import ControllerTurn
from trimtab.apply.consumers.liveness import (
    compare_with_running,
    confirm_exit,
    note_rival,
    register_incarnation,
)
from trimtab.apply.consumers.partition_moves import (
    begin_moves,
    record_started,
    record_stopped,
    send_due_commands,
    skip_unkillable,
)
from trimtab.apply.consumers.plan_execution import (
    abandon,
    accept_order,
    end_execution,
    record_progress,
    start_or_refuse,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Action,
    Decision,
    GroupState,
    Hello,
    Rate,
    ReadingStarted,
    ReadingStopped,
    Report,
    StateReport,
)


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
    turn = ControllerTurn(replace(state, now=event.now))
    match event:
        case LeadershipGained(running=running, found=found):
            _begin_to_lead(turn, running, found)
            until = event.now + event.hold_s
            turn.set(hold_plan=event.hold_plan, hold_until=until if event.hold_plan else -math.inf)
        case ReportReceived(report=report):
            _process_report(turn, report)
        case GroupObserved(
            running=running, partitions=partitions, reasons=reasons, subscribed=subscribed
        ):
            turn.set(reasons=reasons)
            if subscribed is not None:
                turn.set(subscribed=subscribed)
            _observe(turn, running, partitions)
        case ConsumerExited(consumer=consumer, identity=identity, why=why):
            if why:
                turn.set(reasons={**turn.state.reasons, consumer: why})
            confirm_exit(turn, consumer, identity)
        case RemovalRefused(consumers=consumers):
            turn.set(leaving=turn.state.leaving - consumers, kept=turn.state.kept | set(consumers))
        case PlanOrdered():
            accept_order(turn, event)
        case _:
            assert_never(event)
    _advance(turn, policy if isinstance(event, GroupObserved) else None)
    record_progress(turn)
    return turn.state, tuple(turn.effects)


# ---------------------------------------------------------------- events


def _begin_to_lead(
    turn: ControllerTurn, running: Mapping[int, str], found: GroupState | None
) -> None:
    """Starts as a new leader: only the answers of consumers count."""
    old = turn.state
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
    turn.state = ControllerState(
        rules=old.rules,
        epoch=found.epoch + 1 if found else 1,
        now=old.now,
        members=members,
        partitions=old.partitions,
        clean=False,
        found=found.assignment if found else Assignment(),
    )
    turn.persist(turn.state.found)
    _synchronize(turn, "a controller became leader")
    _wait_for_unseen(turn, turn.state.found.consumers - running.keys())


def _wait_for_unseen(turn: ControllerTurn, unseen: Set[int]) -> None:
    """Waits for reports of consumers that held partitions and that the backend does not list.

    They have exited, or run where this backend does not look, such as on another machine.
    """
    if unseen:
        until = turn.state.now + turn.state.rules.unseen_wait_s
        turn.set(unseen=frozenset(unseen), unseen_until=until)
        for consumer in sorted(unseen):
            turn.query(consumer)


def _synchronize(turn: ControllerTurn, why: str) -> None:
    """Queries all consumers for their partitions, and drops moves in progress."""
    abandon(turn, f"it was interrupted: {why}")
    state = turn.state
    members = {
        c: m if m.fresh else replace(m, incarnation=None, rival=None, since=state.now)
        for c, m in state.members.items()
    }
    turn.enter(
        Phase.SYNCHRONIZE,
        queries=state.queries + 1,
        members=members,
        held={},
        moves={},
        creating={},
    )
    turn.note(f"synchronizing: {why}")
    for consumer in sorted(members):
        turn.query(consumer)


def _process_report(turn: ControllerTurn, report: Report) -> None:
    """Processes a report; ignores consumers that the backend does not list."""
    member = turn.state.members.get(report.consumer)
    if member is None:
        if report.consumer in turn.state.unseen and not isinstance(report, Hello):
            turn.note("it runs elsewhere; no partition is assigned meanwhile", report.consumer)
            turn.set(unseen_until=turn.state.now + turn.state.rules.unseen_wait_s)
        return
    if member.incarnation is None:
        register_incarnation(turn, report)
    elif report.incarnation != member.incarnation:
        note_rival(turn, member, report)
    else:
        turn.member(report.consumer, last_report=turn.state.now)
        _process_member_report(turn, report)


def _process_member_report(turn: ControllerTurn, report: Report) -> None:
    """Processes a report of the known incarnation."""
    match report:
        case Rate(max_bytes_s=bytes_s, max_records_s=records_s):
            turn.member(report.consumer, max_bytes_s=bytes_s, max_records_s=records_s)
        case ReadingStopped():
            record_stopped(turn, report)
        case ReadingStarted():
            record_started(turn, report)
        case StateReport() | Hello():
            pass  # repeated
        case _:
            assert_never(report)


def _observe(
    turn: ControllerTurn, running: Mapping[int, str], partitions: frozenset[TopicPartition] | None
) -> None:
    """Compares the state with the processes and partitions that exist."""
    if partitions is not None:
        turn.set(partitions=partitions)
    compare_with_running(turn, running)
    if partitions is not None:
        _release_deleted(turn, turn.state.held.keys() - partitions - turn.state.frozen)


def _release_deleted(turn: ControllerTurn, vanished: Set[TopicPartition]) -> None:
    """Takes deleted partitions from their consumers, which may have released them already.

    If partitions of the same name are created again, they are assigned like new ones.
    """
    if vanished and turn.state.phase is Phase.SENTINEL:
        turn.note("partitions were deleted", partitions=vanished)
        abandon(turn, "partitions were deleted meanwhile")
        begin_moves(
            turn, Assignment({p: c for p, c in turn.state.held.items() if p not in vanished})
        )


# ---------------------------------------------------------------- phases


def _advance(turn: ControllerTurn, policy: Policy | None) -> None:
    """Takes every phase transition and action that is possible now."""
    if turn.state.phase is Phase.SYNCHRONIZE:
        _finish_synchronize_if_complete(turn)
    if turn.state.phase is Phase.SENTINEL and not turn.state.clean and not turn.state.unknown:
        turn.persist_settled()
    if turn.state.order is not None:
        start_or_refuse(turn, turn.state.order)
    if turn.state.phase is Phase.SENTINEL and policy is not None:
        _decide(turn, policy)
    if turn.state.phase is Phase.MANAGE:
        if turn.state.parked and policy is not None:
            _decide(turn, policy)
        _manage_moves(turn)


def _finish_synchronize_if_complete(turn: ControllerTurn) -> None:
    state = turn.state
    if state.unknown - state.killing:
        return
    patience_s = 2 * state.rules.sync_timeout_s  # for the exit of consumers that did not answer
    if state.killing and state.now - state.entered < patience_s:
        return
    if state.unseen and state.now < state.unseen_until:
        return
    found, held = state.found, state.held
    other = [p for p in found.keys() | held.keys() if found.get(p) != held.get(p)]
    turn.note("all consumers have answered", partitions=other)
    turn.enter(Phase.SENTINEL, unseen=frozenset())
    turn.persist_settled()


def _decide(turn: ControllerTurn, policy: Policy) -> None:
    verdict = policy(turn.state.view())
    if verdict is None:
        return
    turn.set(decided_at=turn.state.now)
    turn.effects.append(Decide(verdict.decision, verdict.plan))
    if verdict.target is None:
        if turn.state.phase is Phase.MANAGE:
            return
        turn.release(surplus(turn.state.view(), verdict.decision) - turn.state.kept)
        return
    abandon(turn, f"another decision came first: {verdict.decision.reason}")
    if verdict.decision.before != verdict.decision.after:
        turn.set(scaled_at=turn.state.now)
    begin_moves(turn, verdict.target)


def _manage_moves(turn: ControllerTurn) -> None:
    """Goes on with the moves as far as possible, and finishes when all are done."""
    rules, lasted_s = turn.state.rules, turn.state.now - turn.state.entered
    if lasted_s > rules.sync_timeout_s:
        skip_unkillable(turn)
    if turn.state.moves:
        if lasted_s > rules.manage_timeout_s and not turn.state.parked:
            _synchronize(turn, "the moves took too long")
            return
        send_due_commands(turn)
    if not turn.state.moves:
        _finish(turn)


def _finish(turn: ControllerTurn) -> None:
    """All moves are done: persists the assignment, releases idle consumers, and watches."""
    turn.enter(Phase.SENTINEL)
    turn.persist_settled()
    end_execution(turn)
    turn.set(kept=frozenset())
    idle = sorted(turn.state.ready - set(turn.state.held.values()))
    turn.release(frozenset(idle[turn.state.rules.warm_spares :]))
