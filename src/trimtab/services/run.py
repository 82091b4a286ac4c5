"""Controls a consumer group: measures, decides, scales and moves until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError, TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.model.control import Decision
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.consumers.planner import PackingPlanner, PlannerKind
from trimtab.plan.registry import planner_of
from trimtab.services.backends import (
    BackendName,
    ConsumerScaling,
    OpenBackend,
    ScaledGroup,
    open_backend,
)
from trimtab.services.consume import ConsumeMode
from trimtab.services.progress import NO_LISTENER, ProgressListener
from trimtab.services.stopping import stopped_after

if TYPE_CHECKING:
    from trimtab.apply.consumers.backends.backend import Backend
    from trimtab.apply.consumers.controller_state import ControllerRules, GroupVerdict, GroupView
    from trimtab.apply.consumers.decision_goals import DecisionGoals
    from trimtab.apply.consumers.group_facts import NewestRates
    from trimtab.apply.consumers.kafka.leadership import GroupConfig
    from trimtab.apply.consumers.planning import Judge

TIME_LIMIT_S = 10.0
"""Default time limit of planners that search."""

_LEAST_TIMEOUT_S = 10.0
_DEAD_AFTER_S = 30.0
_GROUP_COOLDOWN_S = 10.0
_START_TIMEOUT_S = {BackendName.PROCESSES: 60.0, BackendName.KUBERNETES: 300.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Which group is controlled, by what it is decided, and who starts its consumers.

    Options that contradict each other are refused when the request is made.

    Attributes:
        group: The consumer group.
        topics: The topics it reads.
        planner: The planner, with its options.
        unit: Of loads and capacity; by default records/s with `sla_s`, else bytes/s.
        capacity: Capacity of one consumer; by default what consumers report.
        sla_s: How long a record may wait.
        interval_s: Time between two decisions.
        max_quiet_s: After this long without a decision, check whether fewer consumers are enough.
        cooldown_s: No other scaling for this long after one; by default 0 s, 10 s in group mode.
        headroom: Part of the capacity that is left free.
        max_consumers: Upper limit of the number of consumers.
        warm_spares: Idle consumers to keep.
        dead_after_s: A directed consumer silent for this long is ended; by default 30 s.
        start_timeout_s: How long a consumer may take to start; by default 60 s, 300 s for pods.
        stale_after_s: Older rates are not acted on.
        scaling: How consumers take part in the group, and what starts and stops them.
        execute: Carry out decisions; without it they are only reported.
        measure: Start the Spark pipeline unless rates are published already.
        stop_consumers: Stop the consumers at the end.
        home: Folder for the logs and state of processes.
        warehouse: Folder of the Parquet tables; decisions are kept there.
        command_config: File of client properties that is passed on to processes.
    """

    group: str
    topics: tuple[str, ...]
    planner: PackingPlanner = field(default_factory=lambda: planner_of(Layer.CONSUMERS, "trim"))
    unit: Unit | None = None
    capacity: float | None = None
    sla_s: float | None = None
    interval_s: float = 1.0
    max_quiet_s: float = 10.0
    cooldown_s: float | None = None
    headroom: float | None = None
    max_consumers: int | None = None
    warm_spares: int = 0
    dead_after_s: float | None = None
    start_timeout_s: float | None = None
    stale_after_s: float = 10.0
    scaling: ConsumerScaling = field(default_factory=ConsumerScaling)
    execute: bool = False
    measure: bool = True
    stop_consumers: bool = False
    home: Path
    warehouse: Path
    command_config: Path | None = None

    def __post_init__(self) -> None:
        by_records = self.counted_unit is Unit.RECORDS_S
        if self.planner.kind is PlannerKind.LATENCY and (self.sla_s is None or not by_records):
            raise ConfigError(
                f"{self.planner.name} plans for a latency, in records/s.",
                hint="Give --sla, such as 5s." if self.sla_s is None else "Leave --unit out.",
            )
        self.scaling.check(execute=self.execute)
        in_group_mode = self.scaling.mode is ConsumeMode.GROUP
        if self.dead_after_s is not None and in_group_mode:
            raise ConfigError(
                "--dead-after has no effect in group mode: the brokers end the session of a "
                "member that is silent for 10 s, and its partitions go to the other members.",
                hint="Leave it out.",
            )
        if self.dead_after_s is not None and self.dead_after_s < _LEAST_TIMEOUT_S:
            raise ConfigError(
                f"--dead-after must be at least {_LEAST_TIMEOUT_S:g}s, not "
                f"{self.dead_after_s:g}s: consumers report every 5 s."
            )
        if self.start_timeout_s is not None and self.start_timeout_s < _LEAST_TIMEOUT_S:
            raise ConfigError(
                f"--start-timeout must be at least {_LEAST_TIMEOUT_S:g}s, not "
                f"{self.start_timeout_s:g}s."
            )

    @property
    def counted_unit(self) -> Unit:
        """What loads and the capacity are counted in."""
        return self.unit or (Unit.RECORDS_S if self.sla_s is not None else Unit.BYTES_S)

    @property
    def scaling_pause_s(self) -> float:
        """How long after a scaling there is no other."""
        if self.cooldown_s is not None:
            return self.cooldown_s
        return _GROUP_COOLDOWN_S if self.scaling.mode is ConsumeMode.GROUP else 0.0

    @property
    def decisions_hold_s(self) -> float:
        """How long a decision is valid: without a reason the next comes after `max_quiet_s`."""
        return max(3 * self.stale_after_s, 2 * self.max_quiet_s, 2 * self.interval_s)

    def aim(self) -> DecisionGoals:
        """What the policy decides by."""
        from trimtab.apply.consumers.decision_goals import DecisionGoals

        return DecisionGoals(
            group=self.group,
            planner=self._timed_planner(),
            unit=self.counted_unit,
            capacity=self.capacity,
            sla_s=self.sla_s,
            interval_s=self.interval_s,
            max_quiet_s=self.max_quiet_s,
            cooldown_s=self.scaling_pause_s,
            stale_after_s=self.stale_after_s,
            headroom=self.headroom,
            most=self.max_consumers,
        )

    def _timed_planner(self) -> PackingPlanner:
        """The planner; one that searches has a time limit."""
        searches = "time_limit_s" in self.planner.option_names
        if not searches or "time_limit_s" in self.planner.changed_options:
            return self.planner
        return self.planner.with_options(time_limit_s=TIME_LIMIT_S)

    def rules(self) -> ControllerRules:
        """The controller's timeouts and limits."""
        from trimtab.apply.consumers.controller_state import ControllerRules

        pods = BackendName.KUBERNETES if self.scaling.keda else self.scaling.backend
        start_s, dead_s = self.start_timeout_s, self.dead_after_s
        return ControllerRules(
            warm_spares=self.warm_spares,
            dead_after_s=_DEAD_AFTER_S if dead_s is None else dead_s,
            start_timeout_s=_START_TIMEOUT_S[pods] if start_s is None else start_s,
            removes_highest_only=self._scales_stateful_set,
            max_consumers=self.max_consumers,
        )

    @property
    def _scales_stateful_set(self) -> bool:
        """Whether pods are numbered, so that only the highest can be removed."""
        return self.scaling.by_kubernetes and self.scaling.mode is ConsumeMode.DIRECTED

    def scaled_group(self, cluster: Cluster) -> ScaledGroup:
        """The group as its backend knows it."""
        return ScaledGroup(
            cluster=cluster,
            group=self.group,
            topics=self.topics,
            folder=self.home / "groups" / self.group,
            command_config=self.command_config,
            warm_spares=self.warm_spares,
        )


