"""Moves of partitions between the consumers of a directed group.

A move: WAITING ─▶ STOPPING (stop was sent) ─▶ WAITING (no consumer reads) ─▶ STARTING ─▶ done.

Promise  A partition is started only when no consumer reads it, and stopped only when its next
         consumer is ready and responsive. Partitions move independently of one another.
"""

from __future__ import annotations

from dataclasses import replace

from trimtab.apply.consumers.controller_state import (
    Create,
    MoveStage,
    PartitionMove,
    Phase,
    Send,
)
from trimtab.apply.consumers.controller_turn import ControllerTurn
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import ReadingStarted, ReadingStopped, Start, Stop

_ByConsumer = dict[int, list[TopicPartition]]


def begin_moves(turn: ControllerTurn, target: Assignment) -> None:
    """Starts the moves that lead from the current assignment to the target."""
    held = turn.state.held
    moves: dict[TopicPartition, PartitionMove] = {
        p: PartitionMove(target=c) for p, c in sorted(target.items()) if held.get(p) != c
    }
    stay = turn.state.frozen.union(target)
    moves |= {p: PartitionMove(target=None) for p in sorted(held) if p not in stay}
    turn.enter(Phase.MANAGE, moves=moves, lost="", ended=0)


def record_stopped(turn: ControllerTurn, report: ReadingStopped) -> None:
    """The consumer reads these partitions no longer."""
    for partition in _acknowledged(turn, report, MoveStage.STOPPING):
        held = {p: c for p, c in turn.state.held.items() if p != partition}
        turn.set(held=held)
        _mark_released(turn, partition)


def record_started(turn: ControllerTurn, report: ReadingStarted) -> None:
    """The consumer reads these partitions: their moves are done."""
    for partition in _acknowledged(turn, report, MoveStage.STARTING):
        turn.set(held={**turn.state.held, partition: report.consumer})
        _drop_move(turn, partition)


def _acknowledged(
    turn: ControllerTurn, report: ReadingStarted | ReadingStopped, stage: MoveStage
) -> list[TopicPartition]:
    """The moves that a report acknowledges: of this epoch, requested of this consumer."""
    if report.epoch != turn.state.epoch:
        return []
    wanted = {"stage": stage, "asked": report.consumer, "seq": report.seq}
    return [
        p
        for p in report.partitions
        if (move := turn.state.moves.get(p)) is not None
        and {"stage": move.stage, "asked": move.asked, "seq": move.seq} == wanted
    ]


def _mark_released(turn: ControllerTurn, partition: TopicPartition) -> None:
    """No consumer reads it now: it waits for its target; without a target the move is done."""
    move = turn.state.moves[partition]
    if move.target is None:
        _drop_move(turn, partition)
    else:
        turn.set(moves={**turn.state.moves, partition: PartitionMove(target=move.target)})


def _drop_move(turn: ControllerTurn, partition: TopicPartition) -> None:
    turn.set(moves={p: m for p, m in turn.state.moves.items() if p != partition})


def free_moves_of(turn: ControllerTurn, consumer: int) -> None:
    """Goes on with the moves that waited for a consumer that has exited, or drops them."""
    for partition, move in sorted(turn.state.moves.items()):
        if move.asked == consumer and move.stage is MoveStage.STOPPING:
            _mark_released(turn, partition)
        elif move.target == consumer:
            if move.stage is MoveStage.STOPPING:  # a later decision chooses another target
                turn.set(moves={**turn.state.moves, partition: replace(move, target=None)})
            else:
                _drop_move(turn, partition)


def resume_moves_of(turn: ControllerTurn, consumer: int) -> None:
    """Goes on with the moves of a consumer that has said again what it reads.

    It has executed the commands sent before that, or they were meant for an earlier process: an
    acknowledgement may never come. What one that is being killed was told to read stays its own.
    """
    if consumer not in turn.state.ready:
        return
    for partition, move in sorted(turn.state.moves.items()):
        if move.asked != consumer:
            continue
        reads = turn.state.held.get(partition) == consumer
        if move.stage is MoveStage.STARTING and reads:
            _drop_move(turn, partition)
        elif move.stage is MoveStage.STOPPING and not reads:
            _mark_released(turn, partition)
        else:
            again = PartitionMove(target=move.target)
            turn.set(moves={**turn.state.moves, partition: again})


