"""`trimtab load`: sends records to a topic on schedule, open loop, and says how well it went."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from trimtab.cli.connection import cluster_of
from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.numbers import finite, positive
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, output_file
from trimtab.cli.output import progress_bar, result, result_json, say, warn
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError, Findings
from trimtab.model.codec import VERSION, read_loads
from trimtab.model.load import Measurement
from trimtab.settings import load_settings
from trimtab.workload import due
from trimtab.workload.due import Acks, Due
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab.workload.rate_streams import (
    LANDAU_ITERATION_S,
    RateSchedule,
    ezzeddine_workload_1,
    landau_stream,
)

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.workload.kafka.load import LoadProgress, LoadSummary

P = ParamSpec("P")

app = typer.Typer(name="load", no_args_is_help=True)

Rate = Annotated[
    float,
    typer.Option(
        "--rate", metavar="R", callback=positive, help="Records per second, at Poisson arrivals."
    ),
]
Duration = Annotated[
    float,
    typer.Option(
        "--duration",
        metavar="DURATION",
        parser=seconds,
        show_default="30s",
        help="How long: 30s, 2m.",
    ),
]
AtMost = Annotated[
    float | None,
    typer.Option(
        "--duration",
        metavar="DURATION",
        parser=seconds,
        help="Stop after, say, 2m. Default: the whole of it.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Where records go, and how: the options that all kinds of load share."""

    topic: Annotated[str, typer.Option("--topic", metavar="T", help="Where the records go.")]
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
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Same seed, same records.")
    ] = 0
    acks: Annotated[
        Acks,
        typer.Option(
            "--acks",
            help="Who acknowledges: all in-sync replicas (idempotent), the leader, or nobody.",
        ),
    ] = Acks.ALL
    linger: Annotated[
        float,
        typer.Option(
            "--linger",
            metavar="DURATION",
            parser=seconds_or_zero,
            show_default="5ms",
            help="How long the client gathers a batch.",
        ),
    ] = 0.005
    delivery_timeout: Annotated[
        float,
        typer.Option(
            "--delivery-timeout",
            metavar="DURATION",
            parser=seconds,
            show_default="2m",
            help="A record not acknowledged for so long has failed.",
        ),
    ] = 120.0
    late_after: Annotated[
        float,
        typer.Option(
            "--late-after",
            metavar="DURATION",
            parser=seconds,
            show_default="100ms",
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
    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent, for how long, and how many partitions it needs."""

    blocks: Iterable[Due]
    duration_s: float
    partitions: int = 1


def _sends(of: Callable[Concatenate[Sending, P], Load]) -> Callable[..., None]:
    """Makes a command of a function that says what to send, with the options of `Sending` added."""

    def command(**given: Any) -> None:
        sending = Sending(**{f.name: given.pop(f.name) for f in fields(Sending)})
        try:
            load = of(sending, **given)  # type: ignore[call-arg]
        except ValueError as error:  # numbers that no stream can be made of
            raise ConfigError(f"{error}.") from error
        _run(load, sending)

    _, *own = inspect.signature(of, eval_str=True).parameters.values()
    hints = get_type_hints(Sending, include_extras=True)
    shared = [
        inspect.Parameter(name, parameter.kind, default=parameter.default, annotation=hints[name])
        for name, parameter in inspect.signature(Sending).parameters.items()
    ]
    command.__doc__, command.__name__ = of.__doc__, of.__name__
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return command


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
@_sends
def keys(
    sending: Sending,
    *,
    rate: Rate = 1000.0,
    distinct: Annotated[
        int, typer.Option("--keys", metavar="K", min=1, help="How many keys: 0 … K − 1, as text.")
    ] = 28_000_000,
    s: Annotated[
        float,
        typer.Option(
            "--s", metavar="S", callback=finite, help="Skew: P(k) is proportional to (v + k)^−s."
        ),
    ] = 1.1,
    v: Annotated[
        float, typer.Option("--v", metavar="V", callback=finite, help="Flattens the top: see --s.")
    ] = 2.72,
    shift: Annotated[
        int,
        typer.Option("--shift", metavar="N", min=0, help="Add N to all keys every --shift-every."),
    ] = 0,
    shift_every: Annotated[
        float,
        typer.Option(
            "--shift-every",
            metavar="DURATION",
            parser=seconds,
            show_default="60s",
            help="Time between two shifts.",
        ),
    ] = 60.0,
    tick: Annotated[
        float | None,
        typer.Option(
            "--tick",
            metavar="DURATION",
            parser=seconds,
            help="Send what is due once every tick. Default: each record at its own time.",
        ),
    ] = None,
    duration: Duration = 30.0,
) -> Load:
    """Keyed records, skewed as in Zipf–Mandelbrot, steady or drifting."""
    stream = KeyStream(
        rate_s=rate,
        seed=sending.seed,
        distribution=ZipfMandelbrot(s=s, v=v, keys=distinct),
        shift=shift,
        shift_every_s=shift_every,
        tick_s=tick,
    )
    blocks = due.keyed(stream, duration_s=duration, value_bytes=sending.value_bytes)
    return Load(blocks=blocks, duration_s=duration)


@app.command()
@_sends
def rates(
    sending: Sending,
    *,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="ezzeddine-1|landau|FILE",
            help="Ezzeddine's workload 1, a bounded random walk per partition as in Landau, or a "
            "loads file, whose bytes/s are divided by --value-bytes.",
        ),
    ],
    scale: Annotated[
        float,
        typer.Option("--scale", metavar="F", callback=positive, help="Multiply all rates by F."),
    ] = 1.0,
    stretch: Annotated[
        float,
        typer.Option("--stretch", metavar="F", callback=positive, help="Multiply all times by F."),
    ] = 1.0,
    step: Annotated[
        float,
        typer.Option(
            "--step",
            metavar="DURATION",
            parser=seconds,
            show_default=f"{LANDAU_ITERATION_S:g}s",
            help="How long a step of landau or FILE lasts.",
        ),
    ] = LANDAU_ITERATION_S,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Partitions of landau.")
    ] = 8,
    capacity: Annotated[
        float,
        typer.Option(
            "--capacity",
            metavar="C",
            callback=positive,
            help="Of landau: the highest rate of a partition, in records per second.",
        ),
    ] = 100.0,
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            metavar="D",
            min=0,
            callback=finite,
            help="Of landau: a step is within ± D % of --capacity.",
        ),
    ] = 10.0,
    iterations: Annotated[
        int,
        typer.Option("--iterations", metavar="N", min=0, help="Steps of landau after its first."),
    ] = 20,
    poisson: Annotated[
        bool, typer.Option("--poisson", help="Poisson arrivals. Default: evenly spaced.")
    ] = False,
    duration: AtMost = None,
) -> Load:
    """Records without keys, at a changing rate for each partition."""
    match schedule:
        case "ezzeddine-1":
            asked = ezzeddine_workload_1()
        case "landau":
            walk = landau_stream(
                seed=sending.seed,
                partitions=partitions,
                iterations=iterations,
                delta=delta,
                capacity=capacity,
            )
            asked = RateSchedule.from_steps(step, walk)
        case _:
            asked = _schedule_of_file(Path(schedule), step, sending)
    asked = asked.scaled(scale).stretched(stretch)
    blocks = due.partitioned(
        asked, seed=sending.seed, value_bytes=sending.value_bytes, poisson=poisson
    )
    length_s = min(asked.duration_s, duration or asked.duration_s)
    return Load(
        blocks=due.until(blocks, length_s),
        duration_s=length_s,
        partitions=len(asked.partitions),
    )


@app.command()
@_sends
def keyless(sending: Sending, *, rate: Rate = 1000.0, duration: Duration = 30.0) -> Load:
    """Records without keys; the client chooses the partition. They have no tt-seq."""
    steady = RateSchedule.constant([rate], duration_s=duration)
    blocks = due.keyless(steady, seed=sending.seed, value_bytes=sending.value_bytes)
    return Load(blocks=blocks, duration_s=duration)


@app.command()
@_sends
def trace(
    sending: Sending,
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Parquet: t_s or ts, and key, partition, value_bytes if known."
        ),
    ],
    speed: Annotated[
        float,
        typer.Option(
            "--speed", metavar="F", callback=positive, help="F times as fast as recorded."
        ),
    ] = 1.0,
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="Let the client choose partitions, whatever the trace says."),
    ] = False,
    duration: AtMost = None,
) -> Load:
    """Records as they were sent before; --record writes such a file."""
    from trimtab.workload.traces import read_trace

    found = read_trace(file)
    blocks = found.blocks(value_bytes=sending.value_bytes, speed=speed, by_key=by_key)
    whole_s = found.duration_s / speed
    return Load(
        blocks=blocks if duration is None else due.until(blocks, duration),
        duration_s=whole_s if duration is None else min(duration, whole_s),
        partitions=1 if by_key else max(1, found.partitions),
    )


# ---------------------------------------------------------------- what all kinds share


def _schedule_of_file(path: Path, step_s: float, sending: Sending) -> RateSchedule:
    found, warnings = read_loads(path)
    warn(warnings)
    if isinstance(found, Measurement):
        raise ConfigError(
            f"{path} is a measurement, it has no steps.",
            hint="--schedule takes ezzeddine-1, landau, or a loads file.",
        )
    return due.schedule_of(
        found,
        origin=str(path),
        topic=sending.topic,
        step_s=step_s,
        value_bytes=sending.value_bytes,
    )


def _run(load: Load, sending: Sending) -> None:
    from trimtab.workload.kafka.load import Delivery, ensure_topic, send
    from trimtab.workload.traces import recording

    to = cluster_of(
        load_settings(
            bootstrap_server=sending.bootstrap_server, command_config=sending.command_config
        )
    )
    partitions = ensure_topic(
        sending.topic,
        cluster=to,
        create=sending.create,
        replication_factor=sending.replication_factor,
        least_partitions=load.partitions,
    )
    say(
        f"Sending to {sending.topic} ({partitions} partitions) for {load.duration_s:g} s; "
        "Ctrl-C ends it."
    )
    with ExitStack() as opened:
        recorder = opened.enter_context(recording(sending.record)) if sending.record else None
        summary = send(
            load.blocks,
            topic=sending.topic,
            cluster=to,
            delivery=Delivery(
                acks=sending.acks,
                linger_ms=sending.linger * 1000,
                timeout_s=sending.delivery_timeout,
            ),
            seed=sending.seed,
            late_after_s=sending.late_after,
            duration_s=load.duration_s,
            record=None if recorder is None else recorder.write,
            stop=opened.enter_context(until_interrupted()),
            on_progress=opened.enter_context(_shown(load.duration_s, sending.late_after)),
        )
    _report(summary, sending)


def _report(summary: LoadSummary, sending: Sending) -> None:
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


@contextmanager
def _shown(duration_s: float, late_after_s: float) -> Iterator[Callable[[LoadProgress], None]]:
    """Shows how many seconds of the schedule are over, and what became of the records so far."""
    total = max(1, round(duration_s))
    with progress_bar() as bar:
        task = bar.add_task("sending", total=total)

        def show(now: LoadProgress) -> None:
            failed = f", {now.failed} failed" if now.failed else ""
            behind = f", {now.behind_s:.1f} s behind" if now.behind_s > late_after_s else ""
            bar.update(
                task,
                completed=min(int(now.time_s), total),
                description=f"{now.sent} sent, {now.acknowledged} acknowledged{failed}{behind}",
            )

        yield show
