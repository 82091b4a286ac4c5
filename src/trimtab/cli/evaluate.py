"""`trimtab evaluate`: the order audit, and what a run came to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import evaluate_plan
from trimtab.cli.connection import admin_of, cluster_of
from trimtab.cli.durations import seconds
from trimtab.cli.measuring import MICROS, moment, read_offsets
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output, Verbose
from trimtab.cli.output import progress_bar, result, result_json, say, write_file
from trimtab.cli.spark import Conf, Master, PropertiesFile, spark_session
from trimtab.errors import BadFile, ConfigError, Findings
from trimtab.evaluate.order import OrderRules
from trimtab.evaluate.verdict import Audited, audited_to, outcome_to
from trimtab.model.codec import dumps
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.evaluate.spark.jobs import ReceiptQuery, ReceiptTables
    from trimtab.spark.session import Session

app = typer.Typer(name="evaluate", no_args_is_help=True)
app.command("plan", short_help="A plan's forecast beside what came of it.")(evaluate_plan.plan)


class ReplicaSource(StrEnum):
    """What replica-minutes are counted from."""

    AUTO = "auto"
    CONTROL = "control"
    DECISIONS = "decisions"
    RECEIPTS = "receipts"


Group = Annotated[
    str | None, typer.Option("--group", metavar="G", help="The consumer group that is judged.")
]
Run = Annotated[
    str | None,
    typer.Option("--run", metavar="R", help="Receipts of this run only. Default: all."),
]
Since = Annotated[
    float | None,
    typer.Option(
        "--since", metavar="DURATION", parser=seconds, help="The last, say, 10m. Default: 1h."
    ),
]
From = Annotated[
    int | None,
    typer.Option(
        "--from", metavar="TIME", parser=moment, help="Begin here: ISO time, or microseconds."
    ),
]
To = Annotated[
    int | None, typer.Option("--to", metavar="TIME", parser=moment, help="End here. Default: now.")
]
Receipts = Annotated[
    Path | None,
    typer.Option("--receipts", metavar="PATH", help="Receipts in Parquet or JSON, not Kafka."),
]
Kept = Annotated[
    str | None, typer.Option("--warehouse", metavar="PATH", help="Folder of the Parquet tables.")
]

_HOUR_S = 3600.0
_EVER = (0, 253_402_300_800_000_000)


@app.callback()
def _evaluate() -> None:
    """Judge what was done: was order kept and nothing lost, was it in time, what did it cost."""


@app.command(short_help="Was nothing lost, no key out of order, never two owners.")
def order(
    group: Group = None,
    run: Run = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="T",
            help="Only this topic; may be repeated. With --seq-header or --seq-field: the topic "
            "whose own records are audited.",
        ),
    ] = None,
    seq_header: Annotated[
        str | None,
        typer.Option(
            "--seq-header",
            metavar="NAME",
            help="Audit the records of --topic: each key's number is in this header, as digits or "
            "8 bytes.",
        ),
    ] = None,
    seq_field: Annotated[
        str | None,
        typer.Option(
            "--seq-field",
            metavar="PATH",
            help="The same with the number in a field of a JSON value, as order.seq.",
        ),
    ] = None,
    acknowledged: Annotated[
        Path | None,
        typer.Option(
            "--acknowledged",
            metavar="FILE",
            help="All records in this file must have been processed: what `trimtab load … "
            "--record FILE` wrote for the one --topic.",
        ),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets",
            metavar="JSON|FILE",
            help='All these records must have been processed: {"topic":{"0":[first,next]}}, or a '
            "file with that.",
        ),
    ] = None,
    no_repeats: Annotated[
        bool, typer.Option("--no-repeats", help="A record processed twice is a finding too.")
    ] = False,
    gaps: Annotated[
        bool,
        typer.Option("--gaps/--no-gaps", help="A number missing in a key's sequence is a loss."),
    ] = True,
    from_first: Annotated[
        bool,
        typer.Option("--from-first", help="Sequences begin at 1: what is missing before is lost."),
    ] = False,
    clock_skew: Annotated[
        float | None,
        typer.Option(
            "--clock-skew",
            metavar="DURATION",
            parser=seconds,
            help="How far the consumers' clocks may be apart. Default: not at all.",
        ),
    ] = None,
    since: Since = None,
    from_: From = None,
    to: To = None,
    receipts: Receipts = None,
    warehouse: Kept = None,
    master: Master = None,
    conf: Conf = None,
    properties_file: PropertiesFile = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Audit the order: nothing lost, no key out of order, never two owners at once.

    Reads the receipts of a group, or the records of a topic that carry a sequence number per key.
    Records processed again are allowed by at-least-once and counted. Exit code 1 on findings; the
    table `violations` keeps them all.
    """
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    own_topic = seq_header is not None or seq_field is not None
    _check_order(group, topic, seq_header, seq_field, receipts)
    topics = frozenset(topic or ())
    if acknowledged is not None and len(topics) != 1:
        raise ConfigError("--acknowledged is about one topic: give --topic once.")
    span = _span(since, from_, to, files=receipts is not None)
    rules = OrderRules(
        gaps=gaps, from_first=from_first, clock_skew_us=round((clock_skew or 0.0) * MICROS)
    )
    ranges = None if offsets is None else read_offsets(offsets)
    _check_source(settings, receipts, acknowledged, topics=topics if own_topic else frozenset())
    session = spark_session(
        settings,
        master=master,
        conf=conf,
        properties_file=properties_file,
        kafka=receipts is None,
        verbose=verbose,
    )
    from trimtab.evaluate.spark import jobs
    from trimtab.spark.warehouse import Warehouse

    kept = Warehouse(warehouse or str(settings.warehouse))
    expected = jobs.expected_places(
        session, acknowledged=acknowledged, topic=min(topics, default=None), offsets=ranges
    )
    with _shown(session, "auditing (tasks)"):
        if own_topic:
            with admin_of(settings) as admin:
                records = jobs.records_of(
                    session,
                    admin,
                    cluster_of(settings),
                    topics,
                    seq=jobs.seq_in_header(seq_header)
                    if seq_header is not None
                    else jobs.seq_in_json(seq_field or ""),
                    span=span,
                )
                audited = jobs.audit_log(
                    session,
                    records,
                    label=f"topic-{'-'.join(sorted(topics))}",
                    rules=rules,
                    expected=expected,
                    warehouse=kept,
                )
        else:
            asked = jobs.ReceiptQuery(
                group=group or "", run=run, topics=topics, from_ts=span[0], to_ts=span[1]
            )
            audited = jobs.audit_receipts(
                session,
                _given(session, settings, asked, receipts),
                asked,
                rules=rules,
                expected=expected,
                warehouse=kept,
            )
    tell_audit(
        audited, kept.path("violations"), no_repeats=no_repeats, output=output, as_json=as_json
    )