def control_group(
    cluster: Cluster,
    request: RunRequest,
    *,
    stop: threading.Event,
    for_s: float | None = None,
    on_decision: Callable[[Decision], None] = lambda _: None,
    listener: ProgressListener = NO_LISTENER,
) -> bool:
    """Controls the group until `stop` is set or `for_s` seconds have passed.

    Without `execute` it only decides. Decisions are passed to `on_decision` and kept in the
    warehouse. Returns whether this controller led the group at the end.
    """
    from trimtab.apply.consumers.decision_table import DecisionTable
    from trimtab.apply.consumers.kafka.directed_controller import decide_without_acting
    from trimtab.apply.consumers.planning import PlanningThread

    _note_unused_sla(request, listener)
    group = request.scaled_group(cluster)
    with ExitStack() as open_now:
        open_now.enter_context(stopped_after(stop, for_s))
        ledger = open_now.enter_context(DecisionTable(request.warehouse / "decisions"))

        def tell(decision: Decision) -> None:
            ledger.add(decision)
            on_decision(decision)

        judge = open_now.enter_context(closing(PlanningThread(judge_by(request.aim()))))
        config = _config(cluster, request)
        ours = threading.Event()
        if request.measure:
            listener.note("Measuring; the first decision takes half a minute.")
            ours = open_now.enter_context(_measuring(group, config, request))
        if not request.execute:
            listener.started("Only watching: nothing is changed without --execute")
            decide_without_acting(config, judge, tell, stop)
            return False
        opened = open_now.enter_context(
            open_backend(group, request.scaling, on_decision=tell, fresh_s=request.decisions_hold_s)
        )
        listener.started(f"Controlling group {request.group}")
        led = _control(config, opened, judge, request, stop)
        if led:
            ours.set()
        # Without leadership the consumers belong to another controller.
        leave_consumers(
            opened.backend,
            request.scaling,
            stop_consumers=request.stop_consumers and led,
            listener=listener,
        )
        return led


