"""`trimtab consume`: a consumer that is directed by the controller, or a member of a group."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.apply.keys.backends.state_stores import MAX_MEMORY_BYTES, StateStore
from trimtab.apply.keys.keyed_handler import StateFormat
from trimtab.cli.connection import ClusterOptions, cluster_of, controller_token
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.options import (
    AsJson,
    GroupMode,
    GroupName,
    ReadTopics,
    Verbose,
    duration_option,
    output_file,
    output_folder,
    with_options,
)
from trimtab.cli.output import TerminalProgress, show
from trimtab.cli.signals import until_interrupted
from trimtab.observe.logging import configure
from trimtab.services.consume import ConsumeMode, ConsumeRequest, consume_records
from trimtab.settings import Settings, pod_name

if TYPE_CHECKING:
    from trimtab.apply.handling import Handler
    from trimtab.apply.keys.keyed_handler import KeyedHandler


_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")


class StartingPoint(StrEnum):
    """Where a partition without a committed offset is read from."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What is read, what is done with it, and how the consumer takes part in its group."""

    group: GroupName
    topic: ReadTopics
    mode: GroupMode = ConsumeMode.DIRECTED
    index: Annotated[
        int | None,
        typer.Option(
            "--index",
            metavar="I",
            min=0,
            help="This consumer's place in the group, 0 for the first. Needed in directed mode.",
        ),
    ] = None
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id",
            metavar="NAME",
            help="In group mode: join as a static member of this name (group.instance.id), which "
            "can restart without a rebalance. Default: the name of the pod, if there is one.",
        ),
    ] = None
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="MODULE:FUNCTION",
            help="A Python function that is called with each record, in order per partition.",
        ),
    ] = None
    service_time: Annotated[
        float | None,
        duration_option(
            "--service-time",
            zero=True,
            help="For experiments, instead of --handler: take this long per record.",
        ),
    ] = None
    keyed: Annotated[
        bool,
        typer.Option(
            "--keyed",
            help="Keep a state per key that follows its key when it moves between partitions. "
            "--handler is then called with key, state and record, and returns the state and a "
            "list of outputs; without one, records are counted per key.",
        ),
    ] = False
    state: Annotated[
        StateFormat, typer.Option("--state", help="With --keyed: how states are stored.")
    ] = StateFormat.JSON
    max_tasks: Annotated[
        int,
        typer.Option(
            "--max-tasks",
            metavar="N",
            min=1,
            help="With --keyed: partitions that this consumer may own; each costs a producer.",
        ),
    ] = 64
    commit_every: Annotated[
        float,
        duration_option(
            "--commit-every",
            shown="500ms",
            help="With --keyed: longest time between two transactions of a partition.",
        ),
    ] = 0.5
    max_parked: Annotated[
        int,
        typer.Option(
            "--max-parked",
            metavar="N",
            min=1,
            help="With --keyed: records of a partition that may wait for the states of their keys "
            "before the partition is paused.",
        ),
    ] = 10_000
    store: Annotated[
        StateStore,
        typer.Option(
            "--store",
            help="With --keyed: where states are kept while the consumer runs. On disk they need "
            "about 15 MB of memory per partition, whatever their size, but take longer to read.",
        ),
    ] = StateStore.MEMORY
    store_dir: Annotated[
        Path | None,
        typer.Option(
            "--store-dir",
            metavar="DIR",
            callback=output_folder,
            help="With --store disk: a folder on a disk that has room. Nothing is left in it when "
            "the consumer ends. Default: the system's folder for temporary files.",
        ),
    ] = None
    max_state_memory: Annotated[
        int,
        typer.Option(
            "--max-state-memory",
            metavar="BYTES",
            min=1,
            help="With --store memory: what the states of all partitions may take. The consumer "
            "stops with an error when they need more; nothing is lost.",
        ),
    ] = MAX_MEMORY_BYTES
    lake: Annotated[
        Path | None,
        typer.Option(
            "--lake",
            metavar="DIR",
            callback=output_folder,
            help="Write the records as Parquet under this folder. The one above it must exist.",
        ),
    ] = None
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", metavar="BYTES", min=1, help="Size of a full batch.")
    ] = 5_000_000
    wait: Annotated[
        float,
        duration_option(
            "--wait",
            shown="1s",
            help="How long a batch may take to fill, and how long records are handled before "
            "commands are read again. A short time, such as 100ms, shortens the pauses of moves.",
        ),
    ] = 1.0
    from_: Annotated[
        StartingPoint,
        typer.Option("--from", help="Where to start in partitions without a committed offset."),
    ] = StartingPoint.EARLIEST
    attempts: Annotated[
        int,
        typer.Option(
            "--attempts",
            metavar="N",
            min=1,
            help="Number of attempts when a handler raises; then the record goes to <topic>.dead.",
        ),
    ] = 5
    backoff: Annotated[
        float,
        duration_option(
            "--backoff",
            shown="100ms",
            help="Pause before the second attempt; it doubles up to 10s.",
        ),
    ] = 0.1
    receipts: Annotated[
        bool,
        typer.Option(
            help="Whether to write a receipt of every processed record to Trimtab's topic."
        ),
    ] = True
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="Name of the run in the receipts.")
    ] = "live"
    controller_url: Annotated[
        str,
        typer.Option(
            "--controller-url",
            metavar="URL,…",
            help="Address of the controller, in group mode. Of several, or of several addresses of "
            "one name, the leader is used. A token goes into the setting controller.token or "
            "controller.token_file.",
        ),
    ] = "http://127.0.0.1:8765"
    in_hand: Annotated[
        Path | None,
        typer.Option(
            "--in-hand",
            metavar="FILE",
            callback=output_file,
            help="Write the record being handled to this file; a start after a crash names it.",
        ),
    ] = None
    metrics: MetricsOptions
    of: ClusterOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def consume(options: ConsumeOptions) -> None:
    """Read a group's partitions, handle or write each record, then commit, until Ctrl-C."""
    _check(options)
    configure(verbose=options.verbose)
    settings = options.of.settings()
    request = _request(options, settings)
    options.metrics.serve()
    with until_interrupted() as stop:
        totals = consume_records(
            cluster_of(settings), request, stop=stop, listener=TerminalProgress()
        )
    show(
        asdict(totals),
        lambda: (
            f"{totals.records} records, {totals.bytes} bytes in {totals.batches} batches; "
            f"{totals.dead_letters} dead letters"
        ),
        as_json=options.as_json,
    )