def _check_order(
    group: str | None,
    topic: list[str] | None,
    seq_header: str | None,
    seq_field: str | None,
    receipts: Path | None,
) -> None:
    if seq_header is not None and seq_field is not None:
        raise ConfigError("Give --seq-header or --seq-field, not both.")
    if seq_header is not None or seq_field is not None:
        if not topic or group is not None or receipts is not None:
            raise ConfigError(
                "--seq-header and --seq-field audit the records of a topic.",
                hint="Give --topic with them, and neither --group nor --receipts.",
            )
    elif group is None:
        raise ConfigError(
            "Nothing says whose order is audited.",
            hint="Give --group G for its receipts, or --topic T with --seq-header or --seq-field.",
        )


def _check_source(
    settings: Settings, *files: Path | None, topics: frozenset[str] = frozenset()
) -> None:
    """Says before Spark is started that a file, the cluster or a topic is not there.

    Without the first file, the receipts, records are read from Kafka.
    """
    for path in files:
        if path is not None and not path.exists():
            raise BadFile(f"{path}: there is no such file or folder.")
    if files[0] is None:
        with admin_of(settings) as admin:
            missing = sorted(topics - {p.topic for p in admin.topics(topics)}) if topics else ()
        if missing:
            raise ConfigError(f"There is no topic {', '.join(missing)}.", hint="Correct --topic.")


