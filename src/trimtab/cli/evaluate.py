"""`trimtab evaluate`: audits the order, and computes what a run achieved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import evaluate_plan, evaluate_sets
from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.options import (
    AsJson,
    GroupName,
    Output,
    Verbose,
    WarehouseFolder,
    duration_option,
    group_option,
    input_path,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, say, show
from trimtab.cli.spark import SessionOptions
from trimtab.cli.time_options import (
    MICROS,
    FromTime,
    ToTime,
    offsets_option,
    read_offsets,
    since_option,
)
from trimtab.errors import ConfigError, Findings
from trimtab.evaluate.order import OrderRules
from trimtab.evaluate.verdict import audited_to, outcome_to
from trimtab.observe.clock import wall_clock_us
from trimtab.observe.logging import configure
from trimtab.services.evaluate import (
    GroupReceipts,
    NumberedRecords,
    OrderAudit,
    OrderRequest,
    OutcomeRequest,
    ReplicaSource,
    evaluate_order,
    evaluate_outcome,
)
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.spark.session import Session

app = typer.Typer(name="evaluate", no_args_is_help=True)
app.command("plan", short_help="Compare a plan's forecast with the outcome.")(evaluate_plan.plan)
app.command("sets", short_help="Check keys that move: order, chains, hand-overs.")(
    evaluate_sets.sets
)

_HOUR_S = 3600.0
_ALWAYS = (0, 253_402_300_800_000_000)
"""From 1970 to the end of the year 9999."""

RunName = Annotated[
    str | None,
    typer.Option("--run", metavar="R", help="Receipts of this run only. Default: all."),
]


@app.callback()
def _evaluate() -> None:
    """Check the order and losses of a run, its latency and cost, or the forecast of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptOptions:
    """Which time is looked at, where receipts are, how Spark runs, and where results go."""

    since: Annotated[float | None, since_option("1h")] = None
    from_: FromTime = None
    to: ToTime = None
    receipts: Annotated[
        Path | None,
        typer.Option(
            "--receipts",
            metavar="PATH",
            callback=input_path,
            help="Receipts in Parquet or JSON, not Kafka.",
        ),
    ] = None
    warehouse: WarehouseFolder = None
    spark: SessionOptions
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False

    def span(self) -> tuple[int, int]:
        """The span asked for; without one the last hour, or all that is in the files."""
        if self.since is not None and self.from_ is not None:
            raise ConfigError("Give --since or --from, not both.")
        if self.receipts is not None and self.since is None:
            start = _ALWAYS[0] if self.from_ is None else self.from_
            end = _ALWAYS[1] if self.to is None else self.to
        else:
            end = wall_clock_us() if self.to is None else self.to
            ago = end - round((self.since or _HOUR_S) * MICROS)
            start = ago if self.from_ is None else self.from_
        if start >= end:
            raise ConfigError("The span ends before it begins.", hint="Look at --from and --to.")
        return start, end

    def tables(self, settings: Settings) -> str:
        """The folder of the Parquet tables."""
        return self.warehouse or str(settings.warehouse)

    def start_spark(self, settings: Settings) -> Session:
        """Starts Spark, with the connector if Kafka is read."""
        return self.spark.start(settings, kafka=self.receipts is None, verbose=self.verbose)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOptions:
    """What is audited, and what counts as a violation."""

    group: Annotated[str | None, group_option()] = None
    run: RunName = None
    topic: Annotated[
        list[str] | None,
        topic_option(
            "Only this topic; may be repeated. With --seq-header or --seq-field: the topic "
            "whose own records are audited."
        ),
    ] = None
    seq_header: Annotated[
        str | None,
        typer.Option(
            "--seq-header",
            metavar="NAME",
            help="Audit the records of --topic: each key's number is in this header, as digits or "
            "8 bytes.",
        ),
    ] = None
    seq_field: Annotated[
        str | None,
        typer.Option(
            "--seq-field",
            metavar="PATH",
            help="The same, with the number in a field of a JSON value, such as order.seq.",
        ),
    ] = None
    acknowledged: Annotated[
        Path | None,
        typer.Option(
            "--acknowledged",
            metavar="FILE",
            callback=input_path,
            help="All records in this file must have been processed: what `trimtab load … "
            "--record FILE` wrote for the one --topic.",
        ),
    ] = None
    offsets: Annotated[str | None, offsets_option("All these records must have been processed")] = (
        None
    )
    no_repeats: Annotated[
        bool, typer.Option("--no-repeats", help="Also report records processed twice as findings.")
    ] = False
    gaps: Annotated[
        bool,
        typer.Option(
            "--gaps/--no-gaps", help="Whether a number missing in a key's sequence is a loss."
        ),
    ] = True
    from_first: Annotated[
        bool,
        typer.Option(
            "--from-first",
            help="Sequences begin at 1: numbers missing before the first one found are lost.",
        ),
    ] = False
    clock_skew: Annotated[
        float | None,
        duration_option(
            "--clock-skew",
            help="Largest difference between the consumers' clocks. Default: none.",
        ),
    ] = None
    source: ReceiptOptions

    @property
    def of_records(self) -> bool:
        """Whether the records of a topic are audited, not receipts."""
        return self.seq_header is not None or self.seq_field is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeOptions:
    """The run to evaluate, and its target."""

    group: GroupName
    run: RunName = None
    sla: Annotated[
        float,
        duration_option(
            "--sla",
            shown="5s",
            help="A record should be processed within this time of its event.",
        ),
    ] = 5.0
    window: Annotated[
        float, duration_option("--window", shown="1m", help="Window of the table of outcomes.")
    ] = 60.0
    replicas_from: Annotated[
        ReplicaSource,
        typer.Option(
            "--replicas-from",
            help="Source of replica-minutes: the consumers' reports on the control "
            "topic, the decisions, or their receipts. auto: reports where there are any, else "
            "receipts.",
        ),
    ] = ReplicaSource.AUTO
    source: ReceiptOptions