def _check(options: ConsumeOptions) -> None:
    """Refuses options that are missing or contradict each other."""
    directed, instance = options.mode is ConsumeMode.DIRECTED, options.instance_id
    if directed and options.index is None:
        raise typer.BadParameter("is required in directed mode", param_hint="--index")
    _check_keyed(options)
    nothing = options.handler is None and options.service_time is None and options.lake is None
    if nothing and not options.keyed:
        raise typer.BadParameter("one of --handler, --lake and --service-time is required")
    if options.handler is not None and options.service_time is not None:
        raise typer.BadParameter("cannot be combined with --handler", param_hint="--service-time")
    if instance is not None and directed:
        raise typer.BadParameter(
            "is for group mode: a directed consumer is not a member of its group and has an "
            "--index instead",
            param_hint="--instance-id",
        )
    if instance is not None and not _INSTANCE_ID.fullmatch(instance):
        raise typer.BadParameter(
            "must be 1 to 249 letters, digits, dots, dashes or underscores",
            param_hint="--instance-id",
        )
    if not directed and options.from_ is StartingPoint.LATEST:
        raise typer.BadParameter("in group mode it must be earliest", param_hint="--from")


def _check_keyed(options: ConsumeOptions) -> None:
    """Refuses what does not go with --keyed, or only with it."""
    if options.keyed and options.lake is not None:
        raise typer.BadParameter("cannot be combined with --keyed", param_hint="--lake")
    if options.keyed and options.from_ is StartingPoint.LATEST:
        raise typer.BadParameter(
            "with --keyed it must be earliest: states would lack what was skipped",
            param_hint="--from",
        )
    if options.store_dir is not None and options.store is not StateStore.DISK:
        raise typer.BadParameter("is for --store disk", param_hint="--store-dir")
    if options.metrics.metrics_port is not None and not options.keyed:
        raise typer.BadParameter("is for --keyed", param_hint="--metrics-port")


def _request(options: ConsumeOptions, settings: Settings) -> ConsumeRequest:
    in_group = options.mode is ConsumeMode.GROUP
    return ConsumeRequest(
        group=options.group,
        topics=tuple(dict.fromkeys(options.topic)),
        mode=options.mode,
        index=options.index,
        instance=options.instance_id or (pod_name() if in_group else None),
        handler=None if options.keyed else _handler(options.handler, options.service_time),
        lake=options.lake,
        batch_bytes=options.batch_bytes,
        wait_s=options.wait,
        beginning=options.from_.value,
        attempts=options.attempts,
        backoff_s=options.backoff,
        receipts=options.receipts,
        run=options.run,
        in_hand=options.in_hand,
        keyed=_keyed_handler(options) if options.keyed else None,
        max_tasks=options.max_tasks,
        commit_s=options.commit_every,
        max_parked=options.max_parked,
        store=options.store,
        store_dir=options.store_dir,
        max_state_memory=options.max_state_memory,
        controller_url=options.controller_url,
        token=controller_token(settings),
    )


def _handler(named: str | None, service_time: float | None) -> Handler | None:
    from trimtab.apply.handling import FixedService, load_handler

    if named is not None:
        return load_handler(named)
    return None if service_time is None else FixedService(service_time)


def _keyed_handler(options: ConsumeOptions) -> KeyedHandler:
    from trimtab.apply.handling import FixedService
    from trimtab.apply.keys.keyed_handler import counting_handler, load_keyed_handler

    if options.handler is not None:
        return load_keyed_handler(options.handler, options.state)
    service = None if options.service_time is None else FixedService(options.service_time)
    return counting_handler(service)
