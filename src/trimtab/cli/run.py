"""`trimtab run`: measure, decide, scale and move, until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.addresses import listen_address
from trimtab.cli.connection import cluster_of, controller_token
from trimtab.cli.consume import ConsumeMode
from trimtab.cli.decisions import told
from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.metrics_options import METRICS_HOST, MetricsHost, MetricsPort, serve_metrics
from trimtab.cli.numbers import finite, positive
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Verbose, shell_words
from trimtab.cli.output import say
from trimtab.cli.planner_options import MaxMovedLoad, MaxMoves, Slack, asked_options, over_after
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError, TrimtabError
from trimtab.model.control import Decision
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.observe.logging import configure
from trimtab.plan.consumers.planner import PlannerKind
from trimtab.plan.registry import planner_of
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.apply.consumers.backends.backend import Backend
    from trimtab.apply.consumers.controller import ControllerRules, GroupVerdict, GroupView
    from trimtab.apply.consumers.kafka.leadership import GroupConfig
    from trimtab.apply.consumers.planning import Judge
    from trimtab.apply.consumers.policy import Aim, Measured


_LEAST_SILENCE_S = 10.0
_DEAD_AFTER_S = 30.0
_GROUP_COOLDOWN_S = 10.0


class BackendName(StrEnum):
    """Who starts and stops consumers."""

    PROCESSES = "processes"
    KUBERNETES = "kubernetes"


_TIME_LIMIT_S = 10.0
_START_TIMEOUT_S = {BackendName.PROCESSES: 60.0, BackendName.KUBERNETES: 300.0}


def run(
    group: Annotated[str, typer.Option("--group", metavar="G", help="The consumer group.")],
    topic: Annotated[
        list[str], typer.Option("--topic", metavar="T", help="A topic it reads; may be repeated.")
    ],
    planner: Annotated[
        str, typer.Option("--planner", metavar="NAME", help="Who decides: ll-ffd, mwf, trim, …")
    ] = "trim",
    execute: Annotated[
        bool,
        typer.Option(
            "--execute", help="Act. Without it decisions are shown, and nothing is changed."
        ),
    ] = False,
    sla: Annotated[
        float | None,
        typer.Option(
            "--sla", metavar="DURATION", parser=seconds, help="How long a record may wait."
        ),
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity",
            metavar="X",
            callback=positive,
            help="What one consumer can carry, per second. Default: what consumers report after "
            "they have worked on a backlog.",
        ),
    ] = None,
    unit: Annotated[
        Unit | None,
        typer.Option("--unit", help="Of loads and capacity. Default: records/s with --sla."),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="DURATION",
            parser=seconds,
            show_default="1s",
            help="Between two decisions.",
        ),
    ] = 1.0,
    max_quiet: Annotated[
        float,
        typer.Option(
            "--max-quiet",
            metavar="DURATION",
            parser=seconds,
            show_default="10s",
            help="After so long without a reason, look whether fewer consumers would do.",
        ),
    ] = 10.0,
    cooldown: Annotated[
        float | None,
        typer.Option(
            "--cooldown",
            metavar="DURATION",
            parser=seconds_or_zero,
            help="No other scaling for so long after one; in group mode also no other rebalance. "
            "Default: 0s, in group mode 10s.",
        ),
    ] = None,
    headroom: Annotated[
        float | None,
        typer.Option(
            "--headroom",
            metavar="X",
            min=0,
            max=0.9,
            callback=finite,
            help="Part of the capacity left free, such as 0.2. Default: 1/6 of a capacity that was "
            "measured; 0 of one given with --capacity, which is used as it is.",
        ),
    ] = None,
    max_consumers: Annotated[
        int | None,
        typer.Option(
            "--max-consumers",
            metavar="N",
            min=1,
            help="Never more than that; they share what is too much for them.",
        ),
    ] = None,
    warm_spares: Annotated[
        int, typer.Option("--warm-spares", metavar="N", min=0, help="Idle consumers to keep.")
    ] = 0,
    dead_after: Annotated[
        float | None,
        typer.Option(
            "--dead-after",
            metavar="DURATION",
            parser=seconds,
            help="End a consumer that was silent for so long, and give its partitions to others. "
            "Default: 30s. Not in group mode: there the brokers end a silent member's session "
            "after 10s, and its partitions go to the other members.",
        ),
    ] = None,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            "--start-timeout",
            metavar="DURATION",
            parser=seconds,
            help="How long a new consumer may take until it reports; then it is ended and another "
            "try gets twice as long, up to 16 times. In group mode: until it joins; then it is "
            "no longer counted on. Default: 60s for "
            "processes, 5m on Kubernetes, where an image may have to be pulled.",
        ),
    ] = None,
    slack: Slack = None,
    max_moves: MaxMoves = None,
    max_moved_load: MaxMovedLoad = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="DURATION",
            parser=seconds,
            help="After that long exact and trim give the best plan found so far. Hand-overs go "
            f"on meanwhile. Default: {_TIME_LIMIT_S:g}s for these two.",
        ),
    ] = None,
    mode: Annotated[
        ConsumeMode,
        typer.Option(
            help="directed: single partitions are given and taken. group: the group's own leader "
            "asks for the plan at every rebalance."
        ),
    ] = ConsumeMode.DIRECTED,
    backend: Annotated[
        BackendName, typer.Option("--backend", help="Who starts and stops consumers.")
    ] = BackendName.PROCESSES,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="KIND/NAME",
            help="With kubernetes: statefulset/NAME (directed) or deployment/NAME (group).",
        ),
    ] = None,
    consume: Annotated[
        str | None,
        typer.Option(
            "--consume",
            metavar="OPTIONS",
            callback=shell_words,
            help='Options of each consumer, as in --consume "--handler shop:book --wait 200ms".',
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure", help="Start the Spark pipeline unless rates are published."
        ),
    ] = True,
    stop_consumers: Annotated[
        bool,
        typer.Option(
            "--stop-consumers/--leave-consumers",
            help="Stop the consumers, too, when this ends. They can go on without.",
        ),
    ] = False,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            callback=listen_address,
            help="In group mode: where the group's leader asks for the plan. Give a token "
            "(setting controller.token) when other machines can reach it.",
        ),
    ] = "127.0.0.1:8765",
    keda: Annotated[
        str | None,
        typer.Option(
            "--keda",
            metavar="HOST:PORT",
            callback=listen_address,
            help="In group mode: leave the scaling to KEDA, whose external scaler asks here.",
        ),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="DURATION", parser=seconds, help="End after so long. Default: never."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Keep a group level: measure, decide, scale and move, until Ctrl-C.

    Decisions are shown with their reasons, kept in Parquet, and with --execute published too.
    """
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    chosen = planner_of(Layer.CONSUMERS, planner)
    unit = unit or (Unit.RECORDS_S if sla is not None else Unit.BYTES_S)
    if chosen.kind is PlannerKind.LATENCY and (sla is None or unit is not Unit.RECORDS_S):
        raise ConfigError(
            f"{planner} holds a group to a latency, in records/s.",
            hint="Give --sla, such as 5s." if sla is None else "Leave --unit out.",
        )
    if chosen.kind is PlannerKind.PACKS and sla is not None and unit is not Unit.RECORDS_S:
        say(
            f"{planner} packs by {unit} and does not hold the group to --sla, which only judges "
            "what came of it; leave --unit out to have backlogs counted."
        )
    if cooldown is None:
        cooldown = _GROUP_COOLDOWN_S if mode is ConsumeMode.GROUP else 0.0
    who = _Scaling(mode, backend, workload, consume, keda, listen, cooldown)
    who.check(execute=execute)
    if capacity is not None and capacity <= 0:
        raise typer.BadParameter("a consumer carries more than nothing", param_hint="--capacity")
    silence_s = _silence_s(dead_after, mode)
    patience_s = _patience_s(start_timeout, BackendName.KUBERNETES if keda else backend)
    from trimtab.apply.consumers.controller import ControllerRules
    from trimtab.apply.consumers.planning import PlanningThread
    from trimtab.apply.consumers.policy import Aim

    if time_limit is None and "time_limit_s" in chosen.reads:
        time_limit = _TIME_LIMIT_S
    aim = Aim(
        group=group,
        planner=planner,
        unit=unit,
        capacity=capacity,
        sla_s=sla,
        interval_s=interval,
        max_quiet_s=max_quiet,
        cooldown_s=cooldown,
        stale_after_s=settings.measure.stale_after_s,
        headroom=headroom,
        most=max_consumers,
        options=asked_options(
            [chosen],
            slack=slack,
            max_moves=max_moves,
            max_moved_load=max_moved_load,
            time_limit_s=time_limit,
        ),
    )
    serve_metrics(metrics_port, metrics_host)

    rules = ControllerRules(
        warm_spares=warm_spares,
        dead_after_s=silence_s,
        start_timeout_s=patience_s,
        max_consumers=max_consumers,
    )
    asked = _Asked(settings, group, tuple(dict.fromkeys(topic)), rules)
    with ExitStack() as open_now:
        stop = open_now.enter_context(until_interrupted())
        if for_ is not None:
            open_now.enter_context(_after(for_, stop))
        tell = open_now.enter_context(told(settings.warehouse / "decisions", as_json=as_json))
        judge = open_now.enter_context(closing(PlanningThread(_judging(aim))))
        config = asked.config(directs=execute and mode is ConsumeMode.DIRECTED)
        ours = threading.Event()
        if measure:
            say("Measuring; the first decision takes half a minute.")
            ours = open_now.enter_context(asked.measuring(config, sla_s=sla))
        if not execute:
            from trimtab.apply.consumers.kafka.directed_controller import spectate

            say("Only watching: nothing is changed without --execute. Ctrl-C ends it.")
            spectate(config, judge, tell, stop)
            return
        # Without a reason a decision comes only every `max_quiet`: until then the last one holds.
        fresh_s = max(3 * settings.measure.stale_after_s, 2 * max_quiet, 2 * interval)
        scaled = open_now.enter_context(asked.scaling(who, tell, fresh_s))
        say(f"Controlling group {group}; Ctrl-C ends it.")
        led = asked.control(config, scaled, judge, who, stop)
        if led:
            ours.set()
        _leave(
            scaled.backend, who, stop_consumers=stop_consumers and led
        )  # else they are another's


