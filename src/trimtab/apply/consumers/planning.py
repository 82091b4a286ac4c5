"""Decides in a separate thread, so that a slow planner delays nothing else.

Why      The loop that renews the lease and handles acknowledgements must go on while a solver runs.
Promise  At most one decision is in progress. A call returns its result, or None while there is
         none; only the call that starts a decision waits for it, at most 50 ms. A result is used
         only if the group has not changed since the decision started and it is fetched within 10 s:
         else it is dropped and the next decision starts. Exceptions of the planner are raised by
         the call that would have returned the result. Closing does not wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.apply.consumers.group_facts import NewestRates

log = structlog.get_logger()

_AT_ONCE_S = 0.05
_HOLDS_S = 10.0

Judge = Callable[[GroupView, NewestRates, int], GroupVerdict | None]
"""A policy that also gets the measured rates and the current time in microseconds."""


@dataclass
class _Task:
    """One decision in progress."""

    view: GroupView
    measured: NewestRates
    ts: int
    done: threading.Event = field(default_factory=threading.Event)
    verdict: GroupVerdict | None = None
    error: BaseException | None = None
    ended: float = 0.0


class PlanningThread:
    """A judge that calls another one in a thread."""

    def __init__(self, judge: Judge, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._judge, self._clock = judge, clock
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._task: _Task | None = None
        # A daemon thread, so that a solver without a time limit cannot block the process's exit.
        threading.Thread(target=self._work, name="planning", daemon=True).start()

    def __call__(self, view: GroupView, measured: NewestRates, ts: int) -> GroupVerdict | None:
        """The result of an earlier call if it is still valid; else starts a new decision."""
        asked, self._task = self._task, None
        if asked is not None and not asked.done.is_set():
            self._task = asked
            return None
        if asked is not None:
            why = self._outdated(asked, view)
            if why is None:
                return _answer(asked)
            log.info("plan_was_dropped", why=why)
        task = _Task(view, measured, ts)
        self._tasks.put(task)
        if task.done.wait(_AT_ONCE_S):
            return _answer(task)
        self._task = task
        return None

    def _outdated(self, task: _Task, now: GroupView) -> str | None:
        """Why a result is no longer valid; None if it is valid."""
        if _group(task.view) != _group(now):
            return "the group has changed since the planner began"
        if self._clock() - task.ended > _HOLDS_S:
            return "it was fetched too late"
        return None

    def close(self) -> None:
        """Starts no further decision."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task.verdict = self._judge(task.view, task.measured, task.ts)
            except BaseException as error:
                task.error = error
            finally:
                task.ended = self._clock()
                task.done.set()


def _answer(task: _Task) -> GroupVerdict | None:
    if task.error is not None:
        raise task.error
    return task.verdict


def _group(view: GroupView) -> tuple[object, ...]:
    """The state of the group that a decision depends on, without loads and time."""
    startup = view.startup
    return (
        view.assignment,
        view.consumers,
        view.partitions,
        view.orphans,
        view.subscribed,
        frozenset(startup.starting),
        startup.promised,
        startup.retry_in_s > 0,
    )
