"""`trimtab consume-status`: how a keyed group is doing, and what its waiting keys wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

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
from trimtab.cli.output import TerminalProgress, show
from trimtab.observe.logging import configure
from trimtab.services.consume_status import ConsumeStatusRequest, consume_status

_FEW_RECORDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatusOptions:
    """Which group and topic, and how long to watch."""

    group: GroupName
    topic: Annotated[str, topic_option("The data topic that the group consumes by key.")]
    watch: Annotated[
        float,
        duration_option(
            "--watch",
            shown="2s",
            zero=True,
            help="If keys wait for a partition that is behind: how long to watch whether its "
            "committed offset moves, which tells a slow reader from none. 0 to not watch.",
        ),
    ] = 2.0
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def consume_status_verb(options: ConsumeStatusOptions) -> None:
    """Show the keys of a keyed group by partition: owned, waiting, parked and under way.

    For groups of `trimtab consume --keyed`. It is read from the topics of states and hand-overs
    and from offsets, so no consumer needs to run.
    """
    from trimtab.report.keyed_status import status_document, status_view

    configure(verbose=options.verbose)
    request = ConsumeStatusRequest(group=options.group, topic=options.topic, watch_s=options.watch)
    with TerminalProgress(least=_FEW_RECORDS) as listener:
        status = consume_status(cluster_of(options.of.settings()), request, listener=listener)
    show(
        status_document(status),
        lambda: status_view(status),
        as_json=options.as_json,
        output=options.output,
    )
