"""The command line: registers the verbs, and turns errors into exit codes."""

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
    consume_status,
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
"""The groups of verbs in the help; each verb is registered in one of them."""

ADD_ONS = "trimtab.verbs"
"""Entry points of this group are called with the command line to add further verbs."""

_EPILOG = """Results go to stdout, messages and progress to stderr; every verb takes --json. Exit
codes: 0 success, 1 findings, 2 usage or settings, 3 measuring, 4 planning, 5 applying,
70 internal error, 130 interrupted, 141 output closed."""


class _InGroups(TyperGroup):
    """Lists the verbs by group."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs: group after group, within a group as they were registered."""
        return [verb for verbs in self._grouped(ctx).values() for verb in verbs]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each group, with all texts aligned in one column."""
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
    rich_markup_mode=None,  # plain help wraps well at any width and can be piped
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
    """Balances partitioned event streams: measures the load, plans moves, and explains them.

    The verbs are the stages of one control loop. To try them, start a local cluster with: trimtab
    cluster up. Without --bootstrap-server the verbs use that cluster.
    """


app.command(
    "snapshot",
    rich_help_panel="Look",
    short_help="Brokers, leaders, replicas, sizes and groups right now.",
)(snapshot.snapshot)
app.command(
    "audit",
    rich_help_panel="Look",
    short_help="Leaders, overlaps, loads and simulated broker failures.",
)(audit.audit)
app.command(
    "monitor",
    rich_help_panel="Look",
    short_help="Sample log sizes and offsets into the telemetry topic.",
)(monitor.monitor)
app.command(
    "measure",
    rich_help_panel="Look",
    short_help="Rates, heavy keys and lag, once over a span or continuously.",
)(measure.measure)
app.command(
    "consume-status",
    rich_help_panel="Look",
    short_help="Keys of a keyed group: owned, waiting, and what for.",
)(consume_status.consume_status_verb)
app.add_typer(
    evaluate.app,
    name="evaluate",
    rich_help_panel="Look",
    short_help="Check order, latency, cost, and the forecast of a plan.",
)
app.add_typer(
    plan.app,
    name="plan",
    rich_help_panel="Decide",
    short_help="Decide what to move and why; changes nothing.",
)
app.add_typer(
    simulate.app,
    name="simulate",
    rich_help_panel="Decide",
    short_help="Run planners on streams of loads, without a broker.",
)
app.command(
    "apply",
    rich_help_panel="Act",
    short_help="Show a plan, check that it still fits, and execute it.",
)(apply.apply)
app.command(
    "run",
    rich_help_panel="Act",
    short_help="Run the controller of a group: measure, decide, scale, move.",
)(run_verb.run)
app.command(
    "consume",
    rich_help_panel="Act",
    short_help="Run a consumer of a group: read, handle, write and commit.",
)(consume.consume)
app.command(
    "steer",
    rich_help_panel="Act",
    short_help="Publish broker weights that steer producers off slow brokers.",
)(steer.steer)
app.command(
    "forward",
    rich_help_panel="Act",
    short_help="Forward topics with one shared partitioner, at least once.",
)(forward.forward)
app.add_typer(
    cluster.app,
    name="cluster",
    rich_help_panel="Try",
    short_help="Start, stop and fail a real Kafka cluster on this machine.",
)
app.add_typer(
    load.app,
    name="load",
    rich_help_panel="Try",
    short_help="Send records to a topic on a schedule, and report the result.",
)
add_examples(app, EXAMPLES)


def _add_verbs_of_add_ons() -> None:
    """Calls every add-on; if one fails, only its own verbs are missing."""
    for add_on in entry_points(group=ADD_ONS):
        try:
            add_on.load()(app)
        except Exception as error:
            talk.print(
                f"warning: the verbs of {add_on.value} are missing: {error!r}",
                markup=False,
                soft_wrap=True,
            )


_add_verbs_of_add_ons()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits with its exit code."""
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
        talk.print("error: internal error in Trimtab; please report the lines above.")
        return 70
    return 0


@cache
def _command() -> Callable[..., Any]:
    """The Click command with all verbs and options, built once."""
    return typer.main.get_command(app)


if __name__ == "__main__":
    main()
