"""`trimtab run`: measure, decide, scale and move, until Ctrl-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from trimtab.cli.addresses import listen_address
from trimtab.cli.connection import ClusterOptions, cluster_of, controller_token
from trimtab.cli.decision_output import decision_printer
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.numbers import finite
from trimtab.cli.options import (
    GroupMode,
    GroupName,
    ReadTopics,
    RunFor,
    Verbose,
    capacity_option,
    duration_option,
    shell_words,
    with_options,
)
from trimtab.cli.output import TerminalProgress
from trimtab.cli.planner_options import (
    MoveLimits,
    PlannerName,
    configured_planners,
    sla_option,
    time_limit_option,
)
from trimtab.cli.signals import until_interrupted
from trimtab.model.load import Unit
from trimtab.observe.logging import configure
from trimtab.services.backends import BackendName, ConsumerScaling
from trimtab.services.consume import ConsumeMode
from trimtab.services.run import TIME_LIMIT_S, RunRequest, control_group
from trimtab.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerbOptions:
    """The group, the rules of its decisions, and the backend of its consumers."""

    group: GroupName
    topic: ReadTopics
    planner: PlannerName = "trim"
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Carry out decisions. Without it they are only shown."),
    ] = False
    sla: Annotated[float | None, sla_option()] = None
    capacity: Annotated[
        float | None,
        capacity_option(
            "Capacity of one consumer, in --unit. Default: what consumers report after they have "
            "worked on a backlog."
        ),
    ] = None
    unit: Annotated[
        Unit | None,
        typer.Option("--unit", help="Unit of loads and capacity. Default: records/s with --sla."),
    ] = None
    interval: Annotated[
        float, duration_option("--interval", shown="1s", help="Time between decisions.")
    ] = 1.0
    max_quiet: Annotated[
        float,
        duration_option(
            "--max-quiet",
            shown="10s",
            help="After this long without a reason to act, check whether fewer consumers are "
            "enough.",
        ),
    ] = 10.0
    cooldown: Annotated[
        float | None,
        duration_option(
            "--cooldown",
            zero=True,
            help="No other scaling for this long after one; in group mode also no other "
            "rebalance. Default: 0s, in group mode 10s.",
        ),
    ] = None
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
    ] = None
    max_consumers: Annotated[
        int | None,
        typer.Option(
            "--max-consumers",
            metavar="N",
            min=1,
            help="Most consumers; load above their capacity is spread over all of them.",
        ),
    ] = None
    warm_spares: Annotated[
        int, typer.Option("--warm-spares", metavar="N", min=0, help="Idle consumers to keep.")
    ] = 0
    dead_after: Annotated[
        float | None,
        duration_option(
            "--dead-after",
            help="End a consumer that was silent for this long, and give its partitions to "
            "others. Default: 30s. Not in group mode: there the brokers end a silent member's "
            "session after 10s, and its partitions go to the other members.",
        ),
    ] = None
    start_timeout: Annotated[
        float | None,
        duration_option(
            "--start-timeout",
            help="How long a new consumer may take until it reports; then it is ended and another "
            "try gets twice as long, up to 16 times. In group mode: until it joins; then the "
            "controller plans without it. Default: 60s for processes, 5m on Kubernetes, where an "
            "image may have to be pulled.",
        ),
    ] = None
    moves: MoveLimits
    time_limit: Annotated[
        float | None,
        time_limit_option(
            f" Moves continue during the search. Default: {TIME_LIMIT_S:g}s for these two."
        ),
    ] = None
    mode: GroupMode = ConsumeMode.DIRECTED
    backend: Annotated[
        BackendName, typer.Option("--backend", help="Where consumers are started and stopped.")
    ] = BackendName.PROCESSES
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="KIND/NAME",
            help="With kubernetes: statefulset/NAME (directed) or deployment/NAME (group).",
        ),
    ] = None
    consume: Annotated[
        str | None,
        typer.Option(
            "--consume",
            metavar="OPTIONS",
            callback=shell_words,
            help='Options of each consumer, such as --consume "--handler shop:book --wait 200ms".',
        ),
    ] = None
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure", help="Start the Spark pipeline unless rates are published."
        ),
    ] = True
    stop_consumers: Annotated[
        bool,
        typer.Option(
            "--stop-consumers/--leave-consumers",
            help="Whether to stop the consumers when the controller ends. They can run without it.",
        ),
    ] = False
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            callback=listen_address,
            help="In group mode: where the group's leader asks for the plan. Give a token "
            "(setting controller.token) when other machines can reach it.",
        ),
    ] = "127.0.0.1:8765"
    keda: Annotated[
        str | None,
        typer.Option(
            "--keda",
            metavar="HOST:PORT",
            callback=listen_address,
            help="In group mode: leave the scaling to KEDA, whose external scaler asks here.",
        ),
    ] = None
    for_: RunFor = None
    metrics: MetricsOptions
    of: ClusterOptions
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every decision as one line of JSON.")
    ] = False
    verbose: Verbose = False


@with_options
def run(options: RunVerbOptions) -> None:
    """Keep a group balanced: measure, decide, scale and move, until Ctrl-C.

    Decisions are shown with their reasons and stored as Parquet; with --execute also published.
    """
    configure(verbose=options.verbose)
    settings = options.of.settings()
    request = _request(options, settings)
    options.metrics.serve()
    with until_interrupted() as stop:
        control_group(
            cluster_of(settings),
            request,
            stop=stop,
            for_s=options.for_,
            on_decision=decision_printer(as_json=options.as_json),
            listener=TerminalProgress(),
        )


def _request(options: RunVerbOptions, settings: Settings) -> RunRequest:
    (planner,), _ = configured_planners(
        [options.planner], options.moves, time_limit=options.time_limit
    )
    return RunRequest(
        group=options.group,
        topics=tuple(dict.fromkeys(options.topic)),
        planner=planner,
        unit=options.unit,
        capacity=options.capacity,
        sla_s=options.sla,
        interval_s=options.interval,
        max_quiet_s=options.max_quiet,
        cooldown_s=options.cooldown,
        headroom=options.headroom,
        max_consumers=options.max_consumers,
        warm_spares=options.warm_spares,
        dead_after_s=options.dead_after,
        start_timeout_s=options.start_timeout,
        stale_after_s=settings.measure.stale_after_s,
        scaling=_scaling(options, settings),
        execute=options.execute,
        measure=options.measure,
        stop_consumers=options.stop_consumers,
        home=settings.home,
        warehouse=settings.warehouse,
        command_config=settings.command_config,
    )


def _scaling(options: RunVerbOptions, settings: Settings) -> ConsumerScaling:
    answers = options.execute and options.mode is ConsumeMode.GROUP
    return ConsumerScaling(
        mode=options.mode,
        backend=options.backend,
        workload=options.workload,
        consume=options.consume,
        keda=options.keda,
        listen=options.listen,
        token=controller_token(settings) if answers else None,
    )
