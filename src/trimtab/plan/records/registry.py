"""The registry of partitioners by name, used by clients, command line and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from trimtab.errors import UnknownPlanner
from trimtab.plan.records.batches import PerBatch
from trimtab.plan.records.default import Default
from trimtab.plan.records.improved import Improved
from trimtab.plan.records.node import NodePartitioner
from trimtab.plan.records.partitioner import Granularity, Partitioner, RoutingOptions
from trimtab.plan.records.peers import Sticky, adaptive, rack_aware, uniform_sticky
from trimtab.plan.records.shortest_queue import ShortestQueue
from trimtab.plan.records.weighted_node import WeightedNode

Make = Callable[[RoutingOptions], Partitioner]
DEFAULTS = RoutingOptions()


def _either(make: Make) -> Make:
    """Per record or per batch, depending on the options."""

    def made(options: RoutingOptions) -> Partitioner:
        chooser = make(options)
        per_batch = options.granularity is Granularity.PER_BATCH
        return PerBatch(chooser, options) if per_batch else chooser

    return made


def _shortest_queue(options: RoutingOptions) -> Partitioner:
    chooser = ShortestQueue(options)
    per_batch = options.granularity is Granularity.PER_BATCH
    return PerBatch(chooser, options, stayed=chooser.stayed) if per_batch else chooser


OURS: Mapping[str, Make] = MappingProxyType(
    {
        "default": _either(Default),
        "improved": _either(Improved),
        "node": _either(NodePartitioner),
        "sqf": _shortest_queue,
        "weighted-node": _either(WeightedNode),
    }
)
PEERS: Mapping[str, Make] = MappingProxyType(
    {
        "sticky": Sticky,
        "uniform-sticky": uniform_sticky,
        "adaptive": adaptive,
        "rack-aware": rack_aware,
    }
)
"""Kafka's own partitioners, which always choose per batch."""

PARTITIONERS: Mapping[str, Make] = MappingProxyType({**OURS, **PEERS})


def partitioner_of(name: str, options: RoutingOptions = DEFAULTS) -> Partitioner:
    """Creates the partitioner of this name."""
    if name not in PARTITIONERS:
        close = get_close_matches(name.lower(), PARTITIONERS, n=1)
        raise UnknownPlanner(
            f'There is no partitioner "{name}"; known are {", ".join(PARTITIONERS)}.',
            hint=f'Did you mean "{close[0]}"?' if close else None,
        )
    return PARTITIONERS[name](options)
