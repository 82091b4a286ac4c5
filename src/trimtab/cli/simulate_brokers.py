"""`trimtab simulate brokers`: what it would be worth to know more about brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimtab.cli.numbers import number, positive
from trimtab.cli.options import AsJson, Output, output_file
from trimtab.cli.output import progress_bar, result, result_json, say, warn, write_file
from trimtab.cli.planner_options import Seed
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps
from trimtab.model.files import write_atomically
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.plan.records.leaders import LeaderSnapshot
    from trimtab.simulate.brokers import SpeedChange, World
    from trimtab.simulate.yardsticks import Cell

_BROKERS = 10
_POLICIES = "random,round-robin,node,sqf,jsq-d,jiq,jsq-own,jsq,least-work"
_PICTURES = (".svg", ".png")


def brokers(
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            help=f"Equal brokers, with a topic that has a partition on each. Default: {_BROKERS}.",
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="Leaders instead: a snapshot file, or B2, U2 or 6.4 of Burato's thesis.",
        ),
    ] = None,
    utilisation: Annotated[
        str,
        typer.Option(
            "--utilisation",
            metavar="X,…",
            help="How busy all brokers together are, as parts of 1.",
        ),
    ] = "0.5,0.7,0.9",
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="NAME,…",
            help="Who chooses: random, round-robin, jsq-d (the shortest of d), jiq (idle queue), "
            "jsq-own (shortest by its own records), jsq (shortest queue), least-work (one queue "
            "for all); or partitioners: default, improved, node, sqf, weighted-node (with ideal "
            "weights).",
        ),
    ] = _POLICIES,
    dispatchers: Annotated[
        str,
        typer.Option(
            "--dispatchers",
            metavar="N,…",
            help="How many producers send, each with what it knows itself.",
        ),
    ] = "1,4",
    d: Annotated[
        int, typer.Option("--d", metavar="N", min=1, help="How many queues jsq-d looks at.")
    ] = 2,
    refresh: Annotated[
        float | None,
        typer.Option(
            "--refresh",
            metavar="T",
            callback=positive,
            help="How often jsq and jsq-d are told the queues, in mean service times. Default: "
            "they always know.",
        ),
    ] = None,
    service: Annotated[
        str,
        typer.Option(
            "--service",
            metavar="KIND",
            help="Time that records take: exponential, or constant.",
        ),
    ] = "exponential",
    speeds: Annotated[
        str | None,
        typer.Option(
            "--speeds",
            metavar="X,…",
            help="Of each broker, by ascending id. Default: 1, or the file's capacities.",
        ),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="TOPIC:X",
            help="How often a topic is written to, compared with the others, which have 1. May "
            "be repeated.",
        ),
    ] = None,
    foreign: Annotated[
        list[str] | None,
        typer.Option(
            "--foreign",
            metavar="BROKER:X",
            help="Part of a broker's speed that is taken by load of which no dispatcher knows. "
            "May be repeated.",
        ),
    ] = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(
            "--slow",
            metavar="BROKER:SPEED:FROM:TO",
            help="A broker that has another speed (0: stands still) for a while, FROM and TO "
            "being parts of the run. May be repeated.",
        ),
    ] = None,
    arrivals: Annotated[
        int, typer.Option("--arrivals", metavar="N", min=100, help="Records of each run.")
    ] = 100_000,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Runs, for the interval of 95 %.")
    ] = 5,
    seed: Seed = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            callback=output_file,
            help="Draw mean waits here: .svg or .png.",
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Show what knowing more is worth to those who spread records.

    Brokers are queues, producers dispatchers; waits are in mean service times of a broker of speed
    1, until service begins, and stand beside what queueing theory says.

    Policies go from knowing nothing to seeing all work; our partitioners are among them.
    """
    from trimtab.simulate.dispatchers import policy_of
    from trimtab.simulate.policy import Settings
    from trimtab.simulate.yardsticks import Effort, cells, curves, sweep

    if plot is not None and plot.suffix not in _PICTURES:
        raise ConfigError(f"--plot takes a file that ends in .svg or .png, not {plot.name}.")
    busy = _utilisations(utilisation)
    many = [_whole(text, "--dispatchers") for text in _listed(dispatchers, "--dispatchers")]
    chosen = [policy_of(name) for name in _listed(policies, "--policies")]
    leaders, capacities = _leaders(brokers, topology)
    fast = _speeds(speeds, capacities)
    try:
        settings = Settings(d=d, refresh=refresh)
    except ValueError as error:
        raise ConfigError(f"That cannot be simulated: {error}.") from error
    worlds = {
        part: _world(
            leaders,
            fast,
            part,
            arrivals,
            service=service,
            rates=_named(rate or (), "--rate", "TOPIC:X", leaders.topics),
            foreign=_named(foreign or (), "--foreign", "BROKER:X", map(str, fast)),
            slow=slow or (),
        )
        for part in busy
    }
    found: list[Cell] = []
    with progress_bar() as bar:
        runs = len(busy) * len(cells(chosen, many, settings)) * seeds
        task = bar.add_task("simulating", total=runs)
        found.extend(
            sweep(
                worlds.__getitem__,
                chosen,
                utilisations=busy,
                dispatchers=many,
                settings=settings,
                effort=Effort(count=arrivals, seeds=seeds, seed=seed),
                on_run=lambda name: bar.update(task, advance=1, description=name),
            )
        )
    world = worlds[busy[0]]
    value = {
        "brokers": {str(broker): world.speeds[broker] for broker in world.brokers},
        "leaders": {
            topic: {str(p): leader for p, leader in leaders.topic(topic).leader.items()}
            for topic in leaders.topics
        },
        "rates": {topic: world.rate_of(topic) for topic in leaders.topics},
        "foreign": {str(broker): part for broker, part in sorted(world.foreign.items())},
        "slow": slow or [],
        "service": service,
        "d": d,
        "refresh": refresh,
        "arrivals": arrivals,
        "seeds": seeds,
        "seed": seed,
        "cells": [cell.to_json() for cell in found],
    }
    if output is not None:
        write_file(output, dumps(value) + "\n")
    if plot is not None:
        from trimtab.report.yardsticks import picture

        form: Literal["svg", "png"] = "svg" if plot.suffix == ".svg" else "png"
        write_atomically(plot, picture(found, curves(world, found, settings), form=form))
        say(f"the picture is in {plot}")
    if as_json:
        result_json(value)
    else:
        from trimtab.report.yardsticks import yardsticks_view

        result(yardsticks_view(found, world, arrivals=arrivals, seeds=seeds))


