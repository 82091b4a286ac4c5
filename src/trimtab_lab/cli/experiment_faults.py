"""`trimtab experiment keyed-faults`: faults on keyed consumers while keys migrate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from trimtab.cli.numbers import finite
from trimtab.cli.options import AsJson, GroupMode, Verbose, with_options
from trimtab.cli.output import result, result_json, say
from trimtab.cli.signals import terminable
from trimtab.observe.clock import wall_clock_us
from trimtab.observe.logging import configure
from trimtab.services.consume import ConsumeMode
from trimtab.settings import load_settings
from trimtab_lab.keyed_faults.faults import BrokenVariant


class Manner(StrEnum):
    """How the gateway writes: in transactions, or at once."""

    EXACTLY_ONCE = "exactly-once"
    LOW_LATENCY = "low-latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFaultsOptions:
    """How long the campaign lasts, and what runs."""

    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            metavar="M",
            min=0.1,
            callback=finite,
            help="How long faults are done.",
        ),
    ] = 10.0
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, help="Seed of records, migrations and faults."),
    ] = 0
    mode: GroupMode = ConsumeMode.DIRECTED
    manner: Annotated[Manner, typer.Option("--manner", help="How the scripted gateway writes.")] = (
        Manner.EXACTLY_ONCE
    )
    variant: Annotated[
        BrokenVariant | None,
        typer.Option(
            "--variant",
            help="Break one rule of the protocol in all consumers, to see that this is found.",
        ),
    ] = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def keyed_faults(options: KeyedFaultsOptions) -> None:
    """Kill and freeze keyed consumers and brokers while keys migrate, then audit every key.

    Starts a local cluster, three consumers, and a scripted gateway that moves more than twenty
    keys per second and crashes now and then. Exit code 1 if something was found, or if nothing was
    found with --variant.
    """
    from trimtab.apply.keys.key_route import GatewayMode
    from trimtab.local.cluster import LocalCluster
    from trimtab_lab.keyed_faults.kafka.campaign import CampaignPlan, campaign
    from trimtab_lab.keyed_faults.schedule import ScheduleRules

    configure(verbose=options.verbose)
    settings = load_settings()
    plan = CampaignPlan(
        mode=options.mode,
        manner=GatewayMode(options.manner.value.replace("-", "_")),
        rules=ScheduleRules(seed=options.seed),
        seed=options.seed,
        variant=options.variant,
    )
    folder = settings.home / "experiments" / "keyed-faults" / f"run-{wall_clock_us()}"
    say(f"logs of the consumers: {folder}")
    with (
        terminable(),
        LocalCluster("keyed-faults", home=settings.home, cache=settings.cache, say=say) as brokers,
        campaign(brokers, plan, folder, say=say) as running,
    ):
        running.run(options.minutes)
        verdict = running.finish()
    if options.as_json:
        result_json({"experiment": "keyed-faults", **verdict.node()})
    else:
        for line in verdict.lines():
            result(line)
    if verdict.is_clean is (options.variant is not None):
        raise typer.Exit(1)