def skip_unkillable(turn: ControllerTurn) -> None:
    """Drops moves that wait for consumers that cannot be killed, so that others can go on.

    Such a consumer keeps what it reads or was told to read until its exit is confirmed.
    """
    ending = turn.state.killing
    for partition, move in sorted(turn.state.moves.items()):
        if move.asked in ending:
            if move.stage is MoveStage.STARTING:
                turn.set(held={**turn.state.held, partition: move.asked})
            _drop_move(turn, partition)
        elif move.stage is MoveStage.STOPPING and move.target in ending:
            turn.set(moves={**turn.state.moves, partition: replace(move, target=None)})
        elif move.stage is MoveStage.WAITING and (
            move.target in ending or turn.state.held.get(partition) in ending
        ):
            _drop_move(turn, partition)


def send_due_commands(turn: ControllerTurn) -> None:
    """Sends all commands that are possible now; the rest waits for acknowledgements."""
    _create_missing(turn)
    stops, starts = _due_commands(turn)
    if (stops or starts) and turn.state.clean:
        turn.set(clean=False)
        turn.persist()
    for consumer, partitions in sorted(stops.items()):
        _send_command(turn, Stop, MoveStage.STOPPING, consumer, partitions)
    for consumer, partitions in sorted(starts.items()):
        _send_command(turn, Start, MoveStage.STARTING, consumer, partitions)


def _create_missing(turn: ControllerTurn) -> None:
    """Requests consumers that moves need and that do not exist; a leaving one after its exit.

    During the pause after failed starts, moves to missing consumers are dropped instead.
    """
    state = turn.state
    targets = {m.target for m in state.moves.values() if m.target is not None}
    missing = targets - state.members.keys() - state.creating.keys()
    if missing and state.now >= state.next_start_at:
        asked = dict.fromkeys(sorted(missing), state.now)
        turn.set(creating={**state.creating, **asked})
        turn.effects.append(Create(tuple(sorted(missing))))
    elif missing:
        for partition, move in sorted(state.moves.items()):
            if move.target in missing and move.stage is MoveStage.WAITING:
                _drop_move(turn, partition)


def _due_commands(turn: ControllerTurn) -> tuple[_ByConsumer, _ByConsumer]:
    """The partitions that can be stopped and started now, by consumer."""
    stops: _ByConsumer = {}
    starts: _ByConsumer = {}
    possible = {None, *turn.state.responsive}
    for partition, move in sorted(turn.state.moves.items()):
        if move.stage is not MoveStage.WAITING or move.target not in possible:
            continue
        holder = turn.state.held.get(partition)
        if holder is not None and turn.state.members[holder].incarnation is None:
            continue  # its answer to a query is awaited
        if holder is not None:
            stops.setdefault(holder, []).append(partition)
        elif move.target is not None:
            starts.setdefault(move.target, []).append(partition)
        else:
            _drop_move(turn, partition)
    return stops, starts


def _send_command(
    turn: ControllerTurn,
    kind: type[Start] | type[Stop],
    stage: MoveStage,
    consumer: int,
    partitions: list[TopicPartition],
) -> None:
    seq = turn.state.seq + 1
    moves = {
        p: replace(turn.state.moves[p], stage=stage, asked=consumer, seq=seq) for p in partitions
    }
    turn.set(seq=seq, moves={**turn.state.moves, **moves})
    command = kind(
        epoch=turn.state.epoch,
        seq=seq,
        partitions=tuple(partitions),
        incarnation=turn.state.members[consumer].incarnation,
    )
    turn.effects.append(Send(consumer, command))
