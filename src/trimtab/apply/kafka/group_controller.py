"""The controller of a group that subscribes: it counts, plans, and is asked at every rebalance.

Why      Where a group must stay an ordinary one for the brokers, its own leader deals the
         partitions out; it only has to be told how. Brokers fence members, so nothing else is.
Promise  A plan is written down, under the lease, before anybody is told of it; its version rises
         over all controllers, so that every member sees that there is a newer one. Consumers are
         started before the plan counts on them. While no controller leads, the group goes on with
         what it has (`apply.kafka.assignor`).
Cost     A rebalance of the whole group per plan, short but for everybody.
Paper    Ezzeddine et al., section 3.3.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import structlog

from trimtab.apply.assignments import AssignmentAnswer, AssignmentRequest, GroupPlan, answered
from trimtab.apply.backends.backend import Backend
from trimtab.apply.controller import Persist, View
from trimtab.apply.kafka.announcer import Announcer
from trimtab.apply.kafka.controller import Judge
from trimtab.apply.kafka.ears import Ears
from trimtab.apply.kafka.leadership import Lease, Post, Voice, micros, reigning, state_left
from trimtab.apply.policy import Measured
from trimtab.apply.sockets.assignment_service import AssignmentService
from trimtab.errors import ConfigError, TrimtabError
from trimtab.measure.kafka.admin import Admin, connect
from trimtab.model.assignment import Assignment
from trimtab.model.control import Decision, GroupState, Rate
from trimtab.observe import metrics

log = structlog.get_logger()

_NEVER = float("-inf")
_AGAIN_S, _TRIES = 1.0, 60


class SubscribedController:
    """Leads a subscribed group whenever it holds the lease; answers at `listen`."""

    def __init__(
        self,
        post: Post,
        backend: Backend,
        judge: Judge,
        listen: str,
        *,
        on_decision: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self._post = post
        self._backend = backend
        self._judge = judge
        self._host, _, port = listen.rpartition(":")
        if not (self._host and port.isdecimal()):
            raise ConfigError(
                f"{listen!r} is nowhere to listen.", hint="Write it as HOST:PORT: 127.0.0.1:8765."
            )
        self._port = int(port)
        self._on_decision = on_decision
        self._plan: GroupPlan | None = None

    @property
    def plan(self) -> GroupPlan | None:
        """What members are told now."""
        return self._plan

    def run(self, stop: threading.Event) -> bool:
        """Leads whenever it can; says whether it led when it was told to stop."""
        return reigning(self._post, self._reign, stop)

    def _answer(self, request: AssignmentRequest) -> AssignmentAnswer | None:
        plan = self._plan
        return None if plan is None else answered(plan, request)

    def _version(self) -> int | None:
        plan = self._plan
        return None if plan is None else plan.version

    def _reign(self, lease: Lease, stop: threading.Event) -> None:
        post = self._post
        with ExitStack() as open_now:
            voice = Voice(post)
            found = state_left(post)
            self._plan = (
                GroupPlan(version=found.epoch, assignment=found.assignment) if found else None
            )
            ears = open_now.enter_context(closing(Ears(post)))
            admin = open_now.enter_context(connect(post.bootstrap_server, post.properties))
            announcer = open_now.enter_context(closing(Announcer(post, self._on_decision)))
            service = self._service(lease, stop, had_one_before=found is not None)
            if service is None:
                return
            open_now.enter_context(service)
            log.info("controller_leads", group=post.group, version=found.epoch if found else 0)
            threads = ThreadPoolExecutor(1, "scaling")
            open_now.callback(threads.shutdown, cancel_futures=True)  # another may count on them
            turns = _Turns(self._post, self._backend, admin, threads)
            while lease.renewed() and not stop.is_set():
                heard = ears.listen(turns.measured)
                turns.measured = heard[1]
                for report in (event.report for event in heard[0]):
                    if isinstance(report, Rate):
                        turns.rates[report.consumer] = report
                if not turns.due():
                    continue
                self._turn(turns, voice, announcer)

    def _service(
        self, lease: Lease, stop: threading.Event, *, had_one_before: bool
    ) -> AssignmentService | None:
        """Where members ask; a controller before this one, frozen, may still hold the port."""
        for _ in range(_TRIES):
            if stop.is_set() or not lease.renewed():
                break
            try:
                return AssignmentService(
                    self._post.group, self._answer, self._version, host=self._host, port=self._port
                )
            except ConfigError as error:
                cause = error.__cause__
                if not had_one_before or getattr(cause, "errno", None) != errno.EADDRINUSE:
                    raise
                log.warning("nobody_can_ask_yet", why=error.message)
                stop.wait(_AGAIN_S)
        return None  # the lease goes to who may have better luck

    def _turn(self, turns: _Turns, voice: Voice, announcer: Announcer) -> None:
        """Looks once, and decides if there is a reason."""
        try:
            view = turns.view(self._plan.assignment if self._plan else Assignment())
        except TrimtabError as error:
            log.warning("look_failed", why=error.message)
            return
        metrics.controller_consumers.labels(self._post.group).set(len(view.consumers))
        verdict = self._judge(view, turns.measured, micros())
        if verdict is None:
            return
        if verdict.target is not None and turns.leaving & set(verdict.target.consumers):
            return  # who is just ending cannot be counted on, nor be started again yet
        decision = verdict.decision
        turns.decided = view.now
        if verdict.target is not None:
            if decision.before != decision.after:
                turns.scaled = view.now
            self._go(verdict.target, view, turns, voice)
        announcer.announce(decision, verdict.plan)

    def _go(self, target: Assignment, view: View, turns: _Turns, voice: Voice) -> None:
        """Writes the plan down, starts who is missing, publishes it, lets the idle go."""
        version = (self._plan.version if self._plan else 0) + 1
        state = GroupState(epoch=version, clean=True, assignment=target)
        voice.say([Persist(state)])
        known = {p: turns.measured.of(p) for p in target}
        loads = {p: rate.records_s or 0.0 for p, rate in known.items() if rate is not None}
        try:
            missing = set(target.consumers) - view.consumers
            if missing:
                self._backend.create(missing)
            self._plan = GroupPlan(version=version, assignment=target, loads=loads)
            idle = sorted(view.consumers - set(target.consumers))
            turns.let_go(idle[self._post.rules.warm_spares :])
        except TrimtabError as error:
            log.warning("group_was_not_scaled", why=error.message)


class _Turns:
    """What is remembered between two looks."""

    def __init__(
        self, post: Post, backend: Backend, admin: Admin, threads: ThreadPoolExecutor
    ) -> None:
        self._post, self._backend, self._admin = post, backend, admin
        self._threads = threads
        self._leaving: set[int] = set()
        self.measured = Measured()
        self.rates: dict[int, Rate] = {}
        self.began = time.monotonic()
        self.looked = self.decided = self.scaled = _NEVER

    def due(self) -> bool:
        """Whether it is time to look again."""
        now = time.monotonic()
        if now - self.looked < self._post.look_every_s:
            return False
        self.looked = now
        return True

    @property
    def leaving(self) -> frozenset[int]:
        """Consumers that were asked to end, and may still be there."""
        return frozenset(self._leaving)

    def let_go(self, consumers: Sequence[int]) -> None:
        """Asks consumers to end, without waiting: they finish what they have in hand."""
        if consumers:
            self._leaving.update(consumers)
            self._threads.submit(self._remove, tuple(consumers))

    def _remove(self, consumers: tuple[int, ...]) -> None:
        try:
            self._backend.remove(consumers)
        except Exception as error:  # a thread has nobody to raise to; the next turn sees them again
            log.warning("consumers_did_not_end", why=str(error))
        finally:
            self._leaving.difference_update(consumers)

    def view(self, planned: Assignment) -> View:
        """What is to be decided from: the plan in force, and who is there to carry it out."""
        now = time.monotonic()
        leaving = self.leaving  # before the look: one that has gone meanwhile is gone
        living = frozenset(self._backend.living()) - leaving
        partitions = self._post.partitions(self._admin)
        held = Assignment({p: c for p, c in planned.items() if p in partitions and c in living})
        bytes_s = {c: r.max_bytes_s for c, r in self.rates.items()}
        records_s = {c: r.max_records_s for c, r in self.rates.items()}
        return View(
            now=now,
            quiet_s=now - max(self.began, self.scaled),
            since_scaling_s=now - self.scaled,
            since_decision_s=now - self.decided,
            assignment=held,
            consumers=living,
            partitions=partitions,
            orphans=partitions - held.keys(),
            max_bytes_s=_of(living, bytes_s),
            max_records_s=_of(living, records_s),
        )


def _of(living: frozenset[int], said: Mapping[int, float | None]) -> dict[int, float]:
    return {c: value for c, value in said.items() if c in living and value}
