"""The findings of an audit, each with a level.

Promise  An *error* means partitions that cannot be written to now. A *warning* should be fixed: one
         failure would cause an outage, a broker has too much load or is down, leaders could be
         spread more evenly. A *note* may be acceptable: overlaps, idle brokers, unevenness that
         only another number of partitions would change. Where rates were measured, brokers, and
         topics of known rate, are judged by rates only. At most one finding per kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trimtab.audit.finding import Finding, counted, in_words, named, some
from trimtab.audit.load_findings import (
    down_brokers,
    judged_by_count,
    leaders,
    peak,
    peak_after_failure,
    rates_known,
    single_failures,
    uneven,
    uneven_after_failure,
    unmeasured,
)
from trimtab.audit.topology import SERVER, Audit
from trimtab.audit.unevenness import Level

LARGE_DRIFT = 0.1
"""Above this share Kafka's automatic leader rebalancing, if enabled, moves leaders back."""


def findings(audit: Audit) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [one for rule in _RULES for one in rule(audit)]
    return tuple(sorted(found, key=lambda one: -one.level.rank))


def at_least(found: Sequence[Finding], level: Level) -> tuple[Finding, ...]:
    """The findings of this level or a worse one."""
    return tuple(one for one in found if one.level.rank >= level.rank)


def _nothing(audit: Audit) -> Iterator[Finding]:
    """A cluster without partitions must not be reported as clean."""
    if audit.brokers and not audit.partitions:
        yield Finding(
            level=Level.WARNING,
            kind="no_partitions",
            count=len(audit.brokers),
            text=f"{counted(len(audit.brokers), 'broker')} and no partitions to audit: the cluster "
            "has only internal topics, or these credentials may not describe its topics",
        )


def _offline(audit: Audit) -> Iterator[Finding]:
    names = audit.offline_partitions
    if names:
        topics = audit.offline_topics
        whole = f", including all partitions of {counted(len(topics), 'topic')}" if topics else ""
        yield Finding(
            level=Level.ERROR,
            kind="offline",
            count=len(names),
            text=f"{counted(len(names), 'partition')} without a leader{whole}: {some(names)}",
        )


def _unwritable(audit: Audit) -> Iterator[Finding]:
    if audit.below_min_insync:
        yield Finding(
            level=Level.ERROR,
            kind="below_min_insync",
            count=audit.below_min_insync,
            text=f"{counted(audit.below_min_insync, 'partition')} with fewer replicas in sync than "
            "min.insync.replicas: acks=all is refused",
        )


def _down(audit: Audit) -> Iterator[Finding]:
    down = down_brokers(audit)
    if down:
        late = (
            f"; still listed as the leader of {counted(audit.led_by_down, 'partition')}, audited "
            "as if new leaders were elected"
        )
        yield Finding(
            level=Level.WARNING,
            kind="down",
            count=len(down),
            text=f"{in_words(down)} {'are' if len(down) > 1 else 'is'} down"
            f"{late if audit.led_by_down else ''}",
        )


def _silent(audit: Audit) -> Iterator[Finding]:
    silent = [broker for broker in audit.silent if broker not in audit.options.down]
    if silent:
        yield Finding(
            level=Level.WARNING,
            kind="silent_brokers",
            count=len(silent),
            text=f"no replica on {in_words(silent)} is in sync: the broker is down or disconnected",
        )


def _behind(audit: Audit) -> Iterator[Finding]:
    if audit.under_replicated:
        yield Finding(
            level=Level.WARNING,
            kind="under_replicated",
            count=audit.under_replicated,
            text=f"{counted(audit.under_replicated, 'partition')} with a replica out of sync",
        )


def _single_failures(audit: Audit) -> Iterator[Finding]:
    alone = single_failures(audit)
    outages = [f for f in alone if f.offline_partitions]
    if outages:
        worst = max(outages, key=lambda f: f.offline_partitions)
        yield Finding(
            level=Level.WARNING,
            kind="one_failure_offline",
            count=len(outages),
            text=f"{counted(len(outages), 'failure')} of a broker or domain would take partitions "
            f"offline; worst: {named(worst)}, {counted(worst.offline_partitions, 'partition')}",
        )
    blocked = [f for f in alone if f.below_min_insync]
    if blocked:
        worst = max(blocked, key=lambda f: f.below_min_insync)
        yield Finding(
            level=Level.WARNING,
            kind="one_failure_below_min_insync",
            count=len(blocked),
            text=f"{counted(len(blocked), 'failure')} of a broker or domain would make partitions "
            f"refuse acks=all; worst: {named(worst)}, "
            f"{counted(worst.below_min_insync, 'partition')}",
        )


