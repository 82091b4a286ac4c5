"""`trimtab plan keys`: which partition each hot key goes to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.numbers import finite
from trimtab.cli.options import (
    AsJson,
    LoadsMaxAge,
    Output,
    ReportFile,
    duration_option,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, warn, write_report
from trimtab.cli.spark import SessionOptions
from trimtab.cli.time_options import since_option, span_of
from trimtab.errors import ConfigError
from trimtab.measure.counters import parse_threshold
from trimtab.model.codec import read_counts, read_loads
from trimtab.model.json_files import write_plan
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import Measurement
from trimtab.model.plan import Layer
from trimtab.model.plan_codec import plan_to
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.keys.planner import (
    BalancedLoad,
    CoolBelow,
    InitialPlace,
    KeyContext,
    KeyPlanner,
    WorthTest,
)
from trimtab.plan.keys.trim import TrimKeysOptions
from trimtab.plan.registry import PLANNERS, configured_keys, option_text, planner_of
from trimtab.services.measure import MeasuredSpan, MeasureRequest
from trimtab.services.plan_keys import KeyPlanRequest, PlannedKeys, plan_hot_keys, plan_live_keys
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.spark.session import Session

_FLAGS = {"service_s": "service", "state_s": "state-cost"}
"""Options that planners know by another name."""


_TRIM = TrimKeysOptions()


def _meaning(name: str) -> str:
    return option_text(name, Layer.KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlannerChoices:
    """The options that planners for keys read."""

    threshold: Annotated[
        str | None, typer.Option("--threshold", metavar="FORM", help=_meaning("threshold"))
    ] = None
    cool_below: Annotated[
        CoolBelow | None,
        typer.Option("--cool-below", help=f"{_meaning('cool_below')} Default: half."),
    ] = None
    initial: Annotated[
        InitialPlace | None,
        typer.Option("--initial", help=f"{_meaning('initial')} Default: two-choices."),
    ] = None
    load: Annotated[
        BalancedLoad | None, typer.Option("--load", help=f"{_meaning('load')} Default: hot.")
    ] = None
    worth: Annotated[WorthTest | None, typer.Option("--worth", help=_meaning("worth"))] = None
    service_s: Annotated[float | None, duration_option("--service", help=_meaning("service_s"))] = (
        None
    )
    state_s: Annotated[float | None, duration_option("--state-cost", help=_meaning("state_s"))] = (
        None
    )
    noise: Annotated[
        int | None,
        typer.Option(
            "--noise", metavar="N", min=0, help=f"{_meaning('noise')} Default: {_TRIM.noise}."
        ),
    ] = None
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="F",
            min=0,
            callback=finite,
            help=f"{_meaning('tolerance')} Default: {_TRIM.tolerance}.",
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        typer.Option("--max-moves", metavar="N", min=0, help=_meaning("max_moves")),
    ] = None
    plan_number: Annotated[
        int | None,
        typer.Option(
            "--plan-number",
            metavar="N",
            min=0,
            max=2**63 - 1,
            help="Number of earlier plans, which varies the two choices. Default: 0.",
        ),
    ] = None

    def planner(self, name: str) -> tuple[KeyPlanner, KeyContext]:
        """The planner of that name with the options given; one that it ignores is refused."""
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {option: value for option, value in given.items() if value is not None}
        if self.threshold is not None:
            given["threshold"] = parse_threshold(self.threshold)
        (planner,) = configured_keys([planner_of(Layer.KEYS, name)], given, spelled=_flag)
        return planner, KeyContext(plan_number=self.plan_number or 0)


def _flag(name: str) -> str:
    return f"--{_FLAGS.get(name, name.replace('_', '-'))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlanOptions:
    """The counts, the planner, and where the plan goes."""

    counts: Annotated[
        Path | None,
        typer.Option("--counts", metavar="FILE", help="A counts file of one window."),
    ] = None
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="A measurement, written by `trimtab measure -o`, instead of counts.",
        ),
    ] = None
    topic: Annotated[
        str | None,
        topic_option(
            "The topic. Needed if a measurement has several, and without --counts and --loads: "
            "then it is measured now."
        ),
    ] = None
    since: Annotated[float | None, since_option("5m")] = None
    planner: Annotated[
        str,
        typer.Option(
            "--planner",
            metavar="NAME",
            help=f"The planner: {', '.join(sorted(PLANNERS[Layer.KEYS]))}.",
        ),
    ] = "trim"
    choices: KeyPlannerChoices
    max_age: LoadsMaxAge = None
    spark: SessionOptions
    of: ClusterOptions
    output: Output = None
    report: ReportFile = None
    as_json: AsJson = False


@with_options
def keys_plan(options: KeyPlanOptions) -> None:
    """Plan which partition each hot key goes to.

    Prints the load of each partition before → after, and every move with its reason. Counts come
    from a file, from a measurement, or from the records of a topic of the cluster.
    """
    planner, context = options.choices.planner(options.planner)
    _check(options)
    if options.counts is None and options.loads is None:
        found = _live(options, planner, context)
    else:
        request = KeyPlanRequest(
            counts=_read(options),
            planner=planner,
            context=context,
            topic=options.topic,
            max_age_s=options.max_age,
        )
        found = plan_hot_keys(request, listener=TerminalProgress())
    if options.output is not None:
        write_plan(found.plan, options.output)
    if options.report is not None:
        from trimtab.report.plan_page import plan_page

        write_report(options.report, plan_page(found.plan, counts=found.counts))
    if options.as_json:
        result_json(plan_to(found.plan))
    else:
        from trimtab.report.plans import plan_view

        result(plan_view(found.plan, counts=found.counts))


def _check(options: KeyPlanOptions) -> None:
    """Rejects options that contradict each other."""
    given = [options.counts is not None, options.loads is not None]
    if all(given):
        raise ConfigError("Give --counts or --loads, not both.")
    if any(given) and options.since is not None:
        raise ConfigError("--since is for a topic that is measured now, without a file.")
    if options.max_age is not None and options.loads is None:
        raise ConfigError("--max-age is for a measurement: give --loads.")
    choices = options.choices
    if choices.service_s is not None and choices.state_s is None and choices.worth is None:
        raise ConfigError(
            "--service is only used to test moves.", hint="Give --state-cost or --worth too."
        )
    if not any(given) and options.topic is None:
        raise ConfigError(
            "There is nothing to plan for.",
            hint="Give --counts FILE, --loads FILE, or --topic T to measure a topic now.",
        )


def _read(options: KeyPlanOptions) -> KeyCounts | Measurement:
    if options.counts is not None:
        counts, warnings = read_counts(options.counts)
        warn(warnings)
        return counts
    if options.loads is None:
        raise ConfigError("Give --counts or --loads.")
    loads, warnings = read_loads(options.loads)
    warn(warnings)
    if not isinstance(loads, Measurement):
        raise ConfigError(
            f"{options.loads} is a loads file, which has no keys.",
            hint="Give a measurement of `trimtab measure -o FILE`, or --counts.",
        )
    return loads


def _live(options: KeyPlanOptions, planner: KeyPlanner, context: KeyContext) -> PlannedKeys:
    """Measures the topic and plans for it."""
    settings = options.of.settings()
    options.spark.check(settings)
    start, end = span_of(options.since, None, None, now=wall_clock_us())
    with TerminalProgress() as listener:

        def start_spark() -> Session:
            listener.stop()  # starting Spark shows its own progress bar
            return options.spark.start(settings)

        return plan_live_keys(
            planner,
            cluster_of(settings),
            _measuring(options, settings),
            MeasuredSpan(from_ts=start, to_ts=end),
            start_spark=start_spark,
            context=context,
            listener=listener,
        )


def _measuring(options: KeyPlanOptions, settings: Settings) -> MeasureRequest:
    return MeasureRequest(
        topics=frozenset({options.topic or ""}),
        window_s=settings.measure.window_s,
        threshold=parse_threshold(options.choices.threshold or settings.keys.threshold),
        epsilon=settings.keys.epsilon,
        warehouse=str(settings.warehouse),
        settings=settings.measure,
    )
