"""`trimtab load`: sends records to a topic on schedule, open loop, and says how well it went."""

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

    from trimtab.workload.kafka.load import LoadSummary

app = typer.Typer(name="load", no_args_is_help=True)

RecordRate = Annotated[
    float,
    typer.Option(
        "--rate", metavar="R", callback=positive, help="Records per second, at Poisson arrivals."
    ),
]
Duration = Annotated[
    float,
    duration_option(
        "--duration",
        shown="30s",
        help="How long: 30s, 2m.",
    ),
]
AtMost = Annotated[
    float | None,
    duration_option(
        "--duration",
        help="Stop after, say, 2m. Default: the whole of it.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Where records go, and how: the options that all kinds of load share."""

    topic: Annotated[str, topic_option("Where the records go.")]
    create: Annotated[
        int | None,
        typer.Option(
            "--create",
            metavar="N",
            min=1,
            help="Make the topic with N partitions if there is none.",
        ),
    ] = None
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            min=1,
            help="Replicas of a topic made by --create. Default: 3, or as many as brokers.",
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
            help="Who acknowledges: all in-sync replicas (idempotent), the leader, or nobody.",
        ),
    ] = Acks.ALL
    linger: Annotated[
        float,
        duration_option(
            "--linger",
            zero=True,
            shown="5ms",
            help="How long the client gathers a batch.",
        ),
    ] = 0.005
    delivery_timeout: Annotated[
        float,
        duration_option(
            "--delivery-timeout",
            shown="2m",
            help="A record not acknowledged for so long has failed.",
        ),
    ] = 120.0
    late_after: Annotated[
        float,
        duration_option(
            "--late-after",
            shown="100ms",
            help="A record sent so long after it was due is counted late.",
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
        """The same in the words of the service."""
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
    """Keys, their skew and drift, and how fast they come."""

    rate: RecordRate = 1000.0
    distinct: Annotated[
        int, typer.Option("--keys", metavar="K", min=1, help="How many keys: 0 … K − 1, as text.")
    ] = 28_000_000
    s: Annotated[
        float,
        typer.Option(
            "--s", metavar="S", callback=finite, help="Skew: P(k) is proportional to (v + k)^−s."
        ),
    ] = 1.1
    v: Annotated[
        float, typer.Option("--v", metavar="V", callback=finite, help="Flattens the top: see --s.")
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
            help="Send what is due once every tick. Default: each record at its own time.",
        ),
    ] = None
    duration: Duration = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesOptions:
    """The schedule of rates, and how it is stretched."""

    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="ezzeddine-1|landau|FILE",
            help="Ezzeddine's workload 1, a bounded random walk per partition as in Landau, or a "
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
            help="How long a step of landau or FILE lasts.",
        ),
    ] = LANDAU_ITERATION_S
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Partitions of landau.")
    ] = 8
    capacity: Annotated[
        float,
        typer.Option(
            "--capacity",
            metavar="C",
            callback=positive,
            help="Of landau: the highest rate of a partition, in records per second.",
        ),
    ] = 100.0
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            metavar="D",
            min=0,
            callback=finite,
            help="Of landau: a step is within ± D % of --capacity.",
        ),
    ] = 10.0
    iterations: Annotated[
        int,
        typer.Option("--iterations", metavar="N", min=0, help="Steps of landau after its first."),
    ] = 20
    poisson: Annotated[
        bool, typer.Option("--poisson", help="Poisson arrivals. Default: evenly spaced.")
    ] = False
    duration: AtMost = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessOptions:
    """How fast records come, and for how long."""

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
            "--speed", metavar="F", callback=positive, help="F times as fast as recorded."
        ),
    ] = 1.0
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="Let the client choose partitions, whatever the trace says."),
    ] = False
    duration: AtMost = None


@app.callback()
def _load() -> None:
    """Send records to a topic on schedule, whatever the brokers do, and report how it went.

    Each record has the header tt-ts: when it was due, in µs since 1970. Its number among those of
    its key, or of its partition where the load chooses that, is in tt-seq: 1, 2, 3 …, from 1 again
    in every run. A record with neither, as keyless sends them, has no tt-seq.

    Records that could not be sent in time are sent late and counted so; none is left out. Exit
    code 1 when a record was not acknowledged.
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
    """Records as they were sent before; --record writes such a file."""
    with _as_config_errors():
        load = recorded_load(
            options.file,
            value_bytes=sending.value_bytes,
            speed=options.speed,
            by_key=options.by_key,
            at_most_s=options.duration,
        )
    _send(load, sending)


# ---------------------------------------------------------------- what all kinds share


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
    """Numbers that no load can be made of are a mistake of the command line."""
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
            hint="Look at the brokers, and whether enough replicas are in sync.",
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
