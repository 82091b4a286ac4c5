"""`trimtab simulate brokers`: compares dispatching policies on simulated brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimtab.cli.numbers import number, positive
from trimtab.cli.options import AsJson, Output, output_file, with_options
from trimtab.cli.output import TerminalProgress, say, show
from trimtab.cli.planner_options import Seed
from trimtab.errors import ConfigError
from trimtab.model.files import write_atomically
from trimtab.services.simulate_brokers import (
    DEFAULT_BROKERS,
    BrokerTopology,
    PolicyComparison,
    SlowPeriod,
    compare_policies,
    topology_of,
)
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.simulate.brokers import QueueWorld
    from trimtab.simulate.policy import DispatchSettings as PolicySettings
    from trimtab.simulate.policy_comparison import ComparisonCell

_POLICIES = "random,round-robin,node,sqf,jsq-d,jiq,jsq-own,jsq,least-work"
_PICTURES = (".svg", ".png")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersOptions:
    """The brokers, the policies to compare, and the length of the simulation."""

    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            help="Number of equal brokers, with one topic that has a partition on each. "
            f"Default: {DEFAULT_BROKERS}.",
        ),
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="Instead of --brokers: a snapshot file, or B2, U2 or 6.4 of Burato's thesis.",
        ),
    ] = None
    utilisation: Annotated[
        str,
        typer.Option(
            "--utilisation",
            metavar="X,…",
            help="Utilisation of all brokers together, between 0 and 1.",
        ),
    ] = "0.5,0.7,0.9"
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="NAME,…",
            help="Policies: random, round-robin, jsq-d (the shortest of d), jiq (idle queue), "
            "jsq-own (shortest by its own records), jsq (shortest queue), least-work (one queue "
            "for all); or partitioners: default, improved, node, sqf, weighted-node (with ideal "
            "weights).",
        ),
    ] = _POLICIES
    dispatchers: Annotated[
        str,
        typer.Option(
            "--dispatchers",
            metavar="N,…",
            help="Number of producers; each knows only its own records.",
        ),
    ] = "1,4"
    d: Annotated[
        int, typer.Option("--d", metavar="N", min=1, help="Number of queues that jsq-d compares.")
    ] = 2
    refresh: Annotated[
        float | None,
        typer.Option(
            "--refresh",
            metavar="T",
            callback=positive,
            help="Interval at which jsq and jsq-d learn the queue lengths, in mean service times. "
            "Default: always current.",
        ),
    ] = None
    service: Annotated[
        str,
        typer.Option(
            "--service",
            metavar="KIND",
            help="Distribution of service times: exponential or constant.",
        ),
    ] = "exponential"
    speeds: Annotated[
        str | None,
        typer.Option(
            "--speeds",
            metavar="X,…",
            help="Speed of each broker, by ascending id. Default: 1, or the file's capacities.",
        ),
    ] = None
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="TOPIC:X",
            help="Relative rate of a topic; the default is 1. May be repeated.",
        ),
    ] = None
    foreign: Annotated[
        list[str] | None,
        typer.Option(
            "--foreign",
            metavar="BROKER:X",
            help="Share of a broker's speed used by load that no dispatcher knows of. "
            "May be repeated.",
        ),
    ] = None
    slow: Annotated[
        list[str] | None,
        typer.Option(
            "--slow",
            metavar="BROKER:SPEED:FROM:TO",
            help="Another speed of a broker (0: it hangs) for a part of the run, FROM and TO "
            "between 0 and 1. May be repeated.",
        ),
    ] = None
    arrivals: Annotated[
        int, typer.Option("--arrivals", metavar="N", min=100, help="Number of records per run.")
    ] = 100_000
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", metavar="N", min=1, help="Number of runs, for the 95 % confidence interval."
        ),
    ] = 5
    seed: Seed = 0
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            callback=output_file,
            help="Plot mean waits to this file: .svg or .png.",
        ),
    ] = None
    output: Output = None
    as_json: AsJson = False


@with_options
def brokers(options: BrokersOptions) -> None:
    """Compare policies by which producers spread records over brokers.

    Brokers are queues, producers are dispatchers. Waits last until service begins, in mean service
    times of a broker of speed 1, and are compared with queueing theory.

    Policies range from no knowledge of the queues to full knowledge; Trimtab's partitioners are
    among them.
    """
    from trimtab.report.policy_comparison import comparison_view

    plot = options.plot
    if plot is not None and plot.suffix not in _PICTURES:
        raise ConfigError(f"--plot takes a file that ends in .svg or .png, not {plot.name}.")
    with TerminalProgress() as listener:
        topology = topology_of(
            options.brokers,
            options.topology,
            own_prefix=load_settings().topic_prefix,
            listener=listener,
        )
        asked = _comparison(options, topology)
        found, world = compare_policies(asked, listener=listener)
    if plot is not None:
        _draw(plot, found, world, asked.settings)
    show(
        _document(options, found, world),
        lambda: comparison_view(found, world, arrivals=options.arrivals, seeds=options.seeds),
        as_json=options.as_json,
        output=options.output,
        indent=None,
    )


def _comparison(options: BrokersOptions, topology: BrokerTopology) -> PolicyComparison:
    """Converts the options to a request of the service."""
    from trimtab.simulate.brokers import Service
    from trimtab.simulate.dispatchers import policy_of
    from trimtab.simulate.policy import DispatchSettings
    from trimtab.simulate.policy_comparison import Effort

    if options.service not in tuple(Service):
        raise ConfigError(f"--service takes {' or '.join(Service)}, not {options.service!r}.")
    try:
        settings = DispatchSettings(d=options.d, refresh=options.refresh)
    except ValueError as error:
        raise ConfigError(f"Invalid simulation: {error}.") from error
    leaders, fast = topology.leaders, _speeds(options.speeds, topology.speeds)
    taken = _named(options.foreign or (), "--foreign", "BROKER:X", map(str, fast))
    return PolicyComparison(
        topology=BrokerTopology(leaders, fast),
        policies=[policy_of(name) for name in _listed(options.policies, "--policies")],
        utilisations=_utilisations(options.utilisation),
        dispatchers=[
            _whole(text, "--dispatchers") for text in _listed(options.dispatchers, "--dispatchers")
        ],
        service=Service(options.service),
        settings=settings,
        effort=Effort(count=options.arrivals, seeds=options.seeds, seed=options.seed),
        rates=_named(options.rate or (), "--rate", "TOPIC:X", leaders.topics),
        foreign={int(broker): part for broker, part in taken.items()},
        slow=[_slow(text, fast) for text in options.slow or ()],
    )


def _document(
    options: BrokersOptions, found: Sequence[ComparisonCell], world: QueueWorld
) -> dict[str, Any]:
    _, leaders = world.leaders[0]
    return {
        "brokers": {str(broker): world.speeds[broker] for broker in world.brokers},
        "leaders": {
            topic: {str(p): leader for p, leader in leaders.topic(topic).leader.items()}
            for topic in leaders.topics
        },
        "rates": {topic: world.rate_of(topic) for topic in leaders.topics},
        "foreign": {str(broker): part for broker, part in sorted(world.foreign.items())},
        "slow": options.slow or [],
        "service": options.service,
        "d": options.d,
        "refresh": options.refresh,
        "arrivals": options.arrivals,
        "seeds": options.seeds,
        "seed": options.seed,
        "cells": [cell.to_json() for cell in found],
    }


def _draw(
    plot: Path, found: Sequence[ComparisonCell], world: QueueWorld, settings: PolicySettings
) -> None:
    from trimtab.report.policy_comparison import picture
    from trimtab.simulate.policy_comparison import curves

    form: Literal["svg", "png"] = "svg" if plot.suffix == ".svg" else "png"
    write_atomically(plot, picture(found, curves(world, found, settings), form=form))
    say(f"plot written to {plot}")


def _slow(text: str, speeds: Mapping[int, float]) -> SlowPeriod:
    """Parses `BROKER:SPEED:FROM:TO`."""
    given = text.split(":")
    try:
        broker, speed, start, end = int(given[0]), *(number(part) for part in given[1:])
    except (ValueError, typer.BadParameter):
        broker, speed, start, end = -1, 0.0, 0.0, 0.0
    if broker not in speeds or not (speed >= 0 and 0 < start < end <= 1):
        raise ConfigError(
            f"--slow takes BROKER:SPEED:FROM:TO such as {next(iter(speeds))}:0.3:0.4:0.6, "
            f"not {text!r}.",
            hint=f"Brokers are {_few(map(str, speeds))}; FROM and TO are between 0 and 1.",
        )
    return SlowPeriod(broker=broker, speed=speed, start=start, end=end)


def _utilisations(text: str) -> list[float]:
    parts = [_number(part, "--utilisation") for part in _listed(text, "--utilisation")]
    for part in parts:
        if part >= 1:
            raise ConfigError(
                f"--utilisation must be below 1, not {part:g}: the queues would grow for ever.",
                hint="Give values between 0 and 1, such as 0.5,0.7,0.9.",
            )
        if not part > 0:
            raise ConfigError("--utilisation must be greater than 0.")
    return parts


def _speeds(text: str | None, capacities: Mapping[int, float]) -> Mapping[int, float]:
    if text is None:
        return capacities
    given = [_number(part, "--speeds") for part in text.split(",")]
    if len(given) != len(capacities) or min(given) <= 0:
        raise ConfigError(
            f"--speeds takes a number above 0 for each of {len(capacities)} brokers, not {text!r}."
        )
    return dict(zip(sorted(capacities), given, strict=True))


def _named(given: Sequence[str], option: str, form: str, names: Iterable[str]) -> dict[str, float]:
    """Parses `NAME:X`."""
    known = list(names)
    found = {}
    for text in given:
        name, colon, part = text.rpartition(":")
        if not colon or name not in known:
            raise ConfigError(
                f"{option} takes {form}, not {text!r}.", hint=f"Known names: {_few(known)}."
            )
        found[name] = _number(part, option)
    return found


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:10]) + (" …" if len(listed) > 10 else "")


def _listed(text: str, option: str) -> list[str]:
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise ConfigError(f"{option} needs at least one value.")
    return parts


def _whole(text: str, option: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"{option} takes integers of at least 1, not {text!r}.")
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        return number(text)
    except typer.BadParameter as error:
        raise ConfigError(f"{option} takes numbers, not {text.strip()!r}.") from error
