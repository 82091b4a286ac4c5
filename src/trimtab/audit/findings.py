"""The findings of an audit, each with a level.

Promise  An *error* means partitions that cannot be written to now. A *warning* should be fixed: one
         failure would cause an outage, a broker has too much load or is down, leaders could be
         spread more evenly. A *note* may be acceptable: overlaps, idle brokers, unevenness that
         only another number of partitions would change. Where rates were measured, brokers, and
         topics of known rate, are judged by rates only. At most one finding per kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trimtab.audit.faults import Fault
from trimtab.audit.known_loads import ROUNDING, Basis, Carried, carried, equal_weights
from trimtab.audit.leader_moves import MOST_MOVES, peak_after
from trimtab.audit.loads import ratio
from trimtab.audit.topology import SERVER, Audit
from trimtab.audit.unevenness import Level

LARGE_DRIFT = 0.1
"""Above this share Kafka's automatic leader rebalancing, if enabled, moves leaders back."""

SMALL_PART = 0.1
"""Topics with a smaller share of the load may become uneven: in large clusters some always do."""

_NAMED = 5
_BASES = {Basis.BYTES: "the bytes they lead", Basis.LEADERS: "the partitions they lead"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: its level, kind, number of objects concerned, text, and advice to fix it."""

    level: Level
    kind: str
    count: int
    text: str
    advice: str = ""

    def advice_for(self, server: str) -> str:
        """The advice with the address of the cluster in its commands."""
        return self.advice.replace(SERVER, server)


def findings(audit: Audit) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [one for rule in _RULES for one in rule(audit)]
    return tuple(sorted(found, key=lambda one: -one.level.rank))


def at_least(found: Sequence[Finding], level: Level) -> tuple[Finding, ...]:
    """The findings of this level or a worse one."""
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
    down = _down_brokers(audit)
    if down:
        late = (
            f"; still listed as the leader of {counted(audit.led_by_down, 'partition')}, audited "
            "as if new leaders were elected"
        )
        yield Finding(
            level=Level.WARNING,
            kind="down",
            count=len(down),
            text=f"{_brokers(down)} {'are' if len(down) > 1 else 'is'} down"
            f"{late if audit.led_by_down else ''}",
        )


def _down_brokers(audit: Audit) -> list[int]:
    return sorted(audit.options.down.intersection(audit.brokers))


def _silent(audit: Audit) -> Iterator[Finding]:
    silent = [broker for broker in audit.silent if broker not in audit.options.down]
    if silent:
        yield Finding(
            level=Level.WARNING,
            kind="silent_brokers",
            count=len(silent),
            text=f"no replica on {_brokers(silent)} is in sync: the broker is down or disconnected",
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
    alone = _alone(audit)
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


def _peak(audit: Audit) -> Iterator[Finding]:
    """Measured loads: a broker with too much load, for any reason."""
    load, wanted = audit.carried, audit.options.wanted_peak
    if load.basis is not Basis.RATES or not _above(load.peak_to_mean, wanted):
        return
    hot = _above(min(load.hottest_to_mean, load.hottest_to_others), wanted)
    mend = (hot or _above(load.excess, wanted)) and not audit.is_quiet
    yield Finding(
        level=Level.WARNING if mend and not load.thin else Level.NOTE,
        kind="peak",
        count=1,
        text=f"broker {load.broker} has {load.peak_to_mean:.2f} times the mean load of all brokers "
        f"that are up; --wanted-peak is {wanted:g}",
        advice=_advice(audit, hot=hot),
    )


def _advice(audit: Audit, *, hot: bool) -> str:
    """What could reduce the load of the fullest broker."""
    load, said = audit.carried, []
    if audit.is_quiet:
        return (
            f"no broker reaches {audit.options.quiet:,.0f} {load.unit}, which is too little load "
            "to act on: measure again under load"
        )
    if hot:
        said.append(
            f"{load.hottest} alone has {load.hottest_to_mean:.2f} times the mean, and moving its "
            "leader does not change that: spread its keys or add partitions"
        )
    if audit.leader_moves:
        after = ratio(peak_after(load.by_broker, audit.leader_moves), load.mean)
        most = " (the limit per run)" if len(audit.leader_moves) >= MOST_MOVES else ""
        said.append(
            f"{counted(len(audit.leader_moves), 'leader move')} to replicas in sync{most} would "
            f"reduce it to {after:.2f}"
        )
    elif load.thin:
        said.append("measure all partitions before moving leaders")
    elif _above(load.excess, audit.options.wanted_peak) and (down := _down_brokers(audit)):
        said.append(
            f"leaders cannot be moved while {_brokers(down)} {'are' if len(down) > 1 else 'is'} "
            "down: Kafka's tools reject replica lists that contain a broker that is down"
        )
    elif _above(load.excess, audit.options.wanted_peak):
        said.append(
            "no leader can move to a replica in sync on a broker with less load: move replicas "
            "with kafka-reassign-partitions"
        )
    elif not hot:
        said.append("leaders are as even as the number of partitions allows: add partitions")
    if load.basis is Basis.RATES and audit.loads.node.peak_to_mean <= audit.options.wanted_peak:
        said.append(
            "records without a key could be sent to leaders in turn (partitioner node): "
            f"{audit.loads.node.peak_to_mean:.2f}"
        )
    return "; ".join(said)


def _leaders(audit: Audit) -> Iterator[Finding]:
    """Without rates: a broker that leads too much, by log size if known and by number."""
    load = audit.carried
    if load.basis is Basis.RATES and not _thin(audit):
        return
    by_count = carried(audit.layout, equal_weights(audit.layout), down=audit.options.down)
    counts = _leaders_level(by_count, audit)
    if load.basis is Basis.BYTES:
        level = _leaders_level(load, audit)
        if level is not None:
            total = sum(load.by_broker.values())
            yield Finding(
                level=level,
                kind="leaders",
                count=1,
                text=f"broker {load.broker} leads {load.peak / total:.0%} of the stored bytes, "
                f"{load.peak_to_mean:.2f} times the mean; {load.bound_to_mean:.2f} is possible",
                advice=_advice(audit, hot=False),
            )
            return
        counts = counts and Level.NOTE  # uneven by number only; the bytes are even
    if counts is not None:
        yield Finding(
            level=counts,
            kind="leaders",
            count=1,
            text=f"broker {by_count.broker} leads {by_count.peak:.0f} of "
            f"{counted(by_count.online, 'partition')}, {by_count.bound:.0f} would be enough",
            advice=_advice(audit, hot=False) if load.basis is Basis.LEADERS else "",
        )


def _leaders_level(load: Carried, audit: Audit) -> Level | None:
    """A warning needs at least two partitions above the best spread; one may be chance."""
    wanted = audit.options.wanted_leaders
    if not _above(load.excess, min(audit.options.wanted_peak, wanted)):
        return None
    more = load.peak - load.bound
    partition = sum(load.by_broker.values()) / load.online
    far = more >= 2 * partition * (1 - ROUNDING)
    return Level.WARNING if far and _above(load.excess, wanted) else Level.NOTE


def _peak_after_failure(audit: Audit) -> Iterator[Finding]:
    """One failure that overloads a broker more than it is now."""
    how, now, alone = audit.options, audit.carried, _alone(audit)
    bad = [f for f in alone if _above(f.excess, max(how.wanted_after, now.excess))]
    level = Level.WARNING if bad and not now.thin and not audit.is_quiet else Level.NOTE
    bad = bad or [
        f
        for f in alone
        if _above(f.excess, max(how.wanted_peak, now.excess))
        or _above(f.peak_to_mean, max(how.wanted_after, now.peak_to_mean))
    ]
    if bad:
        worst = max(bad, key=lambda f: (f.excess, f.peak_to_mean))
        yield Finding(
            level=level,
            kind="one_failure_peak",
            count=len(bad),
            text=f"{counted(len(bad), 'failure')} of a broker or domain would overload another "
            f"broker; worst: {named(worst)} {'fail' if len(worst.dead) > 1 else 'fails'}, broker "
            f"{worst.peak_broker} then has {worst.peak_to_mean:.2f} times the mean load of the "
            f"remaining brokers; {worst.bound_to_mean:.2f} is possible",
            advice="reorder the replica lists of the partitions it leads "
            "(kafka-reassign-partitions), so that different brokers take over its leaders",
        )


def _uneven_after_failure(audit: Audit) -> Iterator[Finding]:
    bad = [f for f in _alone(audit) if f.skewed_share > SMALL_PART]
    if bad and not _rates_known(audit):
        worst = max(bad, key=lambda f: (f.skewed_share, f.newly_skewed))
        yield Finding(
            level=Level.NOTE,
            kind="one_failure_uneven",
            count=len(bad),
            text=f"{counted(len(bad), 'failure')} of a broker or domain would make more topics "
            f"uneven (fullest leader above {audit.options.wanted_after:g} times the best spread); "
            f"worst: {named(worst)}, {counted(worst.newly_skewed, 'topic')} with "
            f"{worst.skewed_share:.0%} of the load",
        )


def _unmeasured(audit: Audit) -> Iterator[Finding]:
    if audit.rates is None:
        return
    load = audit.carried
    if load.basis is not Basis.RATES and audit.rates.by_topic and load.online:
        yield Finding(
            level=Level.NOTE,
            kind="no_load",
            count=1,
            text=f"all measured rates are 0: brokers are judged by {_BASES[load.basis]}",
        )
    if audit.loads.unmeasured:
        missing = load.unmeasured if load.basis is Basis.RATES else load.online
        part = f" ({len(audit.loads.in_part):,} partly measured)" if audit.loads.in_part else ""
        gaps = f"; {load.left_out_share:.0%} of the load has gaps" if load.left_out else ""
        yield Finding(
            level=Level.WARNING if _thin(audit) else Level.NOTE,
            kind="unmeasured",
            count=len(audit.loads.unmeasured),
            text=f"{counted(len(audit.loads.unmeasured), 'topic')} without a measured rate{part}, "
            f"{missing:,} of {counted(load.online, 'partition')}{gaps}: "
            f"{some(audit.loads.unmeasured)}",
        )


def _thin(audit: Audit) -> bool:
    """Whether too many rates are missing to judge broker loads."""
    load = audit.carried
    if audit.rates is None:
        return False
    if load.basis is not Basis.RATES:
        return not audit.rates.by_topic
    return load.thin


def _rates_known(audit: Audit) -> bool:
    """Whether enough rates are known to judge by the loads of brokers."""
    return audit.carried.basis is Basis.RATES and not _thin(audit)


def judged_by_count(audit: Audit) -> frozenset[str]:
    """The topics of unknown rate, which are judged by partitions led per broker."""
    if audit.carried.basis is Basis.RATES:
        return frozenset(audit.loads.unmeasured)
    return frozenset(audit.topics)


def _uneven(audit: Audit) -> Iterator[Finding]:
    judged = judged_by_count(audit)
    for level, words in (
        (Level.WARNING, "could be more even"),
        (Level.NOTE, "uneven: the number of partitions is not a multiple of the leaders"),
    ):
        topics = [u for u in audit.uneven if u.level is level and u.topic in judged]
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
        where = f", above {LARGE_DRIFT:.0%} on {_brokers(away)}" if away else ""
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
            text=f"{_brokers(audit.idle)} {'lead' if len(audit.idle) > 1 else 'leads'} "
            "no partition",
        )


def _overlaps(audit: Audit) -> Iterator[Finding]:
    if audit.pairs_total and not _rates_known(audit):
        yield Finding(
            level=Level.NOTE,
            kind="overlaps",
            count=audit.pairs_total,
            text=f"{counted(audit.pairs_total, 'pair')} of groups overlap in part, on "
            f"{counted(len(audit.contested), 'broker')}: balance there depends on the rates",
        )


def _new_overlaps(audit: Audit) -> Iterator[Finding]:
    """Early detection: groups that do not overlap now and would after a failure."""
    crossing = [f for f in _alone(audit) if f.new_pairs]
    if crossing and not audit.pairs_total and not _rates_known(audit):
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
    *(_single_failures, _down, _silent, _behind, _peak, _leaders, _peak_after_failure),
    *(_unmeasured, _uneven, _stacked, _drift),
    *(_several_failures, _uneven_after_failure, _overlaps, _new_overlaps, _idle, _sampled),
)


def _alone(audit: Audit) -> list[Fault]:
    """The failures of one broker or of one domain."""
    return [fault for fault in audit.faults if len(fault.dead) == 1 or fault.what]


def _above(value: float, wanted: float) -> bool:
    return value > wanted * (1 + ROUNDING)


def named(fault: Fault) -> str:
    """The brokers of a failure in words.

    >>> from trimtab.audit.topology import audit
    >>> from trimtab.testing.placements import placement
    >>> named(audit(placement({"A": [[1]]})).faults[0])
    'broker 1'
    """
    brokers = _brokers(fault.dead)
    return f"{fault.what} ({brokers})" if fault.what else brokers


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s'[: len(ids) != 1]} {some(ids, 8)}"
