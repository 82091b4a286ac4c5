"""`trimtab load`: sends records to a topic on an open-loop schedule and reports the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.numbers import finite, positive
from trimtab.cli.options import (
    AsJson,
    RecordsSeed,
    duration_option,
    output_file,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, warn
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError, Findings
from trimtab.model.codec import VERSION
from trimtab.services.load import (
    Load,
    LoadTarget,
    keyed_load,
    keyless_load,
    recorded_load,
    schedule_of_file,
    scheduled_load,
    send_load,
)
from trimtab.workload.due import Acks
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab.workload.rate_streams import (
    LANDAU_ITERATION_S,
    RateSchedule,
    ezzeddine_workload_1,
    landau_stream,
)

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.workload.load_summary import LoadSummary

app = typer.Typer(name="load", no_args_is_help=True)

RecordRate = Annotated[
    float,
    typer.Option(
        "--rate", metavar="R", callback=positive, help="Records per second, with Poisson arrivals."
    ),
]
Duration = Annotated[
    float,
    duration_option(
        "--duration",
        shown="30s",
        help="How long to send: 30s, 2m.",
    ),
]
AtMost = Annotated[
    float | None,
    duration_option(
        "--duration",
        help="Stop after, for example, 2m. Default: at the end of the schedule or trace.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The options that all kinds of load share: the topic and the producer."""

    topic: Annotated[str, topic_option("The topic to write to.")]
    create: Annotated[
        int | None,
        typer.Option(
            "--create",
            metavar="N",
            min=1,
            help="Create the topic with N partitions if it does not exist.",
        ),
    ] = None
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            min=1,
            help="Replicas of a topic created by --create. Default: 3, at most one per broker.",
        ),
    ] = None
    value_bytes: Annotated[
        int, typer.Option("--value-bytes", metavar="N", min=1, help="Size of a value, in bytes.")
    ] = 100
    seed: RecordsSeed = 0
    acks: Annotated[
        Acks,
        typer.Option(
            "--acks",
            help="Acknowledgement by all in-sync replicas (idempotent), the leader, or none.",
        ),
    ] = Acks.ALL
    linger: Annotated[
        float,
        duration_option(
            "--linger",
            zero=True,
            shown="5ms",
            help="How long the client waits to fill a batch.",
        ),
    ] = 0.005
    delivery_timeout: Annotated[
        float,
        duration_option(
            "--delivery-timeout",
            shown="2m",
            help="A record that is not acknowledged within this time has failed.",
        ),
    ] = 120.0
    late_after: Annotated[
        float,
        duration_option(
            "--late-after",
            shown="100ms",
            help="A record sent later than this after its due time counts as late.",
        ),
    ] = 0.1
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            callback=output_file,
            metavar="FILE",
            help="Write the acknowledged records as a Parquet trace: t_s, key, partition, offset, "
            "value_bytes.",
        ),
    ] = None
    to: ClusterOptions
    as_json: AsJson = False

    def target(self) -> LoadTarget:
        """Converts the options to a value of the service."""
        return LoadTarget(
            topic=self.topic,
            create=self.create,
            replication_factor=self.replication_factor,
            seed=self.seed,
            acks=self.acks,
            linger_s=self.linger,
            delivery_timeout_s=self.delivery_timeout,
            late_after_s=self.late_after,
            record=self.record,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysOptions:
    """The keys, their skew and drift, and the rate."""

    rate: RecordRate = 1000.0
    distinct: Annotated[
        int, typer.Option("--keys", metavar="K", min=1, help="Number of keys: 0 … K − 1, as text.")
    ] = 28_000_000
    s: Annotated[
        float,
        typer.Option(
            "--s", metavar="S", callback=finite, help="Skew: P(k) is proportional to (v + k)^−s."
        ),
    ] = 1.1
    v: Annotated[
        float,
        typer.Option(
            "--v",
            metavar="V",
            callback=finite,
            help="Flattens the distribution of the most frequent keys: see --s.",
        ),
    ] = 2.72
    shift: Annotated[
        int,
        typer.Option("--shift", metavar="N", min=0, help="Add N to all keys every --shift-every."),
    ] = 0
    shift_every: Annotated[
        float,
        duration_option(
            "--shift-every",
            shown="60s",
            help="Time between two shifts.",
        ),
    ] = 60.0
    tick: Annotated[
        float | None,
        duration_option(
            "--tick",
            help="Send due records once per tick. Default: each record at its own time.",
        ),
    ] = None
    duration: Duration = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesOptions:
    """The schedule of rates, and how it is scaled."""

    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="ezzeddine-1|landau|FILE",
            help="Ezzeddine's workload 1, a bounded random walk per partition (Landau), or a "
            "loads file, whose bytes/s are divided by --value-bytes.",
        ),
    ]
    scale: Annotated[
        float,
        typer.Option("--scale", metavar="F", callback=positive, help="Multiply all rates by F."),
    ] = 1.0
    stretch: Annotated[
        float,
        typer.Option("--stretch", metavar="F", callback=positive, help="Multiply all times by F."),
    ] = 1.0
    step: Annotated[
        float,
        duration_option(
            "--step",
            shown=f"{LANDAU_ITERATION_S:g}s",
            help="Duration of a step of landau or FILE.",
        ),
    ] = LANDAU_ITERATION_S
    partitions: Annotated[
        int,
        typer.Option("--partitions", metavar="N", min=1, help="For landau: number of partitions."),
    ] = 8
    capacity: Annotated[
        float,
        typer.Option(
            "--capacity",
            metavar="C",
            callback=positive,
            help="For landau: the highest rate of a partition, in records per second.",
        ),
    ] = 100.0
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            metavar="D",
            min=0,
            callback=finite,
            help="For landau: a step changes a rate by at most D % of --capacity.",
        ),
    ] = 10.0
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", metavar="N", min=0, help="For landau: number of steps after the first."
        ),
    ] = 20
    poisson: Annotated[
        bool, typer.Option("--poisson", help="Poisson arrivals. Default: evenly spaced.")
    ] = False
    duration: AtMost = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessOptions:
    """The rate and the duration."""

    rate: RecordRate = 1000.0
    duration: Duration = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """The trace, and how it is replayed."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Parquet: t_s or ts, and key, partition, value_bytes if known."
        ),
    ]
    speed: Annotated[
        float,
        typer.Option(
            "--speed", metavar="F", callback=positive, help="Replay F times as fast as recorded."
        ),
    ] = 1.0
    by_key: Annotated[
        bool,
        typer.Option(
            "--by-key", help="Let the client choose partitions; ignore those in the trace."
        ),
    ] = False
    duration: AtMost = None


@app.callback()
def _load() -> None:
    """Send records to a topic on an open-loop schedule, and report the result.

    The header tt-ts of each record is its due time, in µs since 1970. The header tt-seq is its
    sequence number (1, 2, 3 …, restarting in every run) within its key, or within its partition
    if the load chooses the partition. Records with neither, as sent by keyless, have no tt-seq.

    Records that could not be sent in time are sent late and counted as late; none is dropped. Exit
    code 1 if a record was not acknowledged.
    """


@app.command()
@with_options
def keys(options: KeysOptions, sending: SendOptions) -> None:
    """Keyed records, skewed as in Zipf–Mandelbrot, steady or drifting."""
    with _as_config_errors():
        stream = KeyStream(
            rate_s=options.rate,
            seed=sending.seed,
            distribution=ZipfMandelbrot(s=options.s, v=options.v, keys=options.distinct),
            shift=options.shift,
            shift_every_s=options.shift_every,
            tick_s=options.tick,
        )
        load = keyed_load(stream, duration_s=options.duration, value_bytes=sending.value_bytes)
    _send(load, sending)


@app.command()
@with_options
def rates(options: RatesOptions, sending: SendOptions) -> None:
    """Records without keys, at a changing rate for each partition."""
    with _as_config_errors():
        load = scheduled_load(
            _schedule(options, sending).scaled(options.scale).stretched(options.stretch),
            seed=sending.seed,
            value_bytes=sending.value_bytes,
            poisson=options.poisson,
            at_most_s=options.duration,
        )
    _send(load, sending)


@app.command()
@with_options
def keyless(options: KeylessOptions, sending: SendOptions) -> None:
    """Records without keys; the client chooses the partition. They have no tt-seq."""
    with _as_config_errors():
        load = keyless_load(
            rate_s=options.rate,
            duration_s=options.duration,
            seed=sending.seed,
            value_bytes=sending.value_bytes,
        )
    _send(load, sending)


@app.command()
@with_options
def trace(options: TraceOptions, sending: SendOptions) -> None:
    """Replay a recorded trace; --record writes such a file."""
    with _as_config_errors():
        load = recorded_load(
            options.file,
            value_bytes=sending.value_bytes,
            speed=options.speed,
            by_key=options.by_key,
            at_most_s=options.duration,
        )
    _send(load, sending)


# ---------------------------------------------------------------- shared by all kinds of load


def _schedule(options: RatesOptions, sending: SendOptions) -> RateSchedule:
    match options.schedule:
        case "ezzeddine-1":
            return ezzeddine_workload_1()
        case "landau":
            walk = landau_stream(
                seed=sending.seed,
                partitions=options.partitions,
                iterations=options.iterations,
                delta=options.delta,
                capacity=options.capacity,
            )
            return RateSchedule.from_steps(options.step, walk)
        case _:
            return schedule_of_file(
                Path(options.schedule),
                topic=sending.topic,
                step_s=options.step,
                value_bytes=sending.value_bytes,
                listener=TerminalProgress(),
            )


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """Turns a ValueError from invalid numbers into a ConfigError."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def _send(load: Load, sending: SendOptions) -> None:
    cluster = cluster_of(sending.to.settings())
    with until_interrupted() as stop, TerminalProgress() as listener:
        summary = send_load(cluster, load, sending.target(), stop=stop, listener=listener)
    _report(summary, sending)


