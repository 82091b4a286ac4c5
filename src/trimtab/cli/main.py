"""The command line: one verb per stage, and one place where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trimtab import __version__
from trimtab.cli import (
    apply,
    audit,
    bench,
    cluster,
    consume,
    demo,
    evaluate,
    experiment,
    forward,
    load,
    measure,
    monitor,
    plan,
    simulate,
    snapshot,
    steer,
)
from trimtab.cli import run as run_verb
from trimtab.cli.examples import add_examples
from trimtab.cli.output import talk
from trimtab.cli.signals import terminable
from trimtab.errors import TrimtabError

_VERBS = {
    "Look": ("snapshot", "audit", "monitor", "measure", "evaluate"),
    "Decide": ("plan", "simulate"),
    "Act": ("apply", "run", "consume", "steer", "forward"),
    "Try": ("demo", "cluster", "load", "experiment", "bench"),
}
_EPILOG = """Results go to stdout, talk and progress to stderr; every verb takes --json. Exit codes:
0 done, 1 findings, 2 usage or settings, 3 measuring, 4 planning, 5 applying, 70 a fault of
Trimtab, 130 interrupted, 141 output closed."""


class _InGroups(TyperGroup):
    """Lists the verbs by what they are for."""

    def list_commands(self, ctx: Any) -> list[str]:
        grouped = [verb for verbs in _VERBS.values() for verb in verbs]
        place = {verb: at for at, verb in enumerate(grouped)}
        return sorted(super().list_commands(ctx), key=lambda verb: place.get(verb, len(place)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each group; all have their texts in one column."""
        there = self.list_commands(ctx)
        widest = max(len(verb) for verb in there)
        for title, verbs in _VERBS.items():
            named = [(verb, self.get_command(ctx, verb)) for verb in verbs if verb in there]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (verb.ljust(widest), command.get_short_help_str(formatter.width))
                        for verb, command in named
                        if command is not None
                    ]
                )


app = typer.Typer(
    name="trimtab",
    cls=_InGroups,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it wraps well at any width and can be piped
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"trimtab {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps partitioned event streams level: measures the load, plans what to move, says why.

    The verbs are the stages of one loop. A cluster to try them on is one command away: trimtab
    cluster up. Without --bootstrap-server they speak to that one.
    """


app.command("demo", short_help="The whole loop on a local cluster, and one HTML report.")(demo.demo)
app.add_typer(
    cluster.app,
    name="cluster",
    short_help="A real Kafka cluster on this machine, to try and break.",
)
app.add_typer(
    load.app, name="load", short_help="Send records to a topic on schedule, and say how it went."
)
app.command("snapshot", short_help="Brokers, leaders, replicas, sizes and groups right now.")(
    snapshot.snapshot
)
app.command("audit", short_help="Leaders, overlaps, loads, and what each failure would do.")(
    audit.audit
)
app.command("monitor", short_help="Sample log sizes and offsets into the telemetry topic.")(
    monitor.monitor
)
app.command("measure", short_help="Rates, heavy keys and lag, once over a span or for ever.")(
    measure.measure
)
app.add_typer(
    plan.app, name="plan", short_help="Decide what should move, and why; changes nothing."
)
app.command("apply", short_help="Show a plan, and check that it still fits the cluster.")(
    apply.apply
)
app.command("run", short_help="Keep a group level: measure, decide, scale and move.")(run_verb.run)
app.command("consume", short_help="Read a group's partitions: handle, write, commit, obey.")(
    consume.consume
)
app.command("steer", short_help="Weights per broker, so that producers leave slow ones alone.")(
    steer.steer
)
app.command("forward", short_help="Send topics on with one shared partitioner, at least once.")(
    forward.forward
)
app.add_typer(
    evaluate.app, name="evaluate", short_help="Was order kept, was it in time, what did it cost."
)
app.add_typer(
    simulate.app, name="simulate", short_help="Planners over streams of loads, without a broker."
)
app.add_typer(
    experiment.app, name="experiment", short_help="The papers' tables and figures beside ours."
)
app.command("bench", short_help="Compared with direct library calls, both in one run.")(bench.bench)
add_examples(app)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves with an exit code that scripts can use."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    try:
        with terminable():
            _command()(arguments, prog_name="trimtab")
    except TrimtabError as error:
        talk.print(f"error: {error.message}", style="red", markup=False, soft_wrap=True)
        if error.hint:
            talk.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except Exception:
        talk.print_exception(show_locals=False)
        talk.print("error: this is a fault of Trimtab itself; please report the lines above.")
        return 70
    return 0


@cache
def _command() -> Callable[..., Any]:
    """All verbs with their options, put together once."""
    return typer.main.get_command(app)


if __name__ == "__main__":
    main()
