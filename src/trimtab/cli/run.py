"""`trimtab run`: measure, decide, scale and move, until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import admin_of, connection
from trimtab.cli.consume import Mode
from trimtab.cli.durations import seconds
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Verbose
from trimtab.cli.output import result, result_json, say
from trimtab.cli.planner_options import MaxMovedLoad, MaxMoves, Slack, asked_options
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError
from trimtab.model.control import Action, Decision
from trimtab.model.control_codec import decision_to
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.observe.logging import configure
from trimtab.plan.planner import Kind
from trimtab.plan.registry import planner_of
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.apply.backends.backend import Backend
    from trimtab.apply.kafka.controller import Judge
    from trimtab.apply.kafka.leadership import Post


_AGAIN_S = 10.0


_LEAST_SILENCE_S = 10.0


class BackendName(StrEnum):
    """Who starts and stops consumers."""

    PROCESSES = "processes"
    KUBERNETES = "kubernetes"


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
            min=0,
            help="What one consumer can carry, per second. Default: what consumers report.",
        ),
    ] = None,
    unit: Annotated[
        Unit | None,
        typer.Option("--unit", help="Of loads and capacity. Default: records/s with --sla."),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="DURATION", parser=seconds, help="Between two decisions."
        ),
    ] = 1.0,
    max_quiet: Annotated[
        float,
        typer.Option(
            "--max-quiet",
            metavar="DURATION",
            parser=seconds,
            help="After so long without a reason, look whether fewer consumers would do.",
        ),
    ] = 10.0,
    cooldown: Annotated[
        float,
        typer.Option(
            "--cooldown",
            metavar="SECONDS",
            min=0,
            help="No other scaling for so long after one.",
        ),
    ] = 0.0,
    headroom: Annotated[
        float,
        typer.Option("--headroom", metavar="X", min=0, max=0.9, help="Part of it left free."),
    ] = 0.0,
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
        float,
        typer.Option(
            "--dead-after",
            metavar="DURATION",
            parser=seconds,
            help="End a consumer that was silent for so long, and give its partitions to others.",
        ),
    ] = 30.0,
    slack: Slack = None,
    max_moves: MaxMoves = None,
    max_moved_load: MaxMovedLoad = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="directed: single partitions are given and taken. group: the group's own leader "
            "asks for the plan at every rebalance."
        ),
    ] = Mode.DIRECTED,
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
            "--listen", metavar="HOST:PORT", help="Where the plan is asked for, in group mode."
        ),
    ] = "127.0.0.1:8765",
    keda: Annotated[
        str | None,
        typer.Option(
            "--keda",
            metavar="HOST:PORT",
            help="In group mode: leave the scaling to KEDA, whose external scaler asks here.",
        ),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="DURATION", parser=seconds, help="End after so long. Default: never."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", help="Serve Prometheus metrics here."),
    ] = None,
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
    if chosen.kind is Kind.LATENCY and (sla is None or unit is not Unit.RECORDS_S):
        raise ConfigError(
            f"{planner} holds a group to a latency, in records/s.", hint="Give --sla, such as 5s."
        )
    who = _Scaling(mode, backend, workload, consume, keda, listen)
    who.check(execute=execute)
    if capacity is not None and capacity <= 0:
        raise typer.BadParameter("a consumer carries more than nothing", param_hint="--capacity")
    if dead_after < _LEAST_SILENCE_S:
        raise ConfigError(
            f"Nobody can be called dead after {dead_after:g} s: consumers report every 5 s.",
            hint=f"Give --dead-after {_LEAST_SILENCE_S:g}s or more.",
        )
    from trimtab.apply.policy import Aim, verdict

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
            [chosen], slack=slack, max_moves=max_moves, max_moved_load=max_moved_load
        ),
    )
    if metrics_port is not None:
        from trimtab.observe import metrics

        metrics.serve(metrics_port)

    judge: Judge = lambda view, measured, ts: verdict(view, measured, aim, ts=ts)  # noqa: E731
    asked = _Asked(settings, group, tuple(dict.fromkeys(topic)), warm_spares, dead_after)
    with ExitStack() as open_now:
        stop = open_now.enter_context(until_interrupted())
        if for_ is not None:
            open_now.enter_context(_after(for_, stop))
        tell = open_now.enter_context(_told(settings, as_json=as_json))
        post = asked.post()
        ours = threading.Event()
        if measure:
            say("Measuring; the first decision takes half a minute.")
            ours = open_now.enter_context(asked.measuring(post, sla_s=sla))
        if not execute:
            from trimtab.apply.kafka.controller import spectate

            say("Only watching: nothing is changed without --execute. Ctrl-C ends it.")
            spectate(post, judge, tell, stop)
            return
        # Without a reason a decision comes only every `max_quiet`: until then the last one holds.
        fresh_s = max(3 * settings.measure.stale_after_s, 2 * max_quiet, 2 * interval)
        runs, tell = open_now.enter_context(asked.scaling(who, tell, fresh_s))
        say(f"Controlling group {group}; Ctrl-C ends it.")
        led = asked.control(post, runs, judge, who, tell, stop)
        if led:
            ours.set()
        _leave(runs, who, stop_consumers=stop_consumers and led)  # else they are another's


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Who starts and stops consumers, and what they do."""

    mode: Mode
    backend: BackendName
    workload: str | None
    consume: str | None
    keda: str | None
    listen: str

    def check(self, *, execute: bool) -> None:
        """Refuses what does not go together."""
        if self.keda is not None and self.mode is not Mode.GROUP:
            raise ConfigError(
                "KEDA may stop any consumer, and a directed one may be busy.",
                hint="Use --keda with --mode group.",
            )
        ours = self.backend is BackendName.PROCESSES and self.keda is None
        if execute and ours and not self.consume:
            raise ConfigError(
                "It is not said what consumers are to do with the records.",
                hint='Give their options, such as --consume "--handler shop:book".',
            )


