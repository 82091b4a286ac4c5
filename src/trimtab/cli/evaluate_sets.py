"""`trimtab evaluate sets`: audits keys that move between partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.options import (
    AsJson,
    GroupName,
    Output,
    Verbose,
    duration_option,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, show, warn
from trimtab.cli.time_options import MICROS
from trimtab.errors import Findings
from trimtab.evaluate.key_history import SetAudit, set_audit_to
from trimtab.evaluate.key_sets import SetAuditRules
from trimtab.observe.logging import configure
from trimtab.services.evaluate_sets import SetAuditRequest, evaluate_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAuditOptions:
    """What is audited, and how it is judged."""

    topic: Annotated[str, topic_option("The data topic that the group consumes by key.")]
    group: GroupName
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="R",
            help="Leave out findings at receipts of other runs. Default: all runs.",
        ),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="TOPIC",
            help="The topic that sources write. Default: TOPIC.in if it exists, else --topic.",
        ),
    ] = None
    at_rest: Annotated[
        bool,
        typer.Option(
            "--at-rest/--moving",
            help="Whether sources have stopped and all was read: then records not applied and "
            "moves under way are findings. Default: --moving.",
        ),
    ] = False
    clock_skew: Annotated[
        float | None,
        duration_option(
            "--clock-skew",
            help="Largest difference between the consumers' clocks. Default: none.",
        ),
    ] = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def sets(options: SetAuditOptions) -> None:
    """Check that keys of a keyed group kept order and state, wherever they were moved.

    Reads receipts, states, hand-overs, markers, dead letters and the source of the topic, from
    their beginnings, and judges V1 to V6. Records need the header tt-seq, as `trimtab load` writes
    it. Exit code 1 on findings.
    """
    configure(verbose=options.verbose)
    cluster = cluster_of(options.of.settings())
    skew_us = round((options.clock_skew or 0.0) * MICROS)
    request = SetAuditRequest(
        topic=options.topic,
        group=options.group,
        run=options.run,
        source=options.source,
        rules=SetAuditRules(at_rest=options.at_rest, clock_skew_us=skew_us),
    )
    with TerminalProgress() as listener:
        found = evaluate_sets(cluster, request, listener=listener)
    show_set_audit(found, options)


def show_set_audit(found: SetAudit, options: SetAuditOptions) -> None:
    """Prints an audit; raises `Findings` when there are any."""
    from trimtab.report.key_sets import set_audit_view

    show(
        set_audit_to(found, topic=options.topic, group=options.group),
        lambda: set_audit_view(found),
        as_json=options.as_json,
        output=options.output,
    )
    warn(_doubts(found))
    if found.findings:
        raise Findings(
            f"The audit found {len(found.findings)} violations.",
            hint="What each kind means: docs/how-to/audit-keyed-order.md.",
        )


def _doubts(found: SetAudit) -> list[str]:
    """What was not judged."""
    doubts = []
    if not found.chains:
        doubts.append(
            "no receipt has a chain: V2 was not judged (`consume --keyed` without "
            "--handler counts and chains)"
        )
    if found.unnumbered:
        doubts.append(f"{found.unnumbered} receipts without a number (tt-seq) were not judged")
    if not found.complete:
        doubts.append(
            "the beginning of the source or of the receipts is gone: each key was judged from its "
            "first receipt on"
        )
    return doubts