def _leaders(brokers: int | None, topology: str | None) -> tuple[LeaderSnapshot, dict[int, float]]:
    """Who leads what, and how fast each broker is unless something else is said."""
    from trimtab.kafka.snapshot import is_internal
    from trimtab.model.codec import read_snapshot
    from trimtab.plan.records.leaders import LeaderSnapshot
    from trimtab.simulate.brokers import TOPIC
    from trimtab.simulate.yardsticks import TOPOLOGIES

    if topology is None:
        count = _BROKERS if brokers is None else brokers
        even = LeaderSnapshot({TOPIC: {n: n + 1 for n in range(count)}})
        return even, dict.fromkeys(range(1, count + 1), 1.0)
    if brokers is not None:
        raise ConfigError(
            "--brokers and --topology both say which brokers there are.", hint="Give one of them."
        )
    if topology in TOPOLOGIES:
        built_in = LeaderSnapshot(TOPOLOGIES[topology])
        return built_in, dict.fromkeys(sorted(built_in.leading), 1.0)
    if not Path(topology).exists():
        raise ConfigError(
            f"There is no file {topology}, and no such topology.",
            hint=f"Topologies that need no file: {', '.join(TOPOLOGIES)}.",
        )
    snapshot, warnings = read_snapshot(Path(topology))
    warn(warnings)
    led: dict[str, dict[int, int]] = {}
    prefix = load_settings().topic_prefix
    for p in snapshot.partitions:
        if not is_internal(p.topic, own_prefix=prefix):
            led.setdefault(p.topic, {})[p.partition] = p.leader
    offline = sorted(topic for topic, leaders in led.items() if max(leaders.values()) < 0)
    warn([f"topic {topic} has no leader and is left out" for topic in offline])
    online = {topic: leaders for topic, leaders in led.items() if topic not in offline}
    if not online:
        raise ConfigError(f"Nobody leads anything in {topology}.")
    capacities = {b.id: 1.0 if b.capacity is None else b.capacity for b in snapshot.brokers}
    return LeaderSnapshot(online), {int(broker): value for broker, value in capacities.items()}


