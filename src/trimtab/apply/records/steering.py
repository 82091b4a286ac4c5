"""Steering: computes from observations of each broker which share of keyless records it should get.

Why      Equal shares are right for equal brokers only. If a broker is slow, by itself or by foreign
         load, all records sent to it wait; the aim is equal utilisation, not equal load.
Promise  Weights are in 0 … 1, the largest is 1, equal input gives equal weights, and a broker that
         becomes slower never gets a larger weight. Brokers that differ only by noise have equal
         weights: a broker counts as slow only on evidence. A weight falls at once and rises
         gradually. `SteeringRules` explains the rules and their numbers.
Cost     O(brokers × probes · log) per step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median
from typing import TypeVar

from trimtab.apply.records.probe_log import Probes

_Number = TypeVar("_Number", int, float)

_LEAST = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was observed of one broker over the last seconds.

    Attributes:
        probes: Probes by produce requests that involve only this broker.
        requests_s: Round-trip times of light requests.
        bytes_s: Bytes per second that it receives as leader; None if unknown.
        records_s: Records per second that it receives as leader; None if unknown.
    """

    probes: Probes = field(default_factory=Probes)
    requests_s: tuple[float, ...] = ()
    bytes_s: float | None = None
    records_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringRules:
    """The numbers of the steering policy. Time spans are for ten probes a second.

    Evidence (`floor_s`, 3 ms, is added to every latency, so that a distant broker is not slow):
    *plain*: of the probes of the last 2 s at least five, and a fifth of them, took over twice the
    best broker's 90th percentile of the last 10 s, and less than half as many of the best one's
    did; *faint*: over 10 s its 60th percentile is over 1.4 × the best one's 75th. Light requests
    are further evidence: a median over three times the best one's is that much slowness.

    Weight: the slowness r is the ratio of the 90th percentiles. Up to 2 the weight is 1/r, which
    gives equal utilisation if the broker lacks capacity. Beyond, it falls with the fourth power of
    r: 0.1 at 3, 0.03 at 4, 0 from 11 on. A broker that is silent for 1 s (or 8 × the best 90th
    percentile) gets 0.

    Recovery: 0.25 per second, once there is no evidence and at most one late probe in the last 4 s.
    A broker with mostly late probes that recovers within 8 s without load, and is slow again within
    12 s with load, was slow because of that load: from the second time on its weight is kept below
    0.7 of the weight from which it fell, first for 20 s, then longer each time.

    The best broker is the slowest of the best quarter of those with their share of the load, so
    that a single lucky broker does not set the standard. Brokers with less than a tenth of the
    median load are excluded, since idle brokers are fast; loads below 50 records/s do not count.
    Loads are not judged, since the capacity of a broker is unknown; they are part of the reason.
    """

    floor_s: float = 0.003
    lately_s: float = 2.0
    late: float = 2.0
    least_late: int = 5
    share_late: float = 0.2
    share_queued: float = 0.6
    calm_s: float = 4.0
    long_s: float = 10.0
    faint: float = 1.4
    faint_over: float = 1.15
    asked: float = 3.0
    mild: float = 2.0
    fall: float = 4.0
    carries: float = 0.1
    matters: float = 50.0
    silent_after_s: float = 1.0
    silent_for: float = 8.0
    least_probes: int = 20
    least_faint: int = 40
    least_requests: int = 5
    rise_per_s: float = 0.25
    quick_s: float = 8.0
    soon_s: float = 12.0
    kept_below: float = 0.7
    hold_s: float = 20.0
    longest_hold_s: float = 80.0

    @classmethod
    def paced(cls, pace_s: float) -> SteeringRules:
        """The rules for another time between two probes: evidence needs the same number of them."""
        times = pace_s / 0.1
        return cls(
            lately_s=cls().lately_s * times,
            calm_s=cls().calm_s * times,
            long_s=cls().long_s * times,
            silent_after_s=max(cls().silent_after_s, 3 * pace_s),
            quick_s=cls().quick_s * max(1.0, times),
            soon_s=cls().soon_s * max(1.0, times),
        )


