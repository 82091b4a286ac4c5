"""What an audit found that somebody should know, with how bad it is.

Promise  An *error* is a partition that cannot be written to now. A *warning* is something to mend:
         an outage waiting for one failure, leaders that could be more even, a broker that is away.
         A *note* is worth knowing and may be all right: overlaps, idle brokers, what only another
         number of partitions would change. One finding per kind; a clean cluster has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trimtab.measure.topology.audit import Audit
from trimtab.measure.topology.faults import Fault
from trimtab.measure.topology.unevenness import Level

LARGE_DRIFT = 0.1
"""Above this share Kafka itself moves leaders back, where it may."""

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know: how bad, of what kind, of how many, in words."""

    level: Level
    kind: str
    count: int
    text: str


def findings(audit: Audit) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [one for rule in _RULES for one in rule(audit)]
    return tuple(sorted(found, key=lambda one: -one.level.rank))


def at_least(found: Sequence[Finding], level: Level) -> tuple[Finding, ...]:
    """The findings that are so bad, or worse."""
    return tuple(one for one in found if one.level.rank >= level.rank)


def some(names: Sequence[object], most: int = _NAMED) -> str:
    """The first few names, and how many more there are.

    >>> some([1, 2, 3], 2)
    '1, 2 and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "topic"), counted(1200, "topic")
    ('1 topic', '1,200 topics')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _offline(audit: Audit) -> Iterator[Finding]:
    names = audit.offline_partitions
    if names:
        topics = audit.offline_topics
        whole = f", {counted(len(topics), 'topic')} altogether" if topics else ""
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


def _silent(audit: Audit) -> Iterator[Finding]:
    if audit.silent:
        yield Finding(
            level=Level.WARNING,
            kind="silent_brokers",
            count=len(audit.silent),
            text=f"no replica on {_brokers(audit.silent)} is in sync: down, or cut off",
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
    alone = [f for f in audit.faults if len(f.dead) == 1 or f.what]
    outages = [f for f in alone if f.offline_partitions]
    if outages:
        worst = outages[0]
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
        worst = outages[0]
        yield Finding(
            level=Level.NOTE,
            kind="several_failures_offline",
            count=len(outages),
            text=f"{counted(len(outages), 'failure')} of several brokers at once would take "
            f"partitions offline; worst: {named(worst)}, "
            f"{counted(worst.offline_partitions, 'partition')}",
        )


def _loads(audit: Audit) -> Iterator[Finding]:
    loads, wanted = audit.loads, audit.options.wanted_peak
    if loads.unit is None:
        return
    if loads.default.peak_to_mean > wanted:
        if loads.least.peak_to_mean > wanted:
            can = (
                f"no partitioner gets below {loads.least.peak_to_mean:.2f}: "
                f"{counted(len(loads.least.topics), 'topic')} on "
                f"{_brokers(loads.least.brokers)}; move leaders"
            )
        elif loads.node.peak_to_mean > wanted:
            can = f"dealt to leaders {loads.node.peak_to_mean:.2f}, an SQF shared by all could"
        else:
            can = f"dealt to leaders instead of partitions {loads.node.peak_to_mean:.2f}"
        yield Finding(
            level=Level.WARNING,
            kind="peak",
            count=1,
            text=f"broker {loads.default.broker} takes {loads.default.peak_to_mean:.2f} times the "
            f"mean, {wanted:g} is wanted; {can}",
        )
    if loads.unmeasured:
        part = f" ({len(loads.in_part):,} in part)" if loads.in_part else ""
        yield Finding(
            level=Level.NOTE,
            kind="unmeasured",
            count=len(loads.unmeasured),
            text=f"{counted(len(loads.unmeasured), 'topic')} without a measured rate{part}, left "
            f"out of the loads: {some(loads.unmeasured)}",
        )


def _uneven(audit: Audit) -> Iterator[Finding]:
    for level, words in (
        (Level.WARNING, "could be more even"),
        (Level.NOTE, "not even: leaders do not divide the partitions"),
    ):
        topics = [u for u in audit.uneven if u.level is level]
        if topics:
            worst = sorted(topics, key=lambda u: (-u.peak_to_mean, u.topic))
            yield Finding(
                level=level,
                kind="uneven" if level is Level.WARNING else "indivisible",
                count=len(topics),
                text=f"{counted(len(topics), 'topic')} {words}; worst: "
                f"{some([f'{u.topic} ({float(u.peak_to_mean):.2f})' for u in worst], 3)}",
            )


def _stacked(audit: Audit) -> Iterator[Finding]:
    if audit.stacked:
        yield Finding(
            level=Level.WARNING,
            kind="stacked",
            count=len(audit.stacked),
            text=f"{counted(len(audit.stacked), 'topic')} with several partitions on a broker, "
            f"though others lead none of it: {some(audit.stacked)}",
        )


def _drift(audit: Audit) -> Iterator[Finding]:
    drift = audit.drift
    away = [b for b in drift.by_broker if drift.share_of(b) > LARGE_DRIFT]
    if drift.away:
        where = f", above {LARGE_DRIFT:.0%} on {_brokers(away)}" if away else ""
        yield Finding(
            level=Level.WARNING if away else Level.NOTE,
            kind="drift",
            count=drift.away,
            text=f"{counted(drift.away, 'partition')} ({drift.share:.0%}) not led by the preferred "
            f"replica{where}",
        )


def _idle(audit: Audit) -> Iterator[Finding]:
    if audit.idle and audit.partitions:
        yield Finding(
            level=Level.NOTE,
            kind="idle",
            count=len(audit.idle),
            text=f"{_brokers(audit.idle)} {'lead' if len(audit.idle) > 1 else 'leads'} nothing",
        )


def _overlaps(audit: Audit) -> Iterator[Finding]:
    if audit.pairs_total:
        yield Finding(
            level=Level.NOTE,
            kind="overlaps",
            count=audit.pairs_total,
            text=f"{counted(audit.pairs_total, 'pair')} of groups overlap in part, on "
            f"{counted(len(audit.contested), 'broker')}: there balance depends on the rates",
        )


def _new_overlaps(audit: Audit) -> Iterator[Finding]:
    """Early detection proper: groups that are apart today and would not stay so."""
    crossing = [f for f in audit.faults if f.new_pairs and (len(f.dead) == 1 or f.what)]
    if crossing and not audit.pairs_total:
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
            text=f"{len(audit.faults):,} of {audit.scenarios_of:,} failures were looked at, drawn "
            f"with seed {audit.options.seed}",
        )


_RULES: tuple[Callable[[Audit], Iterator[Finding]], ...] = (
    *(_offline, _unwritable),
    *(_single_failures, _silent, _behind, _loads, _uneven, _stacked, _drift),
    *(_several_failures, _overlaps, _new_overlaps, _idle, _sampled),
)


def named(fault: Fault) -> str:
    """The brokers of a failure in words.

    >>> from trimtab.measure.topology.audit import audit
    >>> from trimtab.testing.placements import placement
    >>> named(audit(placement({"A": [[1]]})).faults[0])
    'broker 1'
    """
    brokers = _brokers(fault.dead)
    return f"{fault.what} ({brokers})" if fault.what else brokers


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s'[: len(ids) != 1]} {some(ids, 8)}"