def _several_failures(audit: Audit) -> Iterator[Finding]:
    outages = [f for f in audit.faults if len(f.dead) > 1 and not f.what and f.offline_partitions]
    if outages:
        worst = max(outages, key=lambda f: f.offline_partitions)
        yield Finding(
            level=Level.NOTE,
            kind="several_failures_offline",
            count=len(outages),
            text=f"{counted(len(outages), 'failure')} of several brokers at once would take "
            f"partitions offline; worst: {named(worst)}, "
            f"{counted(worst.offline_partitions, 'partition')}",
        )


def _stacked(audit: Audit) -> Iterator[Finding]:
    judged = judged_by_count(audit)
    stacked = [topic for topic in audit.stacked if topic in judged]
    if stacked:
        yield Finding(
            level=Level.WARNING,
            kind="stacked",
            count=len(stacked),
            text=f"{counted(len(stacked), 'topic')} with several partitions on a broker, "
            f"although other brokers lead none of them: {some(stacked)}",
        )


def _drift(audit: Audit) -> Iterator[Finding]:
    drift = audit.drift
    up = (broker for broker in drift.by_broker if broker not in audit.options.down)
    away = [broker for broker in up if drift.share_of(broker) > LARGE_DRIFT]
    if drift.away:
        where = f", above {LARGE_DRIFT:.0%} on {in_words(away)}" if away else ""
        yield Finding(
            level=Level.WARNING if away else Level.NOTE,
            kind="drift",
            count=drift.away,
            text=f"{counted(drift.away, 'partition')} ({drift.share:.0%}) not led by the preferred "
            f"replica{where}",
            advice=f"kafka-leader-election.sh --bootstrap-server {SERVER} "
            "--election-type preferred --all-topic-partitions moves them back if the preferred "
            "replica is in sync",
        )


def _idle(audit: Audit) -> Iterator[Finding]:
    if audit.idle and audit.partitions:
        yield Finding(
            level=Level.NOTE,
            kind="idle",
            count=len(audit.idle),
            text=f"{in_words(audit.idle)} {'lead' if len(audit.idle) > 1 else 'leads'} "
            "no partition",
        )


def _overlaps(audit: Audit) -> Iterator[Finding]:
    if audit.pairs_total and not rates_known(audit):
        yield Finding(
            level=Level.NOTE,
            kind="overlaps",
            count=audit.pairs_total,
            text=f"{counted(audit.pairs_total, 'pair')} of groups overlap in part, on "
            f"{counted(len(audit.contested), 'broker')}: balance there depends on the rates",
        )


def _new_overlaps(audit: Audit) -> Iterator[Finding]:
    """Early detection: groups that do not overlap now and would after a failure."""
    crossing = [f for f in single_failures(audit) if f.new_pairs]
    if crossing and not audit.pairs_total and not rates_known(audit):
        worst = max(crossing, key=lambda f: f.new_pairs)
        yield Finding(
            level=Level.NOTE,
            kind="overlap_by_failure",
            count=len(crossing),
            text=f"{counted(len(crossing), 'failure')} of a broker or domain would make topics "
            f"overlap in part that do not now; worst: {named(worst)}, "
            f"{counted(worst.new_pairs, 'pair')}",
        )


def _sampled(audit: Audit) -> Iterator[Finding]:
    if len(audit.faults) < audit.scenarios_of:
        yield Finding(
            level=Level.NOTE,
            kind="sampled",
            count=len(audit.faults),
            text=f"{len(audit.faults):,} of {audit.scenarios_of:,} failures were simulated, "
            f"sampled with seed {audit.options.seed}",
        )


_RULES: tuple[Callable[[Audit], Iterator[Finding]], ...] = (
    *(_nothing, _offline, _unwritable),
    *(_single_failures, _down, _silent, _behind, peak, leaders, peak_after_failure),
    *(unmeasured, uneven, _stacked, _drift),
    *(_several_failures, uneven_after_failure, _overlaps, _new_overlaps, _idle, _sampled),
)
