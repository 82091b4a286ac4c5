"""`trimtab consume`: a consumer that is directed by the controller, or a member of a group."""

from __future__ import annotations

import re
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import cluster_of, controller_token
from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.options import (
    AsJson,
    BootstrapServer,
    CommandConfig,
    Verbose,
    output_file,
    output_folder,
)
from trimtab.cli.output import result, result_json, say, warn
from trimtab.cli.signals import until_interrupted
from trimtab.observe.logging import configure
from trimtab.settings import load_settings, pod_name

if TYPE_CHECKING:
    from trimtab.apply.consumers.ports import Handler


_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")


class ConsumeMode(StrEnum):
    """Who says what is read."""

    DIRECTED = "directed"
    GROUP = "group"


class From(StrEnum):
    """Where a partition without a committed offset is read from."""

    EARLIEST = "earliest"
    LATEST = "latest"


def consume(
    group: Annotated[str, typer.Option("--group", metavar="G", help="The consumer group.")],
    topic: Annotated[
        list[str], typer.Option("--topic", metavar="T", help="A topic to read; may be repeated.")
    ],
    mode: Annotated[
        ConsumeMode,
        typer.Option(
            help="directed: the controller gives and takes single partitions. group: subscribe; "
            "the group's leader asks the controller."
        ),
    ] = ConsumeMode.DIRECTED,
    index: Annotated[
        int | None,
        typer.Option(
            "--index",
            metavar="I",
            min=0,
            help="This consumer's place in the group, 0 for the first. Needed in directed mode.",
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id",
            metavar="NAME",
            help="In group mode: be a static member of this name (group.instance.id), which may "
            "be restarted without a rebalance. Default: in a pod its name.",
        ),
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="MODULE:FUNCTION",
            help="A Python function that is called with each record, in order per partition.",
        ),
    ] = None,
    service_time: Annotated[
        float | None,
        typer.Option(
            "--service-time",
            metavar="DURATION",
            parser=seconds_or_zero,
            help="For experiments, instead of --handler: take this long per record.",
        ),
    ] = None,
    lake: Annotated[
        Path | None,
        typer.Option(
            "--lake",
            metavar="DIR",
            callback=output_folder,
            help="Write the records as Parquet under this folder. The one above it must exist.",
        ),
    ] = None,
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", metavar="BYTES", min=1, help="A batch is full then.")
    ] = 5_000_000,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="DURATION",
            parser=seconds,
            show_default="1s",
            help="Wait so long for a batch to fill, and handle so long before commands are "
            "looked at again. Short, such as 100ms: moves block less.",
        ),
    ] = 1.0,
    from_: Annotated[
        From, typer.Option("--from", help="Where to begin in partitions never committed.")
    ] = From.EARLIEST,
    attempts: Annotated[
        int,
        typer.Option(
            "--attempts",
            metavar="N",
            min=1,
            help="Try a handler that raises so often, then write the record to <topic>.dead.",
        ),
    ] = 5,
    backoff: Annotated[
        float,
        typer.Option(
            "--backoff",
            metavar="DURATION",
            parser=seconds,
            show_default="100ms",
            help="Pause before the second attempt; it doubles up to 10s.",
        ),
    ] = 0.1,
    receipts: Annotated[
        bool, typer.Option(help="Note every processed record in the topic of receipts.")
    ] = True,
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="Name of the run in the receipts.")
    ] = "live",
    controller_url: Annotated[
        str,
        typer.Option(
            "--controller-url",
            metavar="URL,…",
            help="Where the controller answers, in group mode. Of several, or of several addresses "
            "of one name, the one that leads is found. A token goes into the setting "
            "controller.token or controller.token_file.",
        ),
    ] = "http://127.0.0.1:8765",
    in_hand: Annotated[
        Path | None,
        typer.Option(
            "--in-hand",
            metavar="FILE",
            callback=output_file,
            help="Note the record in hand in this file. A start after a crash names it.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Read a group's partitions, handle or write each record, then commit, until Ctrl-C."""
    if mode is ConsumeMode.DIRECTED and index is None:
        raise typer.BadParameter("a directed consumer needs one", param_hint="--index")
    if handler is None and service_time is None and lake is None:
        raise typer.BadParameter(
            "say what to do with the records: --handler, --lake or --service-time"
        )
    if handler is not None and service_time is not None:
        raise typer.BadParameter("cannot be combined with --handler", param_hint="--service-time")
    if instance_id is not None and mode is ConsumeMode.DIRECTED:
        raise typer.BadParameter(
            "a directed consumer is no member of its group; it has an --index",
            param_hint="--instance-id",
        )
    if instance_id is not None and not _INSTANCE_ID.fullmatch(instance_id):
        raise typer.BadParameter(
            "must be 1 to 249 letters, digits, dots, dashes or underscores",
            param_hint="--instance-id",
        )
    if mode is ConsumeMode.GROUP and from_ is From.LATEST:
        raise typer.BadParameter("a subscribed group begins at the earliest", param_hint="--from")
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    handle = _handler(handler, service_time)
    token = controller_token(settings)

    from trimtab.apply.consumers.backends.in_hand import InHand
    from trimtab.apply.consumers.backends.in_hand import in_hand as left_in_hand
    from trimtab.apply.consumers.cycle import Limits
    from trimtab.apply.consumers.kafka.consumer import (
        ConsumerConfig,
        DirectedConsumer,
        GroupConsumer,
    )
    from trimtab.apply.consumers.kafka.directed_reader import Beginning
    from trimtab.apply.consumers.kafka.lake import Lake
    from trimtab.kafka.retry import Retry

    if in_hand is not None and (record := left_in_hand(in_hand)) is not None:
        warn([f"the process before this one ended while it handled {record}"])
    config = ConsumerConfig(
        group=group,
        topics=tuple(dict.fromkeys(topic)),
        cluster=cluster_of(settings),
        index=index,
        instance=instance_id or (pod_name() if mode is ConsumeMode.GROUP else None),
        handler=handle,
        sink=None if lake is None else Lake(lake),
        limits=Limits(batch_bytes=batch_bytes, wait_s=wait),
        retry=Retry(attempts=attempts, first_s=backoff, most_s=max(backoff, 10.0)),
        beginning=Beginning(from_.value),
        receipts=receipts,
        run=run,
        in_hand=None if in_hand is None else InHand(in_hand),
    )
    with until_interrupted() as stop:
        consumer = (
            DirectedConsumer(config, stop=stop)
            if mode is ConsumeMode.DIRECTED
            else GroupConsumer(config, controller_url=controller_url, token=token, stop=stop)
        )
        say(f"Consuming for group {group} ({mode}); Ctrl-C ends it after the record in hand.")
        totals = consumer.run()
    if as_json:
        result_json(asdict(totals))
    else:
        result(
            f"{totals.records} records, {totals.bytes} bytes in {totals.batches} batches; "
            f"{totals.dead_letters} dead letters"
        )


def _handler(named: str | None, service_time: float | None) -> Handler | None:
    from trimtab.apply.consumers.handling import FixedService, load_handler

    if named is not None:
        return load_handler(named)
    return None if service_time is None else FixedService(service_time)
