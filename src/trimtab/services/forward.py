"""Forwards the records of topics to other topics, with one partitioner for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.plan.records.registry import partitioner_of
from trimtab.services.progress import NO_LISTENER, ProgressListener
from trimtab.services.stopping import stopped_after

if TYPE_CHECKING:
    from trimtab.apply.records.kafka.forward_route import ForwardReport, Route, Survey
    from trimtab.kafka.cluster import Cluster


def survey_route(route: Route, source: Cluster, target: Cluster) -> Survey:
    """What would be forwarded, and where to; raises for a route that cannot work."""
    from trimtab.apply.records.kafka.forward_route import survey

    partitioner_of(route.partitioner, route.options)  # rejects an unknown partitioner first
    with source.admin() as here, target.admin() as there:
        return survey(route, here, there)


def forward_records(
    surveyed: Survey,
    source: Cluster,
    target: Cluster,
    *,
    stop: threading.Event,
    for_s: float | None = None,
    on_failure: Callable[[ForwardReport], None] = lambda _: None,
    listener: ProgressListener = NO_LISTENER,
) -> ForwardReport:
    """Forwards until `stop` is set, `for_s` seconds have passed, or the route is at its end.

    On failure, `on_failure` is called with what was forwarded until then.
    """
    from trimtab.apply.records.kafka.forwarder import open_forwarder

    with stopped_after(stop, for_s), open_forwarder(surveyed, source, target) as forwarder:
        listener.started(f"Forwarding as group {surveyed.route.group}")
        try:
            return forwarder.run(stop)
        except BaseException:
            on_failure(forwarder.report)
            raise


def paired(read: Sequence[str], write: Sequence[str]) -> dict[str, str]:
    """The target of each source topic.

    >>> paired(["a", "b"], ["x", "y"]), paired(["a", "b"], ["x"]), paired(["a"], [])
    ({'a': 'x', 'b': 'y'}, {'a': 'x', 'b': 'x'}, {'a': 'a'})
    """
    if len(set(read)) != len(read):
        raise ConfigError("The same --from-topic was given twice.")
    targets = list(write) or list(read)
    if len(targets) == 1:
        targets = targets * len(read)
    if len(targets) != len(read):
        raise ConfigError(
            f"{len(read)} --from-topic but {len(targets)} --to-topic were given.",
            hint="Give one --to-topic for all, or one for each --from-topic, in order.",
        )
    return dict(zip(read, targets, strict=True))
