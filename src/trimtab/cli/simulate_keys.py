"""`trimtab simulate keys`: compares policies for hot keys on simulated queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.numbers import positive
from trimtab.cli.options import (
    AsJson,
    Output,
    RecordsSeed,
    ReportFile,
    duration_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, show, write_report
from trimtab.errors import ConfigError
from trimtab.measure.counters import parse_threshold
from trimtab.services.simulate_keys import KeyComparison, compare_key_policies

if TYPE_CHECKING:
    from trimtab.simulate.keys.result import KeySimulation


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySimulationOptions:
    """The records, the topic, and the policies to compare."""

    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="NAME,…",
            help="Policies that keep a key whole: hash, smalops, smalops-paper, trim, ch-bl-1.25, "
            "ch-bl-1.05, gedik, dkg; policies that split it: round-robin, pkg, d-choices, "
            "w-choices; or all.",
        ),
    ] = "hash,smalops,trim"
    rate: Annotated[
        float,
        typer.Option("--rate", metavar="N", callback=positive, help="Records per second."),
    ] = 100_000.0
    duration: Annotated[
        float, duration_option("--duration", shown="1m", help="Simulated time.")
    ] = 60.0
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=2, help="Number of partitions.")
    ] = 8
    service_time: Annotated[
        float,
        duration_option("--service-time", shown="50us", help="Processing time of one record."),
    ] = 50e-6
    window: Annotated[
        float,
        duration_option(
            "--window", shown="10s", help="Window of counting, and time between decisions."
        ),
    ] = 10.0
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            metavar="FORM",
            help="Hot keys have count:N records per window, share:F of them, or are the fewest "
            "with coverage:F of them. A number alone is a count.",
        ),
    ] = "count:100"
    smooth: Annotated[
        float | None,
        typer.Option(
            "--smooth",
            metavar="F",
            callback=positive,
            help="Weight of the last window in the counts that smalops and trim get, the rest for "
            "those before. Default: 1.",
        ),
    ] = None
    handover: Annotated[
        float,
        duration_option(
            "--handover",
            zero=True,
            shown="1ms",
            help="Time to hand over the state of a migrating key.",
        ),
    ] = 0.001
    sla: Annotated[
        float,
        duration_option(
            "--sla", zero=True, shown="5ms", help="Longest acceptable queueing delay of a record."
        ),
    ] = 0.005
    keys: Annotated[int, typer.Option("--keys", metavar="N", min=1, help="Number of keys.")] = (
        28_000_000
    )
    s: Annotated[
        float,
        typer.Option(
            "--s", metavar="S", callback=positive, help="Exponent of the Zipf distribution of keys."
        ),
    ] = 1.1
    shift: Annotated[
        int,
        typer.Option(
            "--shift", metavar="N", min=0, help="Key k becomes key k + N at each --shift-every."
        ),
    ] = 0
    shift_every: Annotated[
        float,
        duration_option("--shift-every", shown="1m", help="Interval of shifts."),
    ] = 60.0
    shards: Annotated[
        int,
        typer.Option(
            "--shards",
            metavar="N",
            min=1,
            help="Number of gateway shards, whose imbalance is reported too.",
        ),
    ] = 1
    sketch: Annotated[
        bool,
        typer.Option(
            "--sketch/--no-sketch",
            help="Whether a real lossy counter counts too, to report its entries; it takes most "
            "of the time of a run with few policies.",
        ),
    ] = True
    seed: RecordsSeed = 0
    report: ReportFile = None
    output: Output = None
    as_json: AsJson = False


@with_options
def keys(options: KeySimulationOptions) -> None:
    """Compare policies that route the records of hot keys to partitions.

    Partitions are FIFO queues with a constant processing time. All policies get the same records.
    At the end of each window they learn its counts, and decide on the next; keys that move wait
    for their old partition and the hand-over of their state.

    Prints queueing delays, imbalance, migrations and what is tracked; the first window is warm-up.
    """
    from trimtab.report.key_simulation import key_simulation_view

    asked = _comparison(options)
    with TerminalProgress() as listener:
        found = compare_key_policies(asked, listener=listener)
    if options.report is not None:
        from trimtab.report.key_simulation_page import key_simulation_page

        write_report(options.report, key_simulation_page(found, _facts(asked)))
    show(
        _document(asked, options, found),
        lambda: key_simulation_view(found, sla_s=asked.sla_s, utilisation=asked.utilisation),
        as_json=options.as_json,
        output=options.output,
        indent=None,
    )


def _comparison(options: KeySimulationOptions) -> KeyComparison:
    names = [name.strip() for name in options.policies.split(",") if name.strip()]
    if not names:
        raise ConfigError("--policies needs at least one policy, such as hash,trim.")
    return KeyComparison(
        policies=names,
        rate_s=options.rate,
        duration_s=options.duration,
        partitions=options.partitions,
        service_s=options.service_time,
        window_s=options.window,
        threshold=parse_threshold(options.threshold),
        handover_s=options.handover,
        sla_s=options.sla,
        shards=options.shards,
        sketch=options.sketch,
        smooth=options.smooth,
        keys=options.keys,
        s=options.s,
        shift=options.shift,
        shift_every_s=options.shift_every,
        seed=options.seed,
    )


def _document(
    asked: KeyComparison, options: KeySimulationOptions, found: KeySimulation
) -> dict[str, Any]:
    return {
        "rate_s": asked.rate_s,
        "partitions": asked.partitions,
        "service_s": asked.service_s,
        "utilisation": asked.utilisation,
        "threshold": options.threshold,
        "smooth": asked.smooth,
        "handover_s": asked.handover_s,
        "sla_s": asked.sla_s,
        "keys": asked.keys,
        "s": asked.s,
        "shift": asked.shift,
        "shift_every_s": asked.shift_every_s,
        "shards": asked.shards,
        "seed": asked.seed,
        **found.to_json(),
    }


def _facts(asked: KeyComparison) -> dict[str, str]:
    """The settings of a run, for its report."""
    from trimtab.report.tables import duration

    shifts = f"by {asked.shift} every {duration(asked.shift_every_s)}" if asked.shift else "none"
    return {
        "rate": f"{asked.rate_s:,.0f} records/s",
        "simulated time": duration(asked.duration_s),
        "partitions": str(asked.partitions),
        "processing time of a record": duration(asked.service_s),
        "utilisation of all partitions": f"{asked.utilisation:.1%}",
        "window": duration(asked.window_s),
        "threshold": str(asked.threshold),
        "weight of the last window": f"{asked.smooth or 1:g}",
        "hand-over": duration(asked.handover_s),
        "SLA": duration(asked.sla_s),
        "keys": f"{asked.keys:,}, exponent {asked.s:g}",
        "shift of keys": shifts,
        "gateway shards": str(asked.shards),
        "seed": str(asked.seed),
    }
