"""How a directed group's controller carries out ordered plans, and journals their progress.

Promise  One plan at a time. It starts once the group is settled, or is refused with a reason. Every
         change of its progress is written to the journal in the transaction of the next commands.
         It ends as done, or as failed if a move was dropped or another decision came first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from trimtab.apply.consumers.controller_state import (
    Decide,
    Execution,
    Phase,
    PlanOrdered,
    WriteJournal,
)
from trimtab.apply.consumers.controller_turn import ControllerTurn
from trimtab.apply.consumers.partition_moves import begin_moves
from trimtab.apply.consumers.plan_orders import (
    decision_of,
    done_entries,
    entry_of,
    refusal_of,
    target_of,
    unfit,
)
from trimtab.model.assignment import Assignment
from trimtab.model.journal import PlanState


def accept_order(turn: ControllerTurn, order: PlanOrdered) -> None:
    """Stores an order until the group is settled; one at a time.

    A repeated order changes nothing. Whoever sent it has written `made` to the journal, so the
    progress is written again.
    """
    state = turn.state
    current = state.execution.order if state.execution is not None else state.order
    if current is None:
        turn.set(order=order)
    elif current.plan_id != order.plan_id:
        _refuse(turn, order, f"plan {current.plan_id} is being carried out")
    elif state.execution is not None:
        of = len(state.execution.moves)
        entry = entry_of(current, PlanState.RUNNING, step=state.execution.step, of=of)
        turn.effects.append(WriteJournal(entry))
    elif current.step is not None:
        turn.effects.append(WriteJournal(entry_of(current, PlanState.RUNNING, step=current.step)))


def _refuse(turn: ControllerTurn, order: PlanOrdered, why: str) -> None:
    consumers = len(set(turn.state.held.values()))
    begun = order.step is not None
    entry = entry_of(order, PlanState.FAILED, step=order.step or 0, why=why, begun=begun)
    turn.effects.append(WriteJournal(entry))
    turn.effects.append(Decide(refusal_of(order, why, consumers)))


def start_or_refuse(turn: ControllerTurn, order: PlanOrdered) -> None:
    """Starts an ordered plan once the group is settled, or refuses it."""
    state = turn.state
    if order.refused or order.plan is None:
        turn.set(order=None)
        _refuse(turn, order, order.refused or f"plan {order.plan_id} is not known")
        return
    settled = state.phase is Phase.SENTINEL and not (state.unknown or state.killing)
    # One that is ending gets no partitions; after its exit it is started again.
    ending = state.leaving & set(order.plan.assignment.consumers)
    late = state.now > order.until
    if order.step is not None:  # started by an earlier controller: its order may have expired
        late = state.now - order.now > state.rules.manage_timeout_s
    if late:
        turn.set(order=None)
        _refuse(turn, order, "the group was not settled in time")
    elif settled and state.partitions and not ending:
        turn.set(order=None)
        held = Assignment(dict(state.held))
        why = unfit(order, state.partitions, held, most=state.rules.max_consumers)
        if state.subscribed:
            why = f"the group has subscribed members ({', '.join(state.subscribed[:3])})"
        if why:
            _refuse(turn, order, why)
        else:
            _carry_out(turn, order, held, target_of(order.plan, held))


def _carry_out(
    turn: ControllerTurn, order: PlanOrdered, held: Assignment, target: Assignment
) -> None:
    moves = frozenset(p for p, c in target.items() if held.get(p) != c)
    plan = order.plan
    if plan is not None and order.step is not None:  # also moves done by an earlier leader
        moves |= {m.name for m in plan.moves}
    execution = Execution(order=order, target=target, moves=moves)
    turn.set(
        execution=execution,
        decided_at=turn.state.now,
        hold_plan=order.plan_id,
        hold_until=turn.state.now + order.hold_s,
    )
    done = _done_moves(turn)
    turn.effects.append(WriteJournal(entry_of(order, PlanState.RUNNING, step=done, of=len(moves))))
    turn.set(execution=replace(execution, step=done))
    turn.effects.append(Decide(decision_of(order, held, target), plan))
    if len(held.consumers) != len(target.consumers):
        turn.set(scaled_at=turn.state.now)
    begin_moves(turn, target)


def _done_moves(turn: ControllerTurn) -> int:
    """How many of the plan's moves are done."""
    execution = turn.state.execution
    if execution is None:
        return 0
    return sum(turn.state.held.get(p) == execution.target.get(p) for p in execution.moves)


def record_progress(turn: ControllerTurn) -> None:
    """Writes the plan's progress to the journal, in the transaction of the next commands."""
    execution, done = turn.state.execution, _done_moves(turn)
    if execution is not None and done != execution.step:
        turn.set(execution=replace(execution, step=done))
        entry = entry_of(execution.order, PlanState.RUNNING, step=done, of=len(execution.moves))
        turn.effects.append(WriteJournal(entry))


def end_execution(turn: ControllerTurn) -> None:
    """All moves are over: the plan is done, or has failed if a move was dropped."""
    execution, done = turn.state.execution, _done_moves(turn)
    if execution is None:
        return
    total = len(execution.moves)
    if done < total:
        why = turn.state.lost or turn.state.failure or "a consumer exited"
        abandon(turn, f"{total - done} of {total} moves were not done: {why}")
        return
    order = execution.order
    turn.set(execution=None, hold_until=turn.state.now + order.hold_s)
    turn.effects += map(WriteJournal, done_entries(order, of=total))


def abandon(turn: ControllerTurn, why: str) -> None:
    """Gives up the plan in progress; partitions that were moved stay where they are."""
    execution = turn.state.execution
    if execution is None:
        return
    entry = entry_of(
        execution.order,
        PlanState.FAILED,
        step=_done_moves(turn),
        of=len(execution.moves),
        why=why,
        begun=True,
    )
    turn.set(execution=None, hold_plan="", hold_until=-math.inf)
    turn.effects.append(WriteJournal(entry))
