"""The members of a subscribed group as its controller sees them: running, starting, or leaving."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from trimtab.apply.consumers.assignments import GroupPlan
from trimtab.apply.consumers.backends.backend import Backend
from trimtab.apply.consumers.controller_state import GroupView
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.apply.consumers.subscribed import numbered, read_by
from trimtab.errors import TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Decision, MemberRate

log = structlog.get_logger()

_NEVER = float("-inf")


class SubscribedMembers:
    """What is remembered of a subscribed group between two observations.

    A consumer of the plan that is missing is awaited for `ControllerRules.start_timeout_s`: it was
    just started, or its orchestrator will restart it. Meanwhile the plan is not changed.
    """

    def __init__(
        self,
        config: GroupConfig,
        backend: Backend,
        admin: Admin,
        threads: ThreadPoolExecutor,
        numbers: Mapping[str, int],
    ) -> None:
        self._config, self._backend, self._admin = config, backend, admin
        self._threads = threads
        self._leaving: set[int] = set()
        self._awaited: dict[int, float] = {}
        self._given_up: set[int] | None = None
        self._refused: Set[int] = set()  # exited, and could not be started again yet
        self.numbers = self.kept = dict(numbers)
        self.measured = NewestRates()
        self.rates: Sequence[MemberRate] = ()
        self.began = time.monotonic()
        self.looked = self.decided = self.scaled = self.rebalanced = _NEVER

    def due(self) -> bool:
        """Whether it is time for the next observation."""
        now = time.monotonic()
        if now - self.looked < self._config.look_every_s:
            return False
        self.looked = now
        return True

    @property
    def awaited(self) -> frozenset[int]:
        """Consumers that are starting."""
        return frozenset(self._awaited)

    @property
    def leaving(self) -> frozenset[int]:
        """Consumers that were asked to end and may still run."""
        return frozenset(self._leaving)

    def release(self, consumers: Sequence[int]) -> None:
        """Asks consumers to end, without waiting: they finish the records they have fetched."""
        awaited = self._awaited.keys()
        there = [c for c in consumers if c not in awaited]
        for consumer in set(consumers) & awaited:
            del self._awaited[consumer]
        if there:
            self._leaving.update(there)
            self._threads.submit(self._remove, tuple(there))

    def _remove(self, consumers: tuple[int, ...]) -> None:
        try:
            self._backend.remove(consumers)
        except Exception as error:  # the next observation finds them again
            log.warning("consumers_did_not_end", why=str(error))
        finally:
            self._leaving.difference_update(consumers)

    def start(self, missing: Collection[int], all_of_them: Collection[int]) -> None:
        """Starts consumers and awaits them; awaits none if the backend refuses."""
        self._backend.create(all_of_them)
        self._await(missing)

    def _await(self, missing: Collection[int]) -> None:
        until = time.monotonic() + self._config.rules.start_timeout_s
        self._awaited.update(dict.fromkeys(missing, until))

    def with_waiting(self, decision: Decision) -> Decision:
        """The decision, with the awaited consumers and what is known of them in its reason."""
        if not self._awaited:
            return decision
        reasons = self._backend.exit_reasons()
        who = ", ".join(
            f"{c} ({reasons[c]})" if reasons.get(c) else f"{c}" for c in sorted(self._awaited)
        )
        return replace(decision, reason=f"{decision.reason}; waiting for consumer {who} to join")

    def shares(self) -> set[frozenset[TopicPartition]]:
        """The set of partitions that each member owns, as the brokers report it."""
        topics = frozenset(self._config.topics)
        return {
            frozenset(p for p in member.partitions if p.topic in topics)
            for group in self._admin.groups([self._config.group])
            for member in group.members
        }

    def view(self, plan: GroupPlan | None) -> GroupView:
        """The input of a decision: the assignment and the consumers, starting ones included."""
        now = time.monotonic()
        leaving = self.leaving  # read before listing: a consumer that exits meanwhile is not listed
        planned = frozenset(plan.assignment.consumers) if plan else frozenset()
        running = self._running(planned) - leaving
        self._wait_for(planned - leaving, running, now)
        consumers = running | self._awaited.keys()
        partitions = self._config.partitions(self._admin)
        read = read_by(plan, consumers, partitions)
        return GroupView(
            now=now,
            quiet_s=now - max(self.began, self.scaled),
            since_scaling_s=now - self.scaled,
            since_decision_s=now - self.decided,
            assignment=read,
            consumers=consumers,
            partitions=partitions,
            orphans=partitions - read.keys(),
            max_bytes_s=_known(r.max_bytes_s for r in self.rates),
            max_records_s=_known(r.max_records_s for r in self.rates),
            spares=self._config.rules.warm_spares,
        )

    def _running(self, planned: frozenset[int]) -> frozenset[int]:
        """The numbers of the running consumers."""
        names = self._backend.names()
        if names is None:
            return frozenset(self._backend.running())
        self.numbers = numbered(names, self.numbers, planned)
        return frozenset(self.numbers.values())

    def _wait_for(self, planned: frozenset[int], running: frozenset[int], now: float) -> None:
        """Awaits planned consumers that are missing; gives up those that do not come in time."""
        absent = planned - running
        if self._given_up is None:  # those missing from an inherited plan were not started by us
            self._given_up = set(absent)
        self._given_up &= absent
        late = {c for c, until in self._awaited.items() if until < now and c not in running}
        if late:
            log.warning("consumers_did_not_join", group=self._config.group, consumers=sorted(late))
        self._given_up |= late & absent
        self._awaited = {
            c: until for c, until in self._awaited.items() if c not in running and c not in late
        }
        lost = absent - self._given_up - self._awaited.keys()
        if lost:
            log.warning("consumers_exited", group=self._config.group, consumers=sorted(lost))
            self._await(lost)  # in any case: their orchestrator may restart them
        again = (self._refused & self._awaited.keys()) | lost
        if again:
            try:
                self._backend.create(running | planned)
            except TrimtabError as error:  # such as a pause after repeated exits: retried later
                if lost:
                    log.warning("group_was_not_scaled", why=error.message)
                self._refused = again
            else:
                self._refused = set()
                self._await(again)


def _known(reported: Iterable[float | None]) -> dict[int, float]:
    """The reported values, numbered in order; these numbers are not those of the plan."""
    return dict(enumerate(value for value in reported if value))