def tell_audit(
    audited: Audited,
    table: str,
    *,
    no_repeats: bool,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Prints an audit; raises `Findings` when there are any."""
    from trimtab.report.verdict import audit_view

    value = audited_to(audited, no_repeats=no_repeats)
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    if as_json:
        result_json(value)
    else:
        result(audit_view(audited, no_repeats=no_repeats))
    found = audited.findings(no_repeats=no_repeats)
    if found:
        raise Findings(
            f"The audit found {found} violations of order.", hint=f"All of them are in {table}."
        )


@app.command(short_help="Latency, share within the SLA, replicas, moves.")
def outcome(
    group: Annotated[
        str, typer.Option("--group", metavar="G", help="The consumer group that is judged.")
    ],
    run: Run = None,
    sla: Annotated[
        float,
        typer.Option(
            "--sla",
            metavar="DURATION",
            parser=seconds,
            show_default="5s",
            help="A record should be processed within this time of its event.",
        ),
    ] = 5.0,
    window: Annotated[
        float,
        typer.Option(
            "--window",
            metavar="DURATION",
            parser=seconds,
            show_default="1m",
            help="Window of the table of outcomes.",
        ),
    ] = 60.0,
    replicas_from: Annotated[
        ReplicaSource,
        typer.Option(
            "--replicas-from",
            help="What replica-minutes are counted from: the consumers' reports on the control "
            "topic, the decisions, or their receipts. auto: reports where there are any, else "
            "receipts.",
        ),
    ] = ReplicaSource.AUTO,
    since: Since = None,
    from_: From = None,
    to: To = None,
    receipts: Receipts = None,
    warehouse: Kept = None,
    master: Master = None,
    conf: Conf = None,
    properties_file: PropertiesFile = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say what a run came to: latency, share within the SLA, replica-minutes, moves.

    Latency is from the event to the end of its first processing. The table `outcomes` keeps a row
    per window.
    """
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    span = _span(since, from_, to, files=receipts is not None)
    _check_source(settings, receipts)
    session = spark_session(
        settings,
        master=master,
        conf=conf,
        properties_file=properties_file,
        kafka=receipts is None,
        verbose=verbose,
    )
    from trimtab.evaluate.spark import jobs
    from trimtab.report.verdict import outcome_view
    from trimtab.spark.warehouse import Warehouse

    asked = jobs.ReceiptQuery(group=group, run=run, from_ts=span[0], to_ts=span[1])
    how = jobs.Judging(
        sla_s=sla, window_s=window, replicas_from=jobs.ReplicasFrom(replicas_from.value)
    )
    with _shown(session, "judging (tasks)"):
        found = jobs.judge(
            session,
            _given(session, settings, asked, receipts),
            asked,
            how,
            Warehouse(warehouse or str(settings.warehouse)),
        )
    value = outcome_to(found)
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    if found.rejects:
        say(f"{found.rejects} receipts were rejected")
    if as_json:
        result_json(value)
    else:
        result(outcome_view(found))


def _span(
    since: float | None, from_ts: int | None, to_ts: int | None, *, files: bool
) -> tuple[int, int]:
    """The span asked for; without one the last hour, or all that is in the files."""
    from trimtab.measure.spark.live import now_ts

    if since is not None and from_ts is not None:
        raise ConfigError("Give --since or --from, not both.")
    if files and since is None:
        start, end = (
            given if given is not None else ever
            for given, ever in zip((from_ts, to_ts), _EVER, strict=True)
        )
    else:
        end = to_ts if to_ts is not None else now_ts()
        start = from_ts if from_ts is not None else end - round((since or _HOUR_S) * MICROS)
    if start >= end:
        raise ConfigError("The span ends before it begins.", hint="Look at --from and --to.")
    return start, end


def _given(
    session: Session, settings: Settings, asked: ReceiptQuery, receipts: Path | None
) -> ReceiptTables:
    from trimtab.evaluate.spark import jobs
    from trimtab.spark.session import spark_errors

    with spark_errors("reading receipts"):
        if receipts is not None:
            return jobs.from_files(session, receipts, asked)
        with admin_of(settings) as admin:
            return jobs.from_kafka(session, admin, cluster_of(settings), asked)


@contextmanager
def _shown(session: Session, what: str) -> Iterator[None]:
    """Shows the tasks that Spark has done while it works."""
    from trimtab.spark.session import watched

    with progress_bar() as bar:
        task = bar.add_task(what, total=None)
        with watched(session, lambda done, known: bar.update(task, completed=done, total=known)):
            yield