class WeightReason(StrEnum):
    """The reason for a broker's weight."""

    WELL = "well"
    SLOW = "slow"
    SILENT = "silent"
    RECOVERING = "recovering"
    HELD = "held"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVerdict:
    """A broker's weight and its reason: `slowness` is r, `latency_s` its 90th percentile."""

    weight: float
    why: WeightReason
    reason: str
    slowness: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredBroker:
    """The state of one broker between steps."""

    weight: float = 1.0
    slow_since: float | None = None
    fell_from: float = 1.0
    queued_up: bool = False
    relapses: int = 0
    ceiling: float = 1.0
    held_until: float = float("-inf")
    well_since: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringState:
    """The state of steering: that of each broker, and the time of the last step."""

    now_s: float | None = None
    standings: Mapping[int, SteeredBroker] = field(default_factory=dict)


def step(
    before: SteeringState,
    seen: Mapping[int, Observation],
    now_s: float,
    rules: SteeringRules = SteeringRules(),  # noqa: B008 - frozen
) -> tuple[SteeringState, dict[int, BrokerVerdict]]:
    """The next state, and a verdict for each observed broker.

    `now_s` must not decrease. Brokers that are not in `seen` are forgotten.
    """
    passed_s = 0.0 if before.now_s is None else max(0.0, now_s - before.now_s)
    known = {broker: before.standings.get(broker, SteeredBroker()) for broker in sorted(seen)}
    loaded = _loaded(seen, rules)
    well = {broker for broker, standing in known.items() if standing.slow_since is None}
    comparisons = _comparisons(seen, (loaded & well, loaded), rules)
    if all(
        comparison.silent for comparison in comparisons.values()
    ):  # the fault is probably on our side
        reason = "no broker answers: all weights are equal"
        return SteeringState(now_s=now_s, standings=known), {
            broker: BrokerVerdict(weight=1.0, why=WeightReason.UNKNOWN, reason=reason)
            for broker in known
        }
    after = {b: _next_standing(known[b], comparisons[b], now_s, passed_s, rules) for b in known}
    most = max(standing.weight for standing in after.values())
    return SteeringState(now_s=now_s, standings=after), {
        broker: _verdict(
            standing,
            # Scaled so that the largest is 1: only ratios matter.
            weight=_rounded(standing.weight / most) if most > 0 else 1.0,
            seen=seen[broker],
            comparison=comparisons[broker],
            now_s=now_s,
            rules=rules,
        )
        for broker, standing in after.items()
    }


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail:
    """Quantiles of one broker's latencies, in seconds, with the floor added."""

    lately: float | None
    """The 90th percentile of the recent waits of records."""
    p60: float
    p75: float
    p90: float
    asked: float | None
    """The median of its light requests."""
    probes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """One broker compared with the best: whether it is evidently slow or evidently not, and r."""

    silent: bool = False
    known: bool = False
    is_slow: bool = False
    is_well: bool = False
    queues_up: bool = False
    """Most of its probes are late: they wait in a queue."""
    slowness: float = 1.0


def _comparisons(
    seen: Mapping[int, Observation], carrying: Sequence[Collection[int]], rules: SteeringRules
) -> dict[int, _Comparison]:
    """Compares each broker with the best of those that have load.

    `carrying` are sets of brokers with load in order of preference; the first usable one sets the
    standard. Brokers without load are fast, so they are no standard for the others.
    """
    tails = {broker: _tail(seen[broker], rules) for broker in sorted(seen)}
    measure: dict[int, _Tail] = {}
    for those in (*carrying, tails):
        measure = measure or {b: t for b, t in tails.items() if t is not None and b in those}
    if not measure:
        return {
            b: _Comparison(silent=seen[b].probes.silent_s >= rules.silent_after_s) for b in tails
        }
    best = _best(list(measure.values()))
    bar = rules.late * best.p90
    late = {b: _late(seen[b], bar, rules.lately_s, rules) for b in tails}
    late_calm = {b: _late(seen[b], bar, rules.calm_s, rules) for b in tails}
    least = _low([late[b] for b in measure])
    least_calm = _low([late_calm[b] for b in measure])
    # If all brokers are slow, one second without an answer is normal.
    patience_s = max(rules.silent_after_s, rules.silent_for * best.p90)
    comparisons = {}
    for broker, tail in tails.items():
        silent = seen[broker].probes.silent_s >= patience_s
        if tail is None:
            comparisons[broker] = _Comparison(silent=silent)
            continue
        lately = seen[broker].probes.latencies(rules.lately_s)
        enough = max(rules.least_late, rules.share_late * len(lately)) + 2 * least
        plainly = late[broker] >= enough
        faint = tail.p60 / best.p75 if min(tail.probes, best.probes) >= rules.least_faint else 1.0
        calm = faint < rules.faint_over and late_calm[broker] <= 1 + 2 * least_calm
        slowness = tail.p90 / best.p90
        if plainly and tail.lately is not None and best.lately is not None:
            slowness = max(slowness, tail.lately / best.lately)
        asked = tail.asked / best.asked if tail.asked and best.asked else 1.0
        if asked > rules.asked:
            slowness = max(slowness, asked)
        comparisons[broker] = _Comparison(
            silent=silent,
            known=True,
            is_slow=plainly or faint > rules.faint or asked > rules.asked,
            is_well=calm and not plainly and asked <= rules.asked,
            queues_up=plainly
            and bool(lately)
            and _quantile(lately, 1 - rules.share_queued) + rules.floor_s > bar,
            slowness=max(1.0, slowness),
        )
    return comparisons


