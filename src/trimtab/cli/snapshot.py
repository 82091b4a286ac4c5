"""`trimtab snapshot`: the current state of the cluster, as tables or as a snapshot file."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.options import AsJson, OnlyTopics, Output, Verbose, with_options
from trimtab.cli.output import show
from trimtab.model.codec import snapshot_to
from trimtab.observe.logging import configure
from trimtab.services.snapshot import current_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Which topics to include, and where to write the result."""

    topic: OnlyTopics = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def snapshot(options: SnapshotOptions) -> None:
    """Show the current brokers, leaders, replicas, log sizes and consumer groups.

    The JSON is a snapshot file, which `trimtab audit` and `trimtab simulate brokers` read.
    """
    from trimtab.report.snapshot import snapshot_view

    configure(verbose=options.verbose)
    cluster = cluster_of(options.of.settings())
    taken = current_snapshot(cluster, topics=options.topic or ())
    show(
        snapshot_to(taken),
        lambda: snapshot_view(taken),
        as_json=options.as_json,
        output=options.output,
    )
