"""Executes one live run: a new topic and group, a load on schedule, consumers as processes.

Promise  Our controller is `trimtab run` in its own process, with its own consumers. The load starts
         when the group reads all partitions and, with our controller, when rates of the topic are
         published; a `settled` run first gets the load's first rates until the group can handle
         them. The load is sent open loop. A run ends when every record was processed and
         committed, or fails. All its processes end with it.
Cost     Processes and offsets are checked twice a second.
"""

from __future__ import annotations

import shlex
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import structlog

from trimtab.apply.consumers.backends.backend import Backend
from trimtab.apply.consumers.backends.processes import ProcessBackend
from trimtab.apply.consumers.kafka.inbox import newest_rates
from trimtab.apply.consumers.kafka.leadership import GroupConfig, persisted_state
from trimtab.errors import MeasurementError, TrimtabError
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.topics import ensure
from trimtab.local.processes import ahead_of_others
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.observe.clock import TimedOut, wait_until, wall_clock_us
from trimtab.workload.kafka.load import Delivery, send
from trimtab.workload.load_summary import LoadProgress, LoadSummary
from trimtab.workload.rate_streams import RateSchedule
from trimtab_lab.papers.live.handlers import SERVICE_BYTES_S as SERVICE_BYTES_S_NAME
from trimtab_lab.papers.live.handlers import limited_by_bytes
from trimtab_lab.papers.live.kafka.live_site import LiveSite, RunObservations
from trimtab_lab.papers.live.kafka.own_records import own_records
from trimtab_lab.papers.live.kafka.run_watch import (
    SAMPLE_S,
    RunWatch,
    ends_of,
    in_thread,
    rebalances,
    timeline_since,
)
from trimtab_lab.papers.live.plan import (
    INTERVAL_S,
    LINGER_MS,
    REPORTED_RATE,
    SERVICE_BYTES_S,
    SERVICE_MS,
    WAIT_S,
    HorizontalScaler,
    LiveRun,
    Strategy,
    Timeline,
    replicas_at,
)

log = structlog.get_logger()
_READY_WITHIN_S = 180.0
_SETTLED_WITHIN_S = 240.0
_DRAINED_WITHIN_S = 900.0