def _report(summary: LoadSummary, sending: SendOptions) -> None:
    if summary.shortfall is not None:
        warn([summary.shortfall])
    if sending.as_json:
        result_json({"v": VERSION, "topic": sending.topic, **asdict(summary)})
    else:
        result(_table(summary))
    if summary.interrupted:
        raise typer.Exit(130)
    if summary.failed or summary.fatal is not None:
        why = ", ".join(f"{name} {count}" for name, count in summary.failures.items())
        raise Findings(
            f"{summary.failed} of {summary.sent} records were not acknowledged ({why})."
            + (f" The producer gave up: {summary.fatal}." if summary.fatal else ""),
            hint="Check that the brokers are up and that enough replicas are in sync.",
        )


def _table(summary: LoadSummary) -> Table:
    from rich.table import Table

    def number(value: float | None, unit: str) -> str:
        return "unknown" if value is None else f"{value:,.10g} {unit}"

    late_by = (
        f"at most {summary.max_late_ms:.1f} ms behind; late is more than "
        f"{summary.late_after_ms:g} ms"
    )
    p50, p99 = (number(p, "ms") for p in (summary.latency_p50_ms, summary.latency_p99_ms))
    table = Table.grid(padding=(0, 2))
    for row in (
        ("asked", number(summary.asked, "records"), f"{summary.asked_rate:,.1f} per second"),
        ("sent", number(summary.sent, "records"), f"{summary.achieved_rate:,.1f} per second"),
        ("acknowledged", number(summary.acknowledged, "records")),
        ("failed", number(summary.failed, "records")),
        ("late", number(summary.late, "records"), late_by),
        ("latency", f"p50 {p50}", f"p99 {p99}; from due to acknowledged"),
    ):
        table.add_row(*row)
    return table