def _loaded(seen: Mapping[int, Observation], rules: SteeringRules) -> set[int]:
    """The brokers that receive records; all if that is unknown or the load is very small."""
    counts = {b: one.records_s for b, one in seen.items() if one.records_s is not None}
    usual = median([count for count in counts.values() if count > 0] or [0.0])
    if usual < rules.matters:
        return set(seen)
    return {broker for broker, count in counts.items() if count >= rules.carries * usual}


def _tail(seen: Observation, rules: SteeringRules) -> _Tail | None:
    latencies = seen.probes.latencies(rules.long_s)
    if len(latencies) < rules.least_probes:
        return None
    asked = sorted(seen.requests_s)
    waits = sorted(seen.probes.waits(rules.lately_s))
    return _Tail(
        lately=_quantile(waits, 0.9) + rules.floor_s if waits else None,
        p60=_quantile(latencies, 0.6) + rules.floor_s,
        p75=_quantile(latencies, 0.75) + rules.floor_s,
        p90=_quantile(latencies, 0.9) + rules.floor_s,
        asked=_quantile(asked, 0.5) + rules.floor_s if len(asked) >= rules.least_requests else None,
        probes=len(latencies),
    )


def _late(seen: Observation, bar_s: float, within_s: float, rules: SteeringRules) -> int:
    """How many probes took longer than the limit; those over four times the limit count twice."""
    return sum(
        1 + (latency_s + rules.floor_s > 4 * bar_s)
        for latency_s in seen.probes.latencies(within_s)
        if latency_s + rules.floor_s > bar_s
    )


def _best(tails: Sequence[_Tail]) -> _Tail:
    """The slowest of the best quarter, for each quantile separately."""
    lately = [tail.lately for tail in tails if tail.lately is not None]
    asked = [tail.asked for tail in tails if tail.asked is not None]
    return _Tail(
        lately=_low(lately) if lately else None,
        asked=_low(asked) if asked else None,
        p60=_low([tail.p60 for tail in tails]),
        p75=_low([tail.p75 for tail in tails]),
        p90=_low([tail.p90 for tail in tails]),
        probes=min(tail.probes for tail in tails),
    )