def conduct(
    run: LiveRun,
    place: LiveSite,
    *,
    replay: Timeline = (),
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> RunObservations:
    """Executes a run; `replay` is the replica schedule for the strategy that needs one."""
    return _Execution(run, place, replay).execute(on_progress)


class _Execution:
    def __init__(self, run: LiveRun, place: LiveSite, replay: Timeline) -> None:
        self.run, self.place, self.replay = run, place, replay
        self.name = f"live-{run.key.replace('.', '_')}-{uuid.uuid4().hex[:6]}"
        self.schedule = run.schedule
        self.partitions = [
            TopicPartition(self.name, n) for n in range(len(self.schedule.partitions))
        ]
        self.folder = place.folder / self.name
        self.home = self.folder / "home"
        started = self.home / "groups" / self.name if run.strategy.controlled else self.folder
        self.backend = ProcessBackend(self._member, started)
        self.controller = ProcessBackend(self._controller, self.folder / "controller")
        self.began: float | None = None

    # ------------------------------------------------------------ processes

    def _member(self, index: int) -> Sequence[str]:
        """The command of a consumer that gets its partitions from Kafka's assignor."""
        words = ["trimtab_lab.papers.live.kafka.sticky_member", "--wait-s", f"{WAIT_S:g}"]
        words += ["--topic-prefix", self.place.cluster.topics.prefix]
        words += ["--group", self.name, "--topic", self.name, "--index", str(index)]
        words += ["--run", self.name, "--batch-bytes", str(self.run.batch_bytes)]
        if self.run.workload.in_bytes:
            words += ["--service-bytes-s", f"{SERVICE_BYTES_S:g}"]
        else:
            words += ["--service-ms", f"{SERVICE_MS:g}"]
        return [sys.executable, "-m", *words, *self.place.to()]

    def _controller(self, _: int) -> Sequence[str]:
        """The command of `trimtab run`, with its own home and the options of its consumers."""
        run = self.run
        words = ["--group", self.name, "--topic", self.name, "--planner", run.strategy.planner]
        words += ["--execute", "--no-measure", "--stop-consumers"]
        words += ["--unit", str(run.unit), "--capacity", f"{run.capacity:g}", "--headroom", "0"]
        words += ["--interval", f"{INTERVAL_S:g}s", "--max-quiet", f"{run.max_quiet_s:g}s"]
        words += ["--cooldown", "0s"]  # as in the papers; group mode would wait between rebalances
        words += [] if run.held_to_s is None else ["--sla", f"{run.held_to_s:g}s"]
        words += [] if run.most is None else ["--max-consumers", str(run.most)]
        words += ["--consume", shlex.join(self._consume())]
        if not run.strategy.directed:
            words += ["--mode", "group", "--listen", f"127.0.0.1:{_free_port()}"]
        environment = [
            f"TRIMTAB_HOME={self.home.absolute()}",
            f"TRIMTAB_TOPIC_PREFIX={self.place.cluster.topics.prefix}",
            f"{SERVICE_BYTES_S_NAME}={SERVICE_BYTES_S:g}",
        ]
        ours = [sys.executable, "-m", "trimtab.cli.main", "run", *words, *self.place.to()]
        return ["/usr/bin/env", *environment, *ours]

    def _consume(self) -> list[str]:
        """The options of each consumer that `trimtab run` starts."""
        words = ["--run", self.name, "--batch-bytes", str(self.run.batch_bytes)]
        words += ["--wait", f"{WAIT_S * 1000:g}ms"]
        if not self.run.strategy.directed:
            words.append("--verbose")  # each member then logs how long a rebalance took
        if self.run.workload.in_bytes:
            return [*words, "--handler", f"{limited_by_bytes.__module__}:limited_by_bytes"]
        return [*words, "--service-time", f"{SERVICE_MS:g}ms"]

    # ------------------------------------------------------------ the run

    def execute(self, on_progress: Callable[[LoadProgress], None] | None) -> RunObservations:
        place = self.place
        with ExitStack() as open_now:
            admin = open_now.enter_context(place.cluster.admin())
            self._prepare(admin)
            open_now.callback(_end, self.backend)
            other = open_now.enter_context(place.cluster.admin())
            watch = RunWatch(other, self.backend.folder, self.name, self.partitions)
            if self.run.strategy.controlled:
                open_now.enter_context(self._controlled())
            else:
                open_now.enter_context(self._scaled(watch))
            open_now.enter_context(watch.watching())
            self._wait_until_ready(admin)
            ready_ts = wall_clock_us()
            if self.run.settled and self.run.strategy.directed:
                self._settle(watch)
            log.info("load_started", run=self.name)
            lead_in_s = self.run.lead_in_s
            began_ts, began = wall_clock_us() + round(lead_in_s * 1e6), time.monotonic() + lead_in_s
            self.began = began
            summary = self._send(self.schedule, on_progress=on_progress)
            self._wait_until_read(watch)
            ended_ts = wall_clock_us()
            offsets = ends_of(admin, self.name)
            decisions = self._decisions(ready_ts, ended_ts)
        return RunObservations(
            name=self.name,
            group=self.name,
            topic=self.name,
            ready_ts=ready_ts,
            began_ts=began_ts,
            ended_ts=ended_ts,
            replicas=timeline_since(began, watch.replicas),
            lag=tuple((round(t - began, 2), n) for t, n in watch.lags if t >= began),
            offsets=offsets,
            decisions=decisions,
            rebalances_s=tuple(rebalances(self.backend.folder, ready_ts, ended_ts)),
            sla_s=self.run.sla_s,
            sent=summary.sent,
            late=summary.late,
            max_late_ms=summary.max_late_ms,
        )

    def _send(
        self,
        schedule: RateSchedule,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> LoadSummary:
        with ahead_of_others():
            summary = send(
                self.run.due(schedule),
                topic=self.name,
                cluster=self.place.cluster,
                delivery=Delivery(linger_ms=LINGER_MS),
                seed=self.run.seed,
                duration_s=schedule.duration_s,
                on_progress=on_progress,
                stop=stop,
            )
        if summary.failed:
            raise MeasurementError(
                f"{summary.failed} records of {self.name} were not acknowledged.",
                hint="Check that the brokers are running, then start the experiment again.",
            )
        return summary

    def _wait_until_read(self, watch: RunWatch) -> None:
        sent_at = time.monotonic()
        _until(
            lambda: watch.lag == 0 and watch.sampled_at > sent_at,
            _DRAINED_WITHIN_S,
            f"Topic {self.name} was not read completely",
        )

    def _settle(self, watch: RunWatch) -> None:
        """Sends the load's first rates until no consumer is overloaded, then waits for lag 0."""
        opening = RateSchedule.constant(self.run.opening, duration_s=_SETTLED_WITHIN_S)
        rates = dict(zip(self.partitions, self.run.opening, strict=True))

        def balanced() -> bool:
            assignment = self._assignment()
            loads = assignment.loads(rates) if assignment is not None else {}
            return bool(loads) and max(loads.values()) <= REPORTED_RATE

        with in_thread("opening load", lambda stop: self._send(opening, stop=stop)):
            _until(balanced, _SETTLED_WITHIN_S, f"A consumer of {self.name} was still overloaded")
        self._wait_until_read(watch)

    def _prepare(self, admin: Admin) -> None:
        replication = max(1, min(3, len(admin.cluster().live)))
        admin.create_topic(
            TopicSpec(name=self.name, partitions=len(self.partitions), replication=replication)
        )
        ensure(
            admin, (*self.place.cluster.topics.all, *self.place.cluster.topics.of_group(self.name))
        )
        self.folder.mkdir(parents=True, exist_ok=True)

    def _config(self) -> GroupConfig:
        return GroupConfig(cluster=self.place.cluster, group=self.name, topics=(self.name,))

    @contextmanager
    def _controlled(self) -> Iterator[None]:
        """Runs `trimtab run` while the block runs."""
        self.controller.create([0])
        try:
            yield
        finally:
            _end(self.controller)

    def _decisions(self, from_ts: int, to_ts: int) -> tuple[Mapping[str, Any], ...]:
        if not self.run.strategy.controlled:
            return ()
        records = own_records(
            self.place, self.place.cluster.topics.decisions, from_ts=from_ts, to_ts=to_ts
        )
        return tuple(value for value, _ in records if value["group"] == self.name)

    @contextmanager
    def _scaled(self, watch: RunWatch) -> Iterator[None]:
        """Starts and stops members to reach the wanted number; Kafka assigns the partitions."""
        keda = HorizontalScaler(len(self.partitions))

        def scale(stop: threading.Event) -> None:
            while not stop.is_set():
                count, living = self._wanted(keda, watch.lag or 0), self.backend.running()
                if missing := set(range(count)) - living.keys():
                    self.backend.create(missing)
                if surplus := [i for i in living if i >= count]:
                    self.backend.remove(surplus)
                stop.wait(SAMPLE_S / 2)

        with in_thread("scaler", scale):
            yield

    def _wanted(self, keda: HorizontalScaler, lag: int) -> int:
        """The number of members that the strategy wants now."""
        if self.run.strategy is Strategy.FIXED:
            return len(self.partitions)
        if self.began is None:
            return 1 if self.run.strategy is Strategy.KEDA else replicas_at(self.replay, 0.0)
        t_s = time.monotonic() - self.began
        if self.run.strategy is Strategy.KEDA:
            return keda.wanted(t_s, lag)
        return replicas_at(self.replay, t_s)

    def _wait_until_ready(self, admin: Admin) -> None:
        controlled, directed = self.run.strategy.controlled, self.run.strategy.directed

        def ready() -> bool:
            if controlled and not self.controller.running():
                raise MeasurementError(
                    f"The controller of {self.name} ended before the group was ready.",
                    hint=f"See its log in {self.controller.folder}.",
                )
            if directed:
                return self._assignment() is not None
            members = [m for g in admin.groups([self.name]) for m in g.members]
            complete = {p for m in members for p in m.partitions} == set(self.partitions)
            return complete and (controlled or len(members) == self._wanted(HorizontalScaler(1), 0))

        _until(ready, _READY_WITHIN_S, f"Some partitions of {self.name} had no consumer")
        if controlled:
            config = self._config()
            _until(
                lambda: newest_rates(config, within_s=1.0).newest.get(self.name) is not None,
                _READY_WITHIN_S,
                f"No rates of {self.name} were published",
            )

    def _assignment(self) -> Assignment | None:
        """The controller's assignment; None while it is incomplete or moves are in progress."""
        kept = persisted_state(self._config(), missing_ok=True)
        done = kept is not None and kept.clean and kept.assignment.keys() == set(self.partitions)
        return kept.assignment if kept is not None and done else None


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _until(condition: Callable[[], bool], within_s: float, complaint: str) -> None:
    try:
        wait_until(condition, within_s=within_s, every_s=SAMPLE_S)
    except TimedOut:
        raise MeasurementError(
            f"{complaint} after {within_s:g} s.",
            hint="See the logs of its consumers in the folder of the run.",
        ) from None


def _end(backend: Backend) -> None:
    """Stops all consumers of a run; kills those that do not stop."""
    try:
        backend.remove(sorted(backend.running()))
    except TrimtabError as error:
        log.warning("consumers_did_not_end", why=error.message)
        for consumer in sorted(backend.running()):
            backend.kill(consumer)
