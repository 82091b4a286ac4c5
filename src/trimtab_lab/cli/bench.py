"""`trimtab bench`: Trimtab compared with direct library calls, both measured in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.options import AsJson, Verbose, output_folder, with_options
from trimtab.cli.output import result, result_json, say, write_file
from trimtab.cli.spark import Conf, Master, spark_session
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings
from trimtab_lab import PACKAGES
from trimtab_lab.benchmarks.benchmark import BenchContext, Benchmark, Result, compared
from trimtab_lab.benchmarks.registry import BENCHMARKS, benchmark

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.spark.session import Session

MEMORY = "4g"
"""Driver memory: enough for the rival, which keeps every key, not to spill to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Which benchmarks to run, at which size, and whether to save the results."""

    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which benchmark; see --list.")
    ] = None
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Run every benchmark, save each result, and refresh docs/benchmarks.md."
        ),
    ] = False
    listed: Annotated[
        bool, typer.Option("--list", help="List all benchmarks with their rivals and bars.")
    ] = False
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            metavar="N",
            min=1,
            help="Size of the test data, in the benchmark's own unit: rows, partitions, samples "
            "or cells. Default: the size for which the bar is defined.",
        ),
    ] = None
    runs: Annotated[
        int,
        typer.Option(
            "--runs", metavar="N", min=1, help="Timed runs of each side, after a warm-up."
        ),
    ] = 3
    keep: Annotated[
        bool, typer.Option("--keep", help="Save this result as --all does, and refresh the page.")
    ] = False
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            callback=output_folder,
            metavar="DIR",
            help="Project folder in which benchmarks/ and docs/benchmarks.md are written.",
        ),
    ] = Path()
    master: Master = None
    conf: Conf = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def bench(options: BenchOptions) -> None:
    """Compare Trimtab's speed with direct library calls or with a simple implementation.

    Both sides run on the same data, and in the same Spark session if they use Spark: one warm-up
    each, then alternately. A ratio above 1 means that Trimtab is better. Test data is generated
    once and kept under TRIMTAB_HOME.
    """
    if sum((options.name is not None, options.every, options.listed)) != 1:
        raise ConfigError("Exactly one of NAME, --all and --list is required.")
    if options.listed:
        _list(as_json=options.as_json)
        return
    if options.every and options.rows is not None:
        raise ConfigError(
            "--rows cannot be combined with --all, which always runs at full size.",
            hint="Use --rows together with the name of one benchmark.",
        )
    chosen = list(BENCHMARKS.values()) if options.every else [benchmark(str(options.name))]
    configure(verbose=options.verbose)
    settings = load_settings()
    spark = _session(settings, options, kafka=any(b.kafka for b in chosen))
    context = BenchContext(spark=spark, home=settings.home, cache=settings.cache, say=say)
    found = []
    for one in chosen:
        found.append(_run(one, context, rows=options.rows or one.rows, runs=options.runs))
        if options.every or options.keep:
            _keep(found[-1], options.into)
    if options.as_json:
        shown = [r.to_json() for r in found]
        result_json(shown if options.every else shown[0])
    else:
        result(_table(found))


def _session(settings: Settings, options: BenchOptions, *, kafka: bool) -> Callable[[], Session]:
    """Returns a function that starts Spark at the first call and then returns that session."""
    given = [f"spark.driver.memory={MEMORY}", *(options.conf or ())]

    @cache
    def start() -> Session:
        return spark_session(
            settings,
            master=options.master,
            conf=given,
            kafka=kafka,
            verbose=options.verbose,
            packages=PACKAGES,
        )

    return start


def _run(one: Benchmark, context: BenchContext, *, rows: int, runs: int) -> Result:
    from trimtab_lab.benchmarks.machine import machine

    began = time.monotonic()
    say(f"{one.name}: {one.what}, {rows} {one.counted}, {runs} runs")
    sides = one.run(context, rows, runs)
    java = _java(context) if one.spark else None
    found = compared(one, sides, rows=rows, runs=runs, machine=machine(java))
    say(f"{one.name}: ratio {found.ratio:g} in {time.monotonic() - began:.0f} s")
    return found


def _java(context: BenchContext) -> str:
    from trimtab_lab.benchmarks.spark.java import java_version

    return java_version(context.spark())


def _keep(found: Result, root: Path) -> None:
    """Saves a result, and writes the page and its plots again from all saved results."""
    from trimtab_lab.benchmarks import page

    text = dumps(found.to_json(), indent=1) + "\n"
    write_file(root / page.RESULTS / f"{found.name}.json", text)
    for path, content in page.files(page.kept_results(root), page.kept_quality(root)).items():
        write_file(root / path, content)


def _list(*, as_json: bool) -> None:
    if as_json:
        result_json(
            [
                {"name": b.name, "what": b.what, "rival": b.rival, "bar": b.bar, "rows": b.rows}
                for b in BENCHMARKS.values()
            ]
        )
        return
    table = _columns("name", "what", "rival", "bar")
    for b in BENCHMARKS.values():
        table.add_row(b.name, b.what, b.rival, f"{b.bar:g}")
    result(table)


def _table(found: Iterable[Result]) -> Table:
    from trimtab_lab.benchmarks.page import figure, met

    table = _columns("name", "ours", "rival", "ratio", "bar", "verdict")
    for r in found:
        table.add_row(
            r.name,
            figure(r.ours, r.unit),
            figure(r.rival, r.unit),
            f"{r.ratio:.2f}",
            f"{BENCHMARKS[r.name].bar:g}",
            "meets" if met(r) else "misses",
        )
    return table


def _columns(*names: str) -> Table:
    from rich import box

    from trimtab.report.columns import PROSE, new_table

    return new_table(*names, prose=(*PROSE, "rival"), box=box.SIMPLE_HEAD)
