"""Findings about load: brokers that lead or carry too much, now and after a failure."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.audit.faults import Fault
from trimtab.audit.finding import Finding, counted, in_words, named, some
from trimtab.audit.known_loads import ROUNDING, Basis, CarriedLoads, carried, equal_weights
from trimtab.audit.leader_moves import MOST_MOVES, peak_after
from trimtab.audit.loads import ratio
from trimtab.audit.topology import Audit
from trimtab.audit.unevenness import Level

SMALL_PART = 0.1
"""Topics with a smaller share of the load may become uneven: in large clusters some always do."""
_BASES = {Basis.BYTES: "the bytes they lead", Basis.LEADERS: "the partitions they lead"}


def down_brokers(audit: Audit) -> list[int]:
    """Brokers of the cluster that are down."""
    return sorted(audit.options.down.intersection(audit.brokers))


def peak(audit: Audit) -> Iterator[Finding]:
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
    elif _above(load.excess, audit.options.wanted_peak) and (down := down_brokers(audit)):
        said.append(
            f"leaders cannot be moved while {in_words(down)} {'are' if len(down) > 1 else 'is'} "
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


def leaders(audit: Audit) -> Iterator[Finding]:
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


def _leaders_level(load: CarriedLoads, audit: Audit) -> Level | None:
    """A warning needs at least two partitions above the best spread; one may be chance."""
    wanted = audit.options.wanted_leaders
    if not _above(load.excess, min(audit.options.wanted_peak, wanted)):
        return None
    more = load.peak - load.bound
    partition = sum(load.by_broker.values()) / load.online
    far = more >= 2 * partition * (1 - ROUNDING)
    return Level.WARNING if far and _above(load.excess, wanted) else Level.NOTE


def peak_after_failure(audit: Audit) -> Iterator[Finding]:
    """One failure that overloads a broker more than it is now."""
    how, now, alone = audit.options, audit.carried, single_failures(audit)
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


def uneven_after_failure(audit: Audit) -> Iterator[Finding]:
    """One failure that makes more topics uneven."""
    bad = [f for f in single_failures(audit) if f.skewed_share > SMALL_PART]
    if bad and not rates_known(audit):
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


def unmeasured(audit: Audit) -> Iterator[Finding]:
    """Partitions or topics whose rates are not known."""
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


def rates_known(audit: Audit) -> bool:
    """Whether enough rates are known to judge by the loads of brokers."""
    return audit.carried.basis is Basis.RATES and not _thin(audit)


def judged_by_count(audit: Audit) -> frozenset[str]:
    """The topics of unknown rate, which are judged by partitions led per broker."""
    if audit.carried.basis is Basis.RATES:
        return frozenset(audit.loads.unmeasured)
    return frozenset(audit.topics)


def uneven(audit: Audit) -> Iterator[Finding]:
    """Topics whose leaders are not spread evenly."""
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


def single_failures(audit: Audit) -> list[Fault]:
    """The failures of one broker or of one domain."""
    return [fault for fault in audit.faults if len(fault.dead) == 1 or fault.what]


def _above(value: float, wanted: float) -> bool:
    return value > wanted * (1 + ROUNDING)
