"""Which consumers of a directed group run: their processes, incarnations, failed starts and exits.

Promise  Silence alone proves nothing: a consumer that does not answer is killed, and removed only
         when the backend has confirmed the exit of the process that was meant. If two processes
         report with the same index, or two consumers read the same partition, they are killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from trimtab.apply.consumers.controller_state import ConsumerInfo, Kill
from trimtab.apply.consumers.controller_turn import ControllerTurn
from trimtab.apply.consumers.partition_moves import free_moves_of, resume_moves_of
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Hello, Report, StateReport

_T = TypeVar("_T")


def _without(mapping: Mapping[int, _T], key: int) -> dict[int, _T]:
    return {k: value for k, value in mapping.items() if k != key}


def register_incarnation(turn: ControllerTurn, report: Report) -> None:
    """Registers the incarnation of a consumer, if the report lists its partitions."""
    match report:
        case StateReport(query_id=query_id) if query_id != turn.state.query_id:
            return
        case StateReport() | Hello():
            turn.member(
                report.consumer,
                incarnation=report.incarnation,
                last_report=turn.state.now,
                introduced=turn.state.now,
                fresh=False,
            )
            turn.set(
                creating=_without(turn.state.creating, report.consumer),
                tries=_without(turn.state.tries, report.consumer),
                failed_starts=0,
                next_start_at=float("-inf"),
                failure="",
            )
            _record_held(turn, report.consumer, report.partitions)
            resume_moves_of(turn, report.consumer)
        case _:
            return


def _record_held(turn: ControllerTurn, consumer: int, partitions: Iterable[TopicPartition]) -> None:
    """Records the partitions that a consumer reads; if another one reads them too, kills both.

    It is unknown which of them was first, so both must exit before others may read.
    """
    others = {p: c for p, c in turn.state.held.items() if c != consumer}
    twice = [p for p in partitions if p in others]
    turn.set(held={**others, **{p: consumer for p in partitions if p not in twice}})
    if twice:
        turn.note("two consumers read the same partition", consumer, twice, violation=True)
        for other in sorted({turn.state.held[p] for p in twice} | {consumer}):
            _kill(turn, other, "it reads a partition that another consumer reads too")


def note_rival(turn: ControllerTurn, member: ConsumerInfo, report: Report) -> None:
    """Another incarnation reports with a known index: the exit of one must be confirmed."""
    if member.rival is None or member.rival[0] != report.incarnation:
        turn.member(report.consumer, rival=(report.incarnation, turn.state.now))
        turn.note("another process reports with the same index", report.consumer)


def compare_with_running(turn: ControllerTurn, running: Mapping[int, str]) -> None:
    """Compares the known consumers with the processes that the backend lists."""
    for consumer in sorted(turn.state.members):
        _check_identity(turn, consumer, running.get(consumer))
    for consumer in sorted(running.keys() - turn.state.members.keys()):
        now, identity = turn.state.now, running[consumer]
        since = turn.state.creating.get(consumer, now)
        new = consumer not in turn.state.unseen
        fresh = ConsumerInfo(since=since, last_report=now, identity=identity, seen=now, fresh=new)
        turn.set(members={**turn.state.members, consumer: fresh})
        turn.query(consumer)
    for consumer, since in sorted(turn.state.creating.items()):
        if consumer not in running and turn.state.now - since > turn.state.patience_s(consumer):
            _remove_member(turn, consumer)
    for consumer, member in sorted(turn.state.members.items()):
        _check_liveness(turn, consumer, member)


def _check_identity(turn: ControllerTurn, consumer: int, identity: str | None) -> None:
    """Checks that the process is still the one that was seen before."""
    member, now = turn.state.members[consumer], turn.state.now
    if identity is not None and member.identity in (None, identity):
        turn.member(consumer, identity=identity, seen=now)
    elif identity is None or member.incarnation is None or member.introduced < member.seen:
        _remove_member(turn, consumer)
    else:
        # The known incarnation may be the old or the new process: its partitions stay assigned
        # to it until it answers.
        again = {"identity": identity, "incarnation": None, "rival": None}
        turn.member(consumer, **again, since=now, last_report=now, seen=now)
        turn.set(killing=turn.state.killing - {consumer}, leaving=turn.state.leaving - {consumer})
        turn.query(consumer)


def _check_liveness(turn: ControllerTurn, consumer: int, member: ConsumerInfo) -> None:
    """Kills a consumer that does not answer, is silent, or whose index is used twice."""
    rules, now = turn.state.rules, turn.state.now
    if consumer in turn.state.killing:
        return
    patience_s = turn.state.patience_s(consumer) if member.fresh else rules.sync_timeout_s
    if member.incarnation is None and now - member.since > patience_s:
        _kill(turn, consumer, f"no answer for {patience_s:g} s")
    elif member.incarnation is not None and now - member.last_report > rules.dead_after_s:
        _kill(turn, consumer, f"silent for {rules.dead_after_s:g} s")
    elif member.rival is not None and now - member.rival[1] > rules.contested_after_s:
        _kill(turn, consumer, "two processes report with its index")


def _kill(turn: ControllerTurn, consumer: int, why: str) -> None:
    if consumer not in turn.state.killing:
        turn.set(killing=turn.state.killing | {consumer})
        turn.effects.append(Kill(consumer, why, turn.state.members[consumer].identity))


def confirm_exit(turn: ControllerTurn, consumer: int, identity: str | None) -> None:
    """Removes a consumer whose exit is confirmed; ignored when a newer process runs."""
    member = turn.state.members.get(consumer)
    if member is None or member.identity == identity:
        _remove_member(turn, consumer)


def _remove_member(turn: ControllerTurn, consumer: int) -> None:
    """Removes a consumer that has certainly exited; its partitions and moves become free."""
    state = turn.state
    reason = f": {state.reasons[consumer]}" if consumer in state.reasons else ""
    lost = {p for p, c in state.held.items() if c == consumer}
    if lost:
        turn.note(f"a consumer exited{reason}", consumer, lost)
        turn.set(lost=f"consumer {consumer} exited{reason}", ended=state.ended + 1)
    member = state.members.get(consumer)
    if consumer in state.creating or (member is not None and member.fresh):
        _record_failed_start(turn, consumer, reason)
    turn.set(
        members=_without(state.members, consumer),
        held={p: c for p, c in state.held.items() if c != consumer},
        leaving=state.leaving - {consumer},
        killing=state.killing - {consumer},
        kept=frozenset(),  # it may have stood above them in a StatefulSet
        creating=_without(state.creating, consumer),
    )
    free_moves_of(turn, consumer)


def _record_failed_start(turn: ControllerTurn, consumer: int, reason: str) -> None:
    """A consumer exited before its first report: the next start waits for a growing pause."""
    state = turn.state
    if consumer in state.leaving:  # it was no longer needed
        return
    timed_out = f" within {state.patience_s(consumer):g} s" if consumer in state.killing else ""
    why = f"{timed_out}{reason}"
    turn.set(
        failure=f"consumer {consumer} did not start{why}",
        tries={**state.tries, consumer: state.tries.get(consumer, 0) + 1},
    )
    if state.now >= state.next_start_at:  # once for all that were requested together
        pause_s = min(2.0 ** min(state.failed_starts, 9), state.rules.longest_pause_s)
        turn.set(failed_starts=state.failed_starts + 1, next_start_at=state.now + pause_s)
        turn.note(f"it did not start{why}; the next try is in {pause_s:g} s", consumer)
