"""`trimtab demo`: a local cluster, a skewed load, one turn of the loop, one HTML report."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGTERM
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.numbers import finite
from trimtab.cli.options import (
    AsJson,
    RecordsSeed,
    Verbose,
    duration_option,
    output_folder,
    with_options,
)
from trimtab.cli.output import progress_bar, result, result_json, say, talk, warn
from trimtab.errors import ConfigError
from trimtab.model.codec import VERSION, measurement_to
from trimtab.model.plan_codec import plan_to
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab_lab.demo.outcome import DemoOutcome, Files


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Size of the load, and what to leave running or write at the end."""

    duration: Annotated[
        float,
        duration_option(
            "--duration",
            shown="30s",
            help="How long records are sent; at least 10s.",
        ),
    ] = 30.0
    rate: Annotated[
        float,
        typer.Option("--rate", metavar="R", min=100, callback=finite, help="Records per second."),
    ] = 3000.0
    partitions: Annotated[
        int,
        typer.Option("--partitions", metavar="N", min=4, help="Partitions of topic orders."),
    ] = 12
    seed: RecordsSeed = 0
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running; the next demo reuses it.")
    ] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            callback=output_folder,
            metavar="DIR",
            help="Folder for report.html, measurement.json, plan.json, keys-plan.json, loop.json "
            "and tables/. Default: reports/demo in TRIMTAB_HOME; each run overwrites it.",
        ),
    ] = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def demo(options: DemoOptions) -> None:
    """Show the whole loop on a real cluster on this machine, in about three minutes.

    Three brokers are started and a skewed load is sent to a topic; a consumer group reads it and
    one of its members falls behind. Spark measures rates, heavy keys and lag. One plan assigns the
    partitions differently, another one would move hot keys. Then a controller runs a group on the
    same skew, and Spark evaluates the result. One HTML page shows everything. All processes are
    stopped at the end, also after Ctrl-C.
    """
    from trimtab_lab.demo.script import LEAST_DURATION_S, Script
    from trimtab_lab.demo.steps import run_demo

    if options.duration < LEAST_DURATION_S:
        raise ConfigError(
            f"--duration must be at least {LEAST_DURATION_S:g}s, not {options.duration:g}s.",
            hint="Rates can only be computed from a complete window of samples.",
        )
    configure(verbose=options.verbose)
    settings = load_settings()
    script = Script(
        duration_s=options.duration,
        rate_s=options.rate,
        partitions=options.partitions,
        seed=options.seed,
    )
    folder = (options.output or settings.reports / "demo").expanduser().absolute()
    began = time.monotonic()
    with _interruptible(verbose=options.verbose):
        outcome, files = run_demo(
            script, settings, _Terminal(), folder=folder, keep=options.keep, verbose=options.verbose
        )
    _show(outcome, files, as_json=options.as_json)
    _show_next_steps(outcome, files, settings, keep=options.keep, took_s=time.monotonic() - began)


class _Terminal:
    """Prints the demo's progress to stderr."""

    def step(self, number: int, title: str) -> None:
        from trimtab_lab.demo.script import STEPS

        talk.print(f"[{number}/{STEPS}] {title}", style="bold", markup=False)

    def say(self, line: str) -> None:
        say(f"      {line}")

    def warn(self, line: str) -> None:
        warn([line])

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        if not talk.is_terminal:
            self.say(f"{title} …")
            yield lambda *_: None
            return
        with progress_bar() as shown:
            task = shown.add_task(title, total=None)

            def move(done: int, of: int, words: str) -> None:
                description = f"{title}, {words}" if words else title
                shown.update(task, completed=done, total=of or None, description=description)

            yield move


@contextmanager
def _interruptible(*, verbose: bool) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt, so that everything is cleaned up."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        say("Interrupted: stopping everything …")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (SIGINT, SIGTERM)}
    # On Ctrl-C, Spark's client logs a whole traceback through the root logger.
    silence: logging.Handler = logging.NullHandler()
    if not verbose:
        logging.getLogger().addHandler(silence)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        logging.getLogger().removeHandler(silence)
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(outcome: DemoOutcome, files: Files, *, as_json: bool) -> None:
    if as_json:
        result_json(
            {
                "v": VERSION,
                "report": str(files.report),
                "measurement": measurement_to(outcome.measurement),
                "plan": plan_to(outcome.plan),
                "keys_plan": plan_to(outcome.hot_keys.plan),
                "loop": outcome.loop.figures,
            }
        )
        return
    from trimtab.report.measurement import measurement_view
    from trimtab.report.plans import plan_view

    result(measurement_view(outcome.measurement, outcome.states, outcome.stored_ratio))
    result("")
    result(plan_view(outcome.plan, outcome.loads))
    result("")
    result(plan_view(outcome.hot_keys.plan, counts=outcome.hot_keys.counts))


def _show_next_steps(
    outcome: DemoOutcome, files: Files, settings: Settings, *, keep: bool, took_s: float
) -> None:
    from trimtab.local.cluster import LocalCluster
    from trimtab_lab.demo.script import CLUSTER

    capacity = outcome.plan.params["capacity"]
    say("")
    lines = [
        f"Done in {took_s:.0f} s. Report: {files.report}",
        f"Audit of the cluster: {files.audit}",
        "Next:",
        f"  trimtab apply {files.plan}",
        f"  trimtab plan consumers --loads {files.measurement} --unit records/s "
        f"--capacity {capacity:.0f} --planner bfd",
        f"  trimtab plan keys --loads {files.measurement} --planner smalops",
        f"  trimtab audit --snapshot {files.snapshot} --loads {files.measurement} --faults 2",
    ]
    if keep:
        servers = LocalCluster(CLUSTER, home=settings.home).bootstrap_servers
        lines += [
            f"  trimtab measure --topic orders --since 10m --bootstrap-server {servers}",
            f"  trimtab cluster down --name {CLUSTER}",
        ]
    else:
        lines.append("  trimtab demo --keep   (leaves the cluster running for other commands)")
    for line in lines:
        talk.print(line, markup=False, soft_wrap=True)  # a wrapped command could not be copied
