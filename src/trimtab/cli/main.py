"""The command line: one verb per stage, and one place where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trimtab import __version__
from trimtab.cli import (
    apply,
    audit,
    cluster,
    consume,
    evaluate,
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
from trimtab.cli.examples import EXAMPLES, add_examples
from trimtab.cli.output import talk
from trimtab.cli.signals import terminable
from trimtab.errors import TrimtabError
from trimtab.observe.logging import configure

_GROUPS = ("Look", "Decide", "Act", "Try")
"""What verbs are for; each is registered with one of these as its panel."""

ADD_ONS = "trimtab.verbs"
"""Entry points of this group are called with the command line, to add verbs of their own."""

_EPILOG = """Results go to stdout, talk and progress to stderr; every verb takes --json. Exit codes:
0 done, 1 findings, 2 usage or settings, 3 measuring, 4 planning, 5 applying, 70 a fault of
Trimtab, 130 interrupted, 141 output closed."""


class _InGroups(TyperGroup):
    """Lists the verbs by what they are for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs: group after group, within a group as they were registered."""
        return [verb for verbs in self._grouped(ctx).values() for verb in verbs]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each group; all have their texts in one column."""
        widest = max(len(verb) for verb in self.list_commands(ctx))
        for title, verbs in self._grouped(ctx).items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (verb.ljust(widest), command.get_short_help_str(formatter.width))
                        for verb, command in verbs.items()
                    ]
                )

    def _grouped(self, ctx: Any) -> dict[str, dict[str, Any]]:
        groups: dict[str, dict[str, Any]] = {title: {} for title in _GROUPS}
        for verb in super().list_commands(ctx):
            command: Any = self.get_command(ctx, verb)
            groups.setdefault(command.rich_help_panel or "Other", {})[verb] = command
        return {title: verbs for title, verbs in groups.items() if verbs}


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


app.command(
    "snapshot",
    rich_help_panel="Look",
    short_help="Brokers, leaders, replicas, sizes and groups right now.",
)(snapshot.snapshot)
app.command(
    "audit",
    rich_help_panel="Look",
    short_help="Leaders, overlaps, loads, and what each failure would do.",
)(audit.audit)
app.command(
    "monitor",
    rich_help_panel="Look",
    short_help="Sample log sizes and offsets into the telemetry topic.",
)(monitor.monitor)
app.command(
    "measure",
    rich_help_panel="Look",
    short_help="Rates, heavy keys and lag, once over a span or for ever.",
)(measure.measure)
app.add_typer(
    evaluate.app,
    name="evaluate",
    rich_help_panel="Look",
    short_help="Was order kept, was it in time, what did it cost.",
)
app.add_typer(
    plan.app,
    name="plan",
    rich_help_panel="Decide",
    short_help="Decide what should move, and why; changes nothing.",
)
app.add_typer(
    simulate.app,
    name="simulate",
    rich_help_panel="Decide",
    short_help="Planners over streams of loads, without a broker.",
)
app.command(
    "apply",
    rich_help_panel="Act",
    short_help="Show a plan, and check that it still fits the cluster.",
)(apply.apply)
app.command(
    "run",
    rich_help_panel="Act",
    short_help="Keep a group level: measure, decide, scale and move.",
)(run_verb.run)
app.command(
    "consume",
    rich_help_panel="Act",
    short_help="Read a group's partitions: handle, write, commit, obey.",
)(consume.consume)
app.command(
    "steer",
    rich_help_panel="Act",
    short_help="Weights per broker, so that producers leave slow ones alone.",
)(steer.steer)
app.command(
    "forward",
    rich_help_panel="Act",
    short_help="Send topics on with one shared partitioner, at least once.",
)(forward.forward)
app.add_typer(
    cluster.app,
    name="cluster",
    rich_help_panel="Try",
    short_help="A real Kafka cluster on this machine, to try and break.",
)
app.add_typer(
    load.app,
    name="load",
    rich_help_panel="Try",
    short_help="Send records to a topic on schedule, and say how it went.",
)
add_examples(app, EXAMPLES)


def _add_verbs_of_others() -> None:
    """Calls every add-on; one that fails costs its own verbs only."""
    for add_on in entry_points(group=ADD_ONS):
        try:
            add_on.load()(app)
        except Exception as error:
            talk.print(
                f"warning: the verbs of {add_on.value} are missing: {error!r}",
                markup=False,
                soft_wrap=True,
            )


_add_verbs_of_others()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves with an exit code that scripts can use."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    configure()  # a verb that takes --verbose does it again
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
