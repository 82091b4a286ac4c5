"""`trimtab snapshot`: the cluster at this moment, as a table or as a snapshot file."""

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
    """What is looked at, and where the result goes."""

    topic: OnlyTopics = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def snapshot(options: SnapshotOptions) -> None:
    """Show brokers, leaders, replicas, log sizes and consumer groups as they are right now.

    The JSON is a snapshot file, which the verbs that look at brokers read.
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