def _world(
    leaders: LeaderSnapshot,
    speeds: Mapping[int, float],
    utilisation: float,
    arrivals: int,
    *,
    service: str,
    rates: Mapping[str, float],
    foreign: Mapping[str, float],
    slow: Sequence[str],
) -> World:
    from trimtab.simulate.brokers import Service, World

    if service not in tuple(Service):
        raise ConfigError(f"--service takes {' or '.join(Service)}, not {service!r}.")
    length = arrivals / (utilisation * sum(speeds.values()))
    try:
        world = World(
            leaders=((0.0, leaders),),
            speeds=speeds,
            rates=rates,
            foreign={int(broker): part for broker, part in foreign.items()},
            changes=tuple(c for text in slow for c in _changes(text, speeds, length)),
            service=Service(service),
        )
        world.own_rate(utilisation)
        len(world.paces)
    except ValueError as error:
        raise ConfigError(f"That cannot be simulated: {error}.") from error
    return world


def _changes(text: str, speeds: Mapping[int, float], length: float) -> list[SpeedChange]:
    """Reads `BROKER:SPEED:FROM:TO`."""
    from trimtab.simulate.brokers import SpeedChange

    given = text.split(":")
    try:
        broker, speed, start, end = int(given[0]), *(number(part) for part in given[1:])
    except (ValueError, typer.BadParameter):
        broker, speed, start, end = -1, 0.0, 0.0, 0.0
    if broker not in speeds or not (speed >= 0 and 0 < start < end <= 1):
        raise ConfigError(
            f"--slow takes BROKER:SPEED:FROM:TO such as {next(iter(speeds))}:0.3:0.4:0.6, "
            f"not {text!r}.",
            hint=f"Brokers are {_few(map(str, speeds))}; FROM and TO are parts of the run.",
        )
    return [
        SpeedChange(broker=broker, at=start * length, speed=speed),
        SpeedChange(broker=broker, at=end * length, speed=speeds[broker]),
    ]


def _utilisations(text: str) -> list[float]:
    parts = [_number(part, "--utilisation") for part in _listed(text, "--utilisation")]
    for part in parts:
        if part >= 1:
            raise ConfigError(
                f"Brokers that are {part:.0%} busy never get done: --utilisation is below 1.",
                hint="Give parts of 1, such as 0.5,0.7,0.9.",
            )
        if not part > 0:
            raise ConfigError("--utilisation is above 0: else nothing arrives.")
    return parts


def _speeds(text: str | None, capacities: dict[int, float]) -> dict[int, float]:
    if text is None:
        return capacities
    given = [_number(part, "--speeds") for part in text.split(",")]
    if len(given) != len(capacities) or min(given) <= 0:
        raise ConfigError(
            f"--speeds takes a number above 0 for each of {len(capacities)} brokers, not {text!r}."
        )
    return dict(zip(sorted(capacities), given, strict=True))


def _named(given: Sequence[str], option: str, form: str, names: Iterable[str]) -> dict[str, float]:
    """Reads `NAME:X`."""
    known = list(names)
    found = {}
    for text in given:
        name, colon, part = text.rpartition(":")
        if not colon or name not in known:
            raise ConfigError(
                f"{option} takes {form}, not {text!r}.", hint=f"There are {_few(known)}."
            )
        found[name] = _number(part, option)
    return found


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:10]) + (" …" if len(listed) > 10 else "")


def _listed(text: str, option: str) -> list[str]:
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise ConfigError(f"{option} needs at least one.")
    return parts


def _whole(text: str, option: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"{option} takes whole numbers from 1 up, not {text!r}.")
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        return number(text)
    except typer.BadParameter as error:
        raise ConfigError(f"{option} takes numbers, not {text.strip()!r}.") from error