@app.command(short_help="Check for lost records, keys out of order, and two owners.")
@with_options
def order(options: OrderOptions) -> None:
    """Check that no record was lost, no key was out of order, no partition had two owners.

    Reads the receipts of a group, or the records of a topic that carry a sequence number per key.
    Records processed again are counted, but no findings: delivery is at least once. Exit code 1 on
    findings; the table `violations` has all of them.
    """
    source = options.source
    configure(verbose=source.verbose)
    settings = source.of.settings()
    request = _order_request(options, settings)
    with TerminalProgress() as listener:
        found = evaluate_order(
            request, start_spark=lambda: source.start_spark(settings), listener=listener
        )
    show_audit(found, no_repeats=options.no_repeats, output=source.output, as_json=source.as_json)


def _order_request(options: OrderOptions, settings: Settings) -> OrderRequest:
    """The options in the words of the service; those that contradict each other are refused."""
    _check_order(options)
    source, topics = options.source, frozenset(options.topic or ())
    start, end = source.span()
    skew_us = round((options.clock_skew or 0.0) * MICROS)
    rules = OrderRules(gaps=options.gaps, from_first=options.from_first, clock_skew_us=skew_us)
    offsets = None if options.offsets is None else read_offsets(options.offsets)
    audited: GroupReceipts | NumberedRecords
    if options.of_records:
        audited = NumberedRecords(
            source=cluster_of(settings),
            topics=topics,
            header=options.seq_header,
            json_field=options.seq_field,
            from_ts=start,
            to_ts=end,
        )
    else:
        audited = GroupReceipts(
            source=source.receipts or cluster_of(settings),
            group=options.group or "",
            run=options.run,
            topics=topics,
            from_ts=start,
            to_ts=end,
        )
    return OrderRequest(
        audited=audited,
        rules=rules,
        acknowledged=options.acknowledged,
        offsets=offsets,
        warehouse=source.tables(settings),
    )


def _check_order(options: OrderOptions) -> None:
    if options.seq_header is not None and options.seq_field is not None:
        raise ConfigError("Give --seq-header or --seq-field, not both.")
    if options.acknowledged is not None and len(set(options.topic or ())) != 1:
        raise ConfigError("--acknowledged is for one topic: give --topic once.")
    if options.of_records:
        of_group = options.group is not None or options.source.receipts is not None
        if not options.topic or of_group:
            raise ConfigError(
                "--seq-header and --seq-field audit the records of a topic.",
                hint="Give --topic with them, and neither --group nor --receipts.",
            )
    elif options.group is None:
        raise ConfigError(
            "--group, --seq-header or --seq-field is required.",
            hint="Give --group G for its receipts, or --topic T with --seq-header or --seq-field.",
        )


def show_audit(
    found: OrderAudit,
    *,
    no_repeats: bool,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Prints an audit; raises `Findings` when there are any."""
    from trimtab.report.verdict import audit_view

    audited = found.audited
    show(
        audited_to(audited, no_repeats=no_repeats),
        lambda: audit_view(audited, no_repeats=no_repeats),
        as_json=as_json,
        output=output,
    )
    findings = audited.findings(no_repeats=no_repeats)
    if findings:
        raise Findings(
            f"The audit found {findings} violations of order.",
            hint=f"All of them are in {found.table}.",
        )


@app.command(short_help="Latency, share within the SLA, replicas, moves.")
@with_options
def outcome(options: OutcomeOptions) -> None:
    """Show what a run achieved: latency, share within the SLA, replica-minutes, moves.

    Latency is from the event to the end of its first processing. The table `outcomes` keeps a row
    per window.
    """
    from trimtab.report.verdict import outcome_view

    source = options.source
    configure(verbose=source.verbose)
    settings = source.of.settings()
    start, end = source.span()
    request = OutcomeRequest(
        receipts=GroupReceipts(
            source=source.receipts or cluster_of(settings),
            group=options.group,
            run=options.run,
            from_ts=start,
            to_ts=end,
        ),
        sla_s=options.sla,
        window_s=options.window,
        replicas_from=options.replicas_from,
        warehouse=source.tables(settings),
    )
    with TerminalProgress() as listener:
        found = evaluate_outcome(
            request, start_spark=lambda: source.start_spark(settings), listener=listener
        )
    if found.rejects:
        say(f"{found.rejects} receipts were rejected")
    show(
        outcome_to(found),
        lambda: outcome_view(found),
        as_json=source.as_json,
        output=source.output,
    )
