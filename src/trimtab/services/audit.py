"""Audits the placement of leaders and replicas, and simulates broker failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition
from trimtab.model.codec import read_rates, read_snapshot
from trimtab.model.load import Measurement, Unit
from trimtab.observe.clock import wall_clock_us
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.audit.loads import TopicLoad
    from trimtab.audit.topology import Audit, AuditOptions
    from trimtab.kafka.cluster import Cluster

_MAX_AGE_S = 900.0
_QUIET = {Unit.BYTES_S: 10_000.0, Unit.RECORDS_S: 10.0}
"""If no broker's measured load exceeds this, no broker is reported as overloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsFile:
    """A file with rates of partitions, and how it is read."""

    path: Path
    unit: Unit | None = None
    step: int | None = None
    allow_incomplete: bool = False
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit: a live cluster or a snapshot file, which topics, with which rates.

    `options` are those that do not depend on the cluster; `domains` are brokers that fail
    together, each as `1,2,3`.
    """

    source: Cluster | Path
    options: AuditOptions
    topics: frozenset[str] = frozenset()
    internal: bool = False
    own_prefix: str = "trimtab."
    min_insync: int | None = None
    loads: LoadsFile | None = None
    domains: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    """The cluster, its brokers that are down, min.insync.replicas by topic, and its address."""

    taken: ClusterSnapshot
    down: frozenset[BrokerId]
    min_insync: dict[str, int] = field(default_factory=dict)
    server: str | None = None


def audit_cluster(
    request: AuditRequest,
    *,
    clock: Callable[[], int] = wall_clock_us,
    listener: ProgressListener = NO_LISTENER,
) -> Audit:
    """Runs the audit; the listener receives warnings about the files."""
    from trimtab.audit.topology import SERVER, audit

    if isinstance(request.source, Path):
        placed = _of_file(request, request.source, listener)
    else:
        placed = _of_cluster(request, request.source, clock)
    rates: TopicLoad | None = None
    quiet = 0.0
    if request.loads is not None:
        rates, quiet = _rates(request.loads, placed.taken, now_ts=clock(), listener=listener)
        _warn_of_unknown_partitions(request, request.loads.path, rates, placed.taken, listener)
    options = replace(
        request.options,
        internal=request.internal or bool(request.topics),
        domains=dict(_domain(given, placed.taken) for given in request.domains),
        min_insync=placed.min_insync,
        down=placed.down,
        server=placed.server or SERVER,
        quiet=quiet,
    )
    return audit(
        placed.taken,
        rates,
        options,
        progress=lambda done, total: listener.progress("failures", done, total),
    )


def _of_file(request: AuditRequest, path: Path, listener: ProgressListener) -> _Placement:
    """The cluster of a snapshot file; brokers that seem to be down are taken as down."""
    from trimtab.audit.finding import some
    from trimtab.audit.unevenness import down_brokers
    from trimtab.kafka.snapshot import internal_topics

    taken, warnings = read_snapshot(path)
    for line in warnings:
        listener.warning(line)
    for name in sorted(request.topics - set(taken.topics)):
        raise ConfigError(f'{path} has no topic "{name}".')
    down = down_brokers(taken)
    guessed = sorted(b.id for b in taken.brokers if b.id in down and b.alive is None)
    if guessed:
        listener.note(
            f"Brokers taken as down because none of their replicas is in sync: {some(guessed)}"
        )
    if request.topics or not request.internal:
        own = internal_topics(taken.topics, own_prefix=request.own_prefix)
        kept = request.topics or frozenset(taken.topics) - own
        taken = replace(taken, partitions=taken.of_topics(kept))
    needs = dict.fromkeys(taken.topics, request.min_insync or 1)
    return _Placement(taken=taken, down=down, min_insync=needs)


def _of_cluster(request: AuditRequest, cluster: Cluster, clock: Callable[[], int]) -> _Placement:
    """The live cluster."""
    from trimtab.kafka.snapshot import take_placement

    with cluster.admin() as admin:
        taken, down = take_placement(
            admin,
            topics=request.topics or None,
            internal=request.internal,
            clock=clock,
            own_prefix=request.own_prefix,
        )
        for name in sorted(request.topics - set(taken.topics)):
            raise ConfigError(f'The cluster has no topic "{name}".')
        if request.min_insync is None:
            needs = admin.min_insync(taken.topics) if taken.topics else {}
        else:
            needs = dict.fromkeys(taken.topics, request.min_insync)
    return _Placement(taken=taken, down=down, min_insync=needs, server=cluster.servers)


def _rates(
    file: LoadsFile, taken: ClusterSnapshot, *, now_ts: int, listener: ProgressListener
) -> tuple[TopicLoad, float]:
    """The rates, and the broker load below which they are too small to act on.

    That limit applies to measurements only: a file written by hand may use any unit.
    """
    from trimtab.audit.loads import topic_rates
    from trimtab.plan.consumers.situation import step_of

    path = file.path
    given, warnings = read_rates(path)
    for line in warnings:
        listener.warning(line)
    left_out: dict[TopicPartition, float] = {}
    quiet = 0.0
    if isinstance(given, Measurement):
        counted = file.unit or Unit.BYTES_S
        quiet = _QUIET[counted]
        _warn_of_mismatch(file, given, taken, now_ts=now_ts, listener=listener)
        sound = tuple(p for p in given.partitions if p.complete or file.allow_incomplete)
        by_partition = replace(given, partitions=sound).loads(counted)
        every = given.loads(counted)
        left_out = {name: load for name, load in every.items() if name not in by_partition}
    else:
        if file.unit not in (None, given.unit):
            raise ConfigError(
                f"The unit of {path} is {given.unit}, not {file.unit}.",
                hint="Leave out --unit, or correct the file.",
            )
        counted = given.unit
        by_partition = dict(step_of(given, file.step, origin=str(path)).loads)
    if not math.isfinite(sum(by_partition.values()) + sum(left_out.values())):
        raise ConfigError(f"{path}: the sum of the loads is too large for a number.")
    if not any(p.name in by_partition for p in taken.partitions):
        listener.note(
            f"{path} has no rate of any audited topic: brokers are judged by what they lead."
        )
    return topic_rates(taken, by_partition, counted, left_out=left_out), quiet


def _warn_of_mismatch(
    file: LoadsFile,
    given: Measurement,
    taken: ClusterSnapshot,
    *,
    now_ts: int,
    listener: ProgressListener,
) -> None:
    """Warns if a measurement may not fit: another cluster, too old, rates with gaps."""
    from trimtab.plan.measurement_age import about_age

    path = file.path
    if file.step is not None:
        raise ConfigError(f"{path} is a measurement, which has no steps.")
    if None not in (given.cluster, taken.cluster) and given.cluster != taken.cluster:
        listener.warning(
            f"{path} was measured on cluster {given.cluster}, but {taken.cluster} is audited"
        )
    max_age_s = _MAX_AGE_S if file.max_age_s is None else file.max_age_s
    for line in about_age(given, now_ts=now_ts, max_age_s=max_age_s):
        listener.warning(line)
    thin = sum(not p.complete for p in given.partitions)
    if thin and not file.allow_incomplete:
        listener.note(
            f"{path}: {thin} of {len(given.partitions)} rates have gaps or too short a span and "
            "are not used; --allow-incomplete uses them."
        )


def _warn_of_unknown_partitions(
    request: AuditRequest,
    path: Path,
    rates: TopicLoad,
    taken: ClusterSnapshot,
    listener: ProgressListener,
) -> None:
    """Warns of measured partitions that the cluster or snapshot does not have."""
    from trimtab.audit.finding import some
    from trimtab.kafka.snapshot import internal_topics

    here, topics = {p.name for p in taken.partitions}, frozenset(taken.topics)
    loads = {**rates.left_out, **rates.by_partition}
    measured = topics | {name.topic for name in loads}
    own = internal_topics(measured, own_prefix=request.own_prefix)
    unknown = [
        name
        for name in sorted(loads.keys() - here)
        if name.topic in topics or not (request.topics or name.topic in own)
    ]
    total = sum(loads.values())
    if unknown and here & loads.keys():
        share = sum(loads[name] for name in unknown) / total if total > 0 else 0.0
        listener.warning(
            f"{path} has rates of {len(unknown)} partitions that the cluster does not have, "
            f"{share:.0%} of its load: {some(unknown)}"
        )


def _domain(given: str, taken: ClusterSnapshot) -> tuple[str, tuple[int, ...]]:
    known = {broker.id for broker in taken.brokers}
    try:
        ids = tuple(int(part) for part in given.split(","))
    except ValueError:
        raise ConfigError(f"--domain takes broker ids such as 1,2,3, not {given}.") from None
    for broker in ids:
        if broker not in known:
            raise ConfigError(f"--domain {given}: the cluster has no broker {broker}.")
    return f"domain {given}", ids