def _leave(runs: Backend, who: _Scaling, *, stop_consumers: bool) -> None:
    """What becomes of the consumers when the controller ends."""
    living = [] if who.keda is not None else sorted(runs.living())
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
        warm_spares: int,
        dead_after_s: float,
    ) -> None:
        self.settings, self.group, self.topics = settings, group, topics
        self.warm_spares, self.dead_after_s = warm_spares, dead_after_s
        self.to = connection(settings)
        self.folder = settings.home / "groups" / group

    def post(self) -> Post:
        from trimtab.apply.controller import Rules
        from trimtab.apply.kafka.leadership import Post
        from trimtab.measure.kafka.topics import OwnTopics

        with admin_of(self.settings) as admin:
            missing = sorted(set(self.topics) - {p.topic for p in admin.topics(self.topics)})
        if missing:
            raise ConfigError(
                f"There is no topic {', '.join(missing)}.", hint="Create it, or correct --topic."
            )
        return Post(
            group=self.group,
            topics=self.topics,
            bootstrap_server=self.to.bootstrap_server,
            properties=self.to.properties,
            own=OwnTopics(self.settings.topic_prefix),
            rules=Rules(warm_spares=self.warm_spares, dead_after_s=self.dead_after_s),
        )

    def control(
        self,
        post: Post,
        runs: Backend,
        judge: Judge,
        who: _Scaling,
        tell: Callable[[Decision], None],
        stop: threading.Event,
    ) -> bool:
        """Controls the group until it is told to stop; says whether it led then."""
        if who.mode is Mode.DIRECTED:
            from trimtab.apply.kafka.controller import GroupController

            return GroupController(post, runs, judge, on_decision=tell).run(stop)
        from trimtab.apply.kafka.group_controller import SubscribedController

        return SubscribedController(post, runs, judge, who.listen, on_decision=tell).run(stop)

    @contextmanager
    def scaling(
        self, who: _Scaling, tell: Callable[[Decision], None], fresh_s: float
    ) -> Iterator[tuple[Backend, Callable[[Decision], None]]]:
        """The backend, and whom decisions are told."""
        if who.keda is not None:
            with self._keda(who.keda, tell, fresh_s) as (members, tell_both):
                yield members, tell_both
            return
        kubernetes = who.backend is BackendName.KUBERNETES
        runs = self._kubernetes(who.workload) if kubernetes else self._processes(who)
        try:
            yield runs, tell
        finally:
            runs.close()

    def _processes(self, who: _Scaling) -> Backend:
        import shlex

        from trimtab.apply.backends.processes import ProcessBackend

        words = shlex.split(who.consume or "")
        named = [w for topic in self.topics for w in ("--topic", topic)]
        url = ["--controller-url", f"http://{who.listen}"] if who.mode is Mode.GROUP else []

        def command(index: int) -> Sequence[str]:
            return self._trimtab(
                *("consume", "--group", self.group, *named, "--index", str(index)),
                *("--mode", str(who.mode), *url, *words),
            )

        return ProcessBackend(command, self.folder, workdir=Path.cwd())

    def _kubernetes(self, workload: str | None) -> Backend:
        from trimtab.apply.backends.kubernetes import KubernetesBackend, Workload

        if workload is None:
            raise ConfigError(
                "It is not said which consumers to scale.",
                hint="Give --workload statefulset/NAME (directed) or deployment/NAME (group).",
            )
        return KubernetesBackend(Workload.named(workload))

    @contextmanager
    def _keda(
        self, address: str, tell: Callable[[Decision], None], fresh_s: float
    ) -> Iterator[tuple[Backend, Callable[[Decision], None]]]:
        """The members that KEDA has started, and decisions that reach it."""
        from trimtab.apply.keda.scaler import Scaler
        from trimtab.apply.keda.wish import Members, Wish

        wish = Wish(self.group, fresh_s=fresh_s)

        def tell_both(decision: Decision) -> None:
            wish.decided(decision)
            tell(decision)

        with admin_of(self.settings) as admin, Scaler(wish.wanted, address):

            def members() -> list[str]:
                return [m.member_id for g in admin.groups([self.group]) for m in g.members]

            yield Members(members), tell_both

    @contextmanager
    def measuring(self, post: Post, *, sla_s: float | None) -> Iterator[threading.Event]:
        from trimtab.apply.backends.measuring import measuring
        from trimtab.apply.backends.processes import ProcessBackend
        from trimtab.apply.kafka.ears import newest_rates

        named = [w for topic in self.topics for w in ("--topic", topic)]
        command = self._trimtab(
            *("measure", "--continuous", *named, "--group", self.group, "--keys", "none"),
            *(() if sla_s is None else ("--sla", f"{sla_s:g}s")),
        )
        limit_s = self.settings.measure.stale_after_s

        def is_published() -> bool:
            seen = newest_rates(post, within_s=2.0)
            return seen.age_s(self.topics, ts=time.time_ns() // 1000) < limit_s

        one = ProcessBackend(lambda _: command, self.folder / "measure", workdir=Path.cwd())
        with measuring(one, is_published) as ours:
            yield ours

    def _trimtab(self, *words: str) -> list[str]:
        """A command of ours, for the same cluster as this one."""
        to = ["--bootstrap-server", self.to.bootstrap_server]
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


@contextmanager
def _told(settings: Settings, *, as_json: bool) -> Iterator[Callable[[Decision], None]]:
    """Shows decisions as they come, and keeps them in the warehouse."""
    from trimtab.apply.ledger import Ledger

    with Ledger(settings.warehouse / "decisions") as ledger:
        shown = _Shown()

        def tell(decision: Decision) -> None:
            ledger.add(decision)
            if as_json:
                result_json(decision_to(decision))
            elif shown.is_news(decision):
                change = f"{decision.before} → {decision.after}"
                result(f"{decision.action:<10} {change:<8} {decision.reason}")

        yield tell


class _Shown:
    """What a person has seen already: the same again is shown once a while only."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._at = float("-inf")

    def is_news(self, decision: Decision) -> bool:
        said = (str(decision.action), decision.after)
        acts = decision.action not in (Action.NONE, Action.REFUSE)
        if not acts and said == self._last and time.monotonic() - self._at < _AGAIN_S:
            return False
        self._last, self._at = said, time.monotonic()
        return True
