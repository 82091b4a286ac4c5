"""Decides in a thread of its own, so that a planner that searches holds up nothing else.

Why      The loop that keeps the lease and acts on acknowledgements must go on while a solver works.
Promise  At most one decision is under way. A call returns its answer, or None at once while it is
         not there yet; only the call that begins a decision waits for it, for a twentieth of a
         second. An answer counts only if the group is still as it was when the decision began, and
         if it is fetched soon: else it is dropped and the next one begins. What the planner raises
         is raised by the call that would have had the answer. Closing waits for nobody.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from trimtab.apply.consumers.controller import GroupVerdict, GroupView
from trimtab.apply.consumers.policy import Measured

log = structlog.get_logger()

_AT_ONCE_S = 0.05
_HOLDS_S = 10.0

Judge = Callable[[GroupView, Measured, int], GroupVerdict | None]
"""A policy that is also told what was measured, and the time that records are judged by."""


@dataclass
class _Task:
    """One decision under way."""

    view: GroupView
    measured: Measured
    ts: int
    done: threading.Event = field(default_factory=threading.Event)
    verdict: GroupVerdict | None = None
    error: BaseException | None = None
    ended: float = 0.0


class PlanningThread:
    """A judge that asks another one in a thread."""

    def __init__(self, judge: Judge, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._judge, self._clock = judge, clock
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._task: _Task | None = None
        # A daemon: a solver without a time limit must not keep the process from ending.
        threading.Thread(target=self._work, name="planning", daemon=True).start()

    def __call__(self, view: GroupView, measured: Measured, ts: int) -> GroupVerdict | None:
        """The answer to a question asked before, if it still holds; else asks this one."""
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
        """Why an answer does not hold any more, if it does not."""
        if _group(task.view) != _group(now):
            return "the group has changed since the planner began"
        if self._clock() - task.ended > _HOLDS_S:
            return "it was fetched too late"
        return None

    def close(self) -> None:
        """Begins nothing more."""
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
    """What a decision rests on, apart from loads and time."""
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