def _low(values: Sequence[_Number]) -> _Number:
    return sorted(values)[(len(values) - 1) // 4]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Not `model.quantiles`: one rank higher where `share` of them is a whole number, as tuned."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---------------------------------------------------------------- weights


def target(slowness: float, rules: SteeringRules = SteeringRules()) -> float:  # noqa: B008 - frozen
    """The weight of a broker that is evidently slow.

    >>> [round(target(r), 3) for r in (1.0, 1.6, 2.0, 3.0, 4.0, 50.0)]
    [1.0, 0.625, 0.5, 0.099, 0.031, 0.0]
    """
    if slowness <= rules.mild:
        return 1 / slowness
    return float((rules.mild / slowness) ** rules.fall / rules.mild)


def _rounded(weight: float) -> float:
    """The weight with two decimals, or one digit if it is small, so that noise does not show."""
    if weight < _LEAST:
        return 0.0
    return round(weight, 2) if weight >= 0.1 else float(f"{weight:.1g}")


def _next_standing(
    before: SteeredBroker,
    comparison: _Comparison,
    now_s: float,
    passed_s: float,
    rules: SteeringRules,
) -> SteeredBroker:
    if comparison.silent:
        return replace(_became_slow(before, now_s, rules), weight=0.0, queued_up=True)
    if not comparison.known:
        return before
    if comparison.is_slow or (before.slow_since is not None and not comparison.is_well):
        wanted = min(target(comparison.slowness, rules), before.ceiling)
        weight = min(wanted, before.weight + rules.rise_per_s * passed_s)
        ill = _became_slow(before, now_s, rules)
        return replace(ill, weight=weight, queued_up=ill.queued_up or comparison.queues_up)
    well = before if before.slow_since is None else _recovered(before, now_s, rules)
    return _risen(well, now_s, passed_s, rules)


def _became_slow(before: SteeredBroker, now_s: float, rules: SteeringRules) -> SteeredBroker:
    if before.slow_since is not None:
        return before
    soon = now_s - max(before.well_since, before.held_until) <= rules.soon_s
    relapses = before.relapses if soon else 0
    return replace(
        before, slow_since=now_s, fell_from=before.weight, relapses=relapses, queued_up=False
    )


def _recovered(before: SteeredBroker, now_s: float, rules: SteeringRules) -> SteeredBroker:
    """The state after recovery; a quick recovery suggests that the load made it slow."""
    began = now_s if before.slow_since is None else before.slow_since
    well = replace(before, slow_since=None, well_since=now_s)
    if now_s - began > rules.quick_s:
        return replace(well, relapses=0, ceiling=1.0, held_until=now_s)
    if not before.queued_up or before.weight > before.fell_from / 2:
        return well
    relapses = before.relapses + 1
    if relapses == 1:
        return replace(well, relapses=1)
    hold_s = min(rules.longest_hold_s, rules.hold_s * 2 ** min(relapses - 2, 30))
    ceiling = max(rules.kept_below * before.fell_from, 0.1)
    return replace(well, relapses=relapses, ceiling=ceiling, held_until=now_s + hold_s)


def _risen(
    well: SteeredBroker, now_s: float, passed_s: float, rules: SteeringRules
) -> SteeredBroker:
    ceiling = well.ceiling
    if now_s >= well.held_until:  # raised slowly, until it is slow again or reaches 1
        ceiling = min(1.0, ceiling + 0.1 * rules.rise_per_s * passed_s)
    weight = min(max(ceiling, well.weight), well.weight + rules.rise_per_s * passed_s)
    return replace(well, weight=weight, ceiling=ceiling)


def _verdict(
    standing: SteeredBroker,
    *,
    weight: float,
    seen: Observation,
    comparison: _Comparison,
    now_s: float,
    rules: SteeringRules,
) -> BrokerVerdict:
    lately_s = seen.probes.latencies(rules.lately_s)
    why, reason = WeightReason.WELL, "as good as the best"
    if comparison.silent:
        why, reason = WeightReason.SILENT, f"silent for {seen.probes.silent_s:.1f} s"
    elif not comparison.known:
        why, reason = WeightReason.UNKNOWN, "too few probes so far"
    elif standing.slow_since is not None:
        why = WeightReason.SLOW
        reason = f"{comparison.slowness:.1f} × as slow as the best{_led(seen)}"
    elif standing.weight < min(1.0, standing.ceiling):
        why, reason = WeightReason.RECOVERING, "recovered, weight rising"
    elif standing.ceiling < 1.0:
        left_s = max(0.0, standing.held_until - now_s)
        why = WeightReason.HELD
        reason = f"was slow under load: kept below {standing.ceiling:.2f} for {left_s:.0f} s"
    return BrokerVerdict(
        weight=weight,
        why=why,
        reason=reason,
        slowness=round(comparison.slowness, 2) if comparison.known else None,
        latency_s=_quantile(lately_s, 0.9) if lately_s else None,
    )


def _led(seen: Observation) -> str:
    if seen.bytes_s is not None:
        return f", leads {seen.bytes_s / 1e6:.2f} MB/s"
    return "" if seen.records_s is None else f", takes {seen.records_s:.0f} records/s"