def judge_by(aim: DecisionGoals) -> Judge:
    """Decides by the policy."""
    from trimtab.apply.consumers.policy import verdict

    def judge(view: GroupView, measured: NewestRates, ts: int) -> GroupVerdict | None:
        return verdict(view, measured, aim, ts=ts)

    return judge


def leave_consumers(
    backend: Backend,
    scaling: ConsumerScaling,
    *,
    stop_consumers: bool,
    listener: ProgressListener = NO_LISTENER,
) -> None:
    """Stops the consumers when the controller ends, or tells which of them keep running."""
    try:
        living = [] if scaling.keda is not None else sorted(backend.running())
    except TrimtabError as error:
        if stop_consumers:
            raise
        listener.note(
            f"Consumers keep running with the partitions they have; they could not be listed. "
            f"{error.message}"
        )
        return
    if living and stop_consumers:
        backend.remove(living)
    elif living:
        named = ", ".join(map(str, living))
        listener.note(f"Consumers {named} keep running with the partitions they have.")


def _note_unused_sla(request: RunRequest, listener: ProgressListener) -> None:
    planner, unit = request.planner, request.counted_unit
    packs = planner.kind is PlannerKind.PACKS
    if packs and request.sla_s is not None and unit is not Unit.RECORDS_S:
        listener.note(
            f"{planner.name} packs by {unit} and does not plan for --sla, which is only used "
            "to evaluate the result; leave --unit out to count backlogs as load."
        )


def _config(cluster: Cluster, request: RunRequest) -> GroupConfig:
    """Where to work; a group that will be directed must have no subscribed members."""
    from trimtab.apply.consumers.kafka.leadership import GroupConfig
    from trimtab.apply.consumers.kafka.membership import refuse_subscribed

    with cluster.admin() as admin:
        there = {p.topic for p in admin.topics(request.topics)}
        if missing := sorted(set(request.topics) - there):
            raise ConfigError(
                f"There is no topic {', '.join(missing)}.", hint="Create it, or correct --topic."
            )
        if request.execute and request.scaling.mode is ConsumeMode.DIRECTED:
            refuse_subscribed(admin, request.group)
    return GroupConfig(
        cluster=cluster, group=request.group, topics=request.topics, rules=request.rules()
    )


def _control(
    config: GroupConfig,
    opened: OpenBackend,
    judge: Judge,
    request: RunRequest,
    stop: threading.Event,
) -> bool:
    """Runs the controller until it is stopped; returns whether it led then."""
    if request.scaling.mode is ConsumeMode.DIRECTED:
        from trimtab.apply.consumers.kafka.directed_controller import DirectedController

        controller = DirectedController(
            config, opened.backend, judge, on_decision=opened.on_decision
        )
        return controller.run(stop)
    from trimtab.apply.consumers.kafka.subscribed_controller import SubscribedController

    return SubscribedController(
        config,
        opened.backend,
        judge,
        request.scaling.listen,
        token=request.scaling.token,
        cooldown_s=request.scaling_pause_s,
        while_leading=opened.while_leading,
        on_decision=opened.on_decision,
    ).run(stop)


@contextmanager
def _measuring(
    group: ScaledGroup, config: GroupConfig, request: RunRequest
) -> Iterator[threading.Event]:
    """Runs `trimtab measure --continuous` meanwhile, unless rates are published already.

    The process is ended with the block if the event is set by then.
    """
    from trimtab.apply.consumers.backends.measure_process import measuring
    from trimtab.apply.consumers.backends.processes import ProcessBackend
    from trimtab.apply.consumers.kafka.inbox import newest_rates

    command = group.command(
        *("measure", "--continuous", *group.topic_options),
        *("--group", group.group, "--keys", "none"),
        *(() if request.sla_s is None else ("--sla", f"{request.sla_s:g}s")),
    )

    def is_published() -> bool:
        seen = newest_rates(config)
        return seen.age_s(group.topics, ts=wall_clock_us()) < request.stale_after_s

    folder = group.folder / "measure"
    one = ProcessBackend(lambda _: command, folder, workdir=Path.cwd(), kind="measuring")
    with measuring(one, is_published) as ours:
        yield ours