def _silence_s(dead_after: float | None, mode: ConsumeMode) -> float:
    """How long a consumer may be silent."""
    if dead_after is not None and mode is ConsumeMode.GROUP:
        raise ConfigError(
            "--dead-after has no effect in group mode: the brokers end the session of a member "
            "that is silent for 10 s, and its partitions go to the other members.",
            hint="Leave it out.",
        )
    silence_s = _DEAD_AFTER_S if dead_after is None else dead_after
    if silence_s < _LEAST_SILENCE_S:
        raise ConfigError(
            f"--dead-after must be at least {_LEAST_SILENCE_S:g}s, not {silence_s:g}s: consumers "
            "report every 5 s."
        )
    return silence_s


def _patience_s(start_timeout: float | None, runs: BackendName) -> float:
    """How long a new consumer may take."""
    patience_s = _START_TIMEOUT_S[runs] if start_timeout is None else start_timeout
    if patience_s < _LEAST_SILENCE_S:
        raise ConfigError(
            f"--start-timeout must be at least {_LEAST_SILENCE_S:g}s, not {patience_s:g}s."
        )
    return patience_s


def _judging(aim: Aim) -> Judge:
    """Decides by the policy; the time limit of a planner begins anew with every decision."""
    from trimtab.apply.consumers.policy import verdict

    def judge(view: GroupView, measured: Measured, ts: int) -> GroupVerdict | None:
        timed = replace(aim.options, expired=over_after(aim.options.time_limit_s))
        return verdict(view, measured, replace(aim, options=timed), ts=ts)

    return judge


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Who starts and stops consumers, and what they do."""

    mode: ConsumeMode
    backend: BackendName
    workload: str | None
    consume: str | None
    keda: str | None
    listen: str
    cooldown_s: float

    def check(self, *, execute: bool) -> None:
        """Refuses what does not go together."""
        if self.keda is not None and self.mode is not ConsumeMode.GROUP:
            raise ConfigError(
                "KEDA may stop any consumer, and a directed one may be busy.",
                hint="Use --keda with --mode group.",
            )
        ours = self.backend is BackendName.PROCESSES and self.keda is None
        if self.consume and not ours:
            raise ConfigError(
                "--consume has no effect: it is not this command that starts the consumers.",
                hint="Give the options to `trimtab consume` in the pods' manifest.",
            )
        self._check_workload(execute=execute)
        if execute and ours and not self.consume:
            raise ConfigError(
                "It is not said what consumers are to do with the records.",
                hint='Give their options, such as --consume "--handler shop:book".',
            )

    def _check_workload(self, *, execute: bool) -> None:
        kubernetes = self.backend is BackendName.KUBERNETES and self.keda is None
        if self.workload is None and kubernetes and execute:
            raise ConfigError(
                "It is not said which consumers to scale.",
                hint="Give --workload statefulset/NAME (directed) or deployment/NAME (group).",
            )
        if self.workload is None:
            return
        if not kubernetes:
            raise ConfigError(
                "--workload has no effect without --backend kubernetes, or with --keda.",
                hint="Add --backend kubernetes, or leave --workload out.",
            )
        from trimtab.apply.consumers.backends.kubernetes import KubernetesWorkload, WorkloadKind

        kind = KubernetesWorkload.named(self.workload).kind
        if kind is WorkloadKind.DEPLOYMENT and self.mode is ConsumeMode.DIRECTED:
            raise ConfigError(
                "Directed consumers need numbers that stay; pods of a Deployment have none.",
                hint="Give --workload statefulset/NAME, or use --mode group.",
            )


@dataclass(frozen=True, slots=True)
class _Scaled:
    """The backend, what decisions are passed to, and what serves KEDA while this one leads."""

    backend: Backend
    tell: Callable[[Decision], None]
    while_leading: Callable[[], AbstractContextManager[object]] = nullcontext


def _leave(runs: Backend, who: _Scaling, *, stop_consumers: bool) -> None:
    """What becomes of the consumers when the controller ends."""
    try:
        living = [] if who.keda is not None else sorted(runs.living())
    except TrimtabError as error:
        if stop_consumers:
            raise
        say(f"Consumers go on with what they have; which there are is not known. {error.message}")
        return
    if living and stop_consumers:
        runs.remove(living)
    elif living:
        say(f"Consumers {', '.join(map(str, living))} go on with what they have.")


class _Asked:
    """What the flags amount to."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        topics: tuple[str, ...],
        rules: ControllerRules,
    ) -> None:
        self.settings, self.group, self.topics, self.rules = settings, group, topics, rules
        self.cluster = cluster_of(settings)
        self.folder = settings.home / "groups" / group

    def config(self, *, directs: bool) -> GroupConfig:
        """Where to work; a group that is to be directed must have no subscribed members."""
        from trimtab.apply.consumers.kafka.leadership import GroupConfig
        from trimtab.apply.consumers.kafka.membership import refuse_subscribed

        with self.cluster.admin() as admin:
            missing = sorted(set(self.topics) - {p.topic for p in admin.topics(self.topics)})
            if missing:
                raise ConfigError(
                    f"There is no topic {', '.join(missing)}.",
                    hint="Create it, or correct --topic.",
                )
            if directs:
                refuse_subscribed(admin, self.group)
        return GroupConfig(
            cluster=self.cluster,
            group=self.group,
            topics=self.topics,
            rules=self.rules,
        )

    def control(
        self,
        config: GroupConfig,
        scaled: _Scaled,
        judge: Judge,
        who: _Scaling,
        stop: threading.Event,
    ) -> bool:
        """Controls the group until it is told to stop; says whether it led then."""
        if who.mode is ConsumeMode.DIRECTED:
            from trimtab.apply.consumers.kafka.directed_controller import DirectedController

            controller = DirectedController(config, scaled.backend, judge, on_decision=scaled.tell)
            return controller.run(stop)
        from trimtab.apply.consumers.kafka.subscribed_controller import SubscribedController

        return SubscribedController(
            config,
            scaled.backend,
            judge,
            who.listen,
            token=controller_token(self.settings),
            cooldown_s=who.cooldown_s,
            while_leading=scaled.while_leading,
            on_decision=scaled.tell,
        ).run(stop)

    @contextmanager
    def scaling(
        self, who: _Scaling, tell: Callable[[Decision], None], fresh_s: float
    ) -> Iterator[_Scaled]:
        """The backend, open while the block runs."""
        if who.keda is not None:
            with self._keda(who.keda, tell, fresh_s) as scaled:
                yield scaled
            return
        kubernetes = who.backend is BackendName.KUBERNETES
        runs = self._kubernetes(who.workload) if kubernetes else self._processes(who)
        try:
            yield _Scaled(runs, tell)
        finally:
            runs.close()

    def _processes(self, who: _Scaling) -> Backend:
        import shlex

        from trimtab.apply.consumers.backends.processes import ProcessBackend, record_file

        words = shlex.split(who.consume or "")
        named = [w for topic in self.topics for w in ("--topic", topic)]
        url = ["--controller-url", f"http://{who.listen}"] if who.mode is ConsumeMode.GROUP else []

        def command(index: int) -> Sequence[str]:
            return self._trimtab(
                *("consume", "--group", self.group, *named, "--index", str(index)),
                *("--mode", str(who.mode), *url, *words),
                *("--in-hand", str(record_file(self.folder.absolute(), index))),
            )

        return ProcessBackend(command, self.folder, workdir=Path.cwd())

    def _kubernetes(self, workload: str | None) -> Backend:
        from trimtab.apply.consumers.backends.kubernetes import (
            KubernetesBackend,
            KubernetesWorkload,
        )

        return KubernetesBackend(KubernetesWorkload.named(workload or ""))

    @contextmanager
    def _keda(
        self, address: str, tell: Callable[[Decision], None], fresh_s: float
    ) -> Iterator[_Scaled]:
        """The members that KEDA has started, and decisions that reach it.

        Only the controller that leads listens: KEDA keeps a connection to whoever accepts it.
        """
        from trimtab.apply.consumers.keda.scaler import Scaler
        from trimtab.apply.consumers.keda.wish import Members, Wish

        wish = Wish(self.group, fresh_s=fresh_s, spares=self.rules.warm_spares)

        def tell_both(decision: Decision) -> None:
            wish.decided(decision)
            tell(decision)

        with self.cluster.admin() as admin:

            def members() -> list[str]:
                found = [m for g in admin.groups([self.group]) for m in g.members]
                return [m.instance or m.member_id for m in found]

            there = Members(members, on_look=wish.look)
            yield _Scaled(there, tell_both, partial(Scaler, wish.wanted, address))

    @contextmanager
    def measuring(self, config: GroupConfig, *, sla_s: float | None) -> Iterator[threading.Event]:
        from trimtab.apply.consumers.backends.measuring import measuring
        from trimtab.apply.consumers.backends.processes import ProcessBackend
        from trimtab.apply.consumers.kafka.inbox import newest_rates

        named = [w for topic in self.topics for w in ("--topic", topic)]
        command = self._trimtab(
            *("measure", "--continuous", *named, "--group", self.group, "--keys", "none"),
            *(() if sla_s is None else ("--sla", f"{sla_s:g}s")),
        )
        limit_s = self.settings.measure.stale_after_s

        def is_published() -> bool:
            seen = newest_rates(config, within_s=2.0)
            return seen.age_s(self.topics, ts=time.time_ns() // 1000) < limit_s

        folder = self.folder / "measure"
        one = ProcessBackend(lambda _: command, folder, workdir=Path.cwd(), kind="measuring")
        with measuring(one, is_published) as ours:
            yield ours

    def _trimtab(self, *words: str) -> list[str]:
        """A command of ours, for the same cluster as this one."""
        to = ["--bootstrap-server", self.cluster.servers]
        if self.settings.command_config is not None:
            to += ["--command-config", str(self.settings.command_config.absolute())]
        return [sys.executable, "-m", "trimtab.cli.main", *words, *to]


@contextmanager
def _after(duration_s: float, stop: threading.Event) -> Iterator[None]:
    timer = threading.Timer(duration_s, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
