"""Steering: from what was seen of each broker to how much of the keyless records it should get.

Why      Equal splits are right for equal brokers only. Where one is slow, by itself or by foreign
         load, every record that goes there waits; the aim is equal utilisation, not equal load.
Promise  Weights lie in 0 … 1, the largest is 1, equal input gives equal weights, and a broker that
         gets slower never weighs more. Brokers that differ by noise alone weigh the same: a broker
         counts as slow only on evidence, which comes in two strengths (with a floor of 3 ms added
         to every latency, so that a broker that is merely far away is not slow):
         plain: of its probes of the last 2 s, five and a fifth of them took over twice the 90th
         percentile that the best broker had in the last 10 s, and the best one's own do so less
         than half as often; faint: over 10 s, its 60th percentile is over 1.4 × the 75th of the
         best one's.
         How slow is the ratio r of the 90th percentiles. Up to twice as slow weighs 1/r: the same
         utilisation, if slowness is lack of capacity. Beyond, latency is what hurts, and the
         weight falls with the fourth power: 0.1 at three times, 0.03 at four, and from eleven
         times on nothing is left. So two brokers that are nearly as slow as each other weigh nearly
         the same, however good a third one is. A broker that says nothing for 1 s (or 8 × that
         90th percentile) weighs 0.
         A fall is at once; a rise is gradual (0.25 per second) and begins when there is no
         evidence, nor more than one such probe in the last 4 s. A broker most of
         whose probes are late, that is well within 8 s when the load leaves it, and is so again
         within 12 s when it is back, was slow by that load: from the second time on it is kept
         below 0.7 of where it fell, at first for 20 s, then for longer each time.
Cost     O(brokers × probes · log) per step.

The best one is the slowest of the best quarter of those that carry their share, so that among
hundreds no lucky one sets the measure, and none is blamed for the load that others were spared:
a broker that was taken off the load, or takes less than a tenth of the records that brokers with
any take in the middle, is quick for that alone. A load of a few records is none.
Light requests are a second witness: a broker whose median is over three times that of the best one
is slow by as much. Bytes and records per second are not judged by themselves, since nobody knows
what a broker could carry; what is known stands in the reason, so that a slow broker under load can
be told from one slow by itself.
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
    """What was seen of one broker over the last seconds.

    Attributes:
        probes: Of produce requests to it alone.
        requests_s: Round trips of light requests.
        bytes_s: What it takes as a leader, per second; None is unknown.
        records_s: The same in records.
    """

    probes: Probes = field(default_factory=Probes)
    requests_s: tuple[float, ...] = ()
    bytes_s: float | None = None
    records_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringRules:
    """The numbers of the policy; see above. Spans are for ten probes a second."""

    floor_s: float = 0.003
    lately_s: float = 2.0
    late: float = 2.0
    least_late: int = 5
    share_late: float = 0.2
    share_drowned: float = 0.6
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
        """The same rules for another time between two probes: evidence needs as many of them."""
        times = pace_s / 0.1
        return cls(
            lately_s=cls().lately_s * times,
            calm_s=cls().calm_s * times,
            long_s=cls().long_s * times,
            silent_after_s=max(cls().silent_after_s, 3 * pace_s),
            quick_s=cls().quick_s * max(1.0, times),
            soon_s=cls().soon_s * max(1.0, times),
        )


class Why(StrEnum):
    """Why a broker weighs what it does."""

    WELL = "well"
    SLOW = "slow"
    SILENT = "silent"
    RECOVERING = "recovering"
    HELD = "held"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVerdict:
    """What one broker weighs, and why: `slowness` is r, `latency_s` its own 90th percentile."""

    weight: float
    why: Why
    reason: str
    slowness: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is remembered of one broker from step to step."""

    weight: float = 1.0
    ill_since: float | None = None
    fell_from: float = 1.0
    drowned: bool = False
    relapses: int = 0
    ceiling: float = 1.0
    held_until: float = float("-inf")
    well_since: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """Where steering stands: what it remembers, and when it last looked."""

    now_s: float | None = None
    standings: Mapping[int, Standing] = field(default_factory=dict)


def step(
    before: Steering,
    seen: Mapping[int, Observation],
    now_s: float,
    rules: SteeringRules = SteeringRules(),  # noqa: B008 - frozen
) -> tuple[Steering, dict[int, BrokerVerdict]]:
    """The next standing and a verdict for each broker that was looked at.

    `now_s` only grows. Brokers that are not in `seen` are forgotten.
    """
    passed_s = 0.0 if before.now_s is None else max(0.0, now_s - before.now_s)
    known = {broker: before.standings.get(broker, Standing()) for broker in sorted(seen)}
    loaded = _loaded(seen, rules)
    well = {broker for broker, standing in known.items() if standing.ill_since is None}
    sights = _sights(seen, (loaded & well, loaded), rules)
    if all(sight.silent for sight in sights.values()):  # it is we who cannot hear
        said = "nobody answers: all count the same"
        return Steering(now_s=now_s, standings=known), {
            broker: BrokerVerdict(weight=1.0, why=Why.UNKNOWN, reason=said) for broker in known
        }
    after = {b: _stands(known[b], sights[b], now_s, passed_s, rules) for b in known}
    most = max(standing.weight for standing in after.values())
    return Steering(now_s=now_s, standings=after), {
        broker: _verdict(
            standing,
            # Where all are rising, or the last one left was low: only ratios matter.
            weight=_told(standing.weight / most) if most > 0 else 1.0,
            seen=seen[broker],
            sight=sights[broker],
            now_s=now_s,
            rules=rules,
        )
        for broker, standing in after.items()
    }


# ---------------------------------------------------------------- what is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail:
    """The latencies of one broker as quantiles, in seconds and with the floor."""

    lately: float | None
    """The 90th percentile of what records would have met lately."""
    p60: float
    p75: float
    p90: float
    asked: float | None
    """The median of its light requests."""
    probes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """One broker beside the best: is it evidently slower, is it evidently not, by how much."""

    silent: bool = False
    known: bool = False
    is_slow: bool = False
    is_well: bool = False
    drowns: bool = False
    """Most of its probes are late: it is a queue that they wait in."""
    slowness: float = 1.0


def _sights(
    seen: Mapping[int, Observation], carrying: Sequence[Collection[int]], rules: SteeringRules
) -> dict[int, _Sight]:
    """Each broker beside the best of those that carry the load, the first of these if there are.

    One that carries none of it may well be quick: that says nothing against those that do.
    """
    tails = {broker: _tail(seen[broker], rules) for broker in sorted(seen)}
    measure: dict[int, _Tail] = {}
    for those in (*carrying, tails):
        measure = measure or {b: t for b, t in tails.items() if t is not None and b in those}
    if not measure:
        return {b: _Sight(silent=seen[b].probes.silent_s >= rules.silent_after_s) for b in tails}
    best = _best(list(measure.values()))
    bar = rules.late * best.p90
    late = {b: _late(seen[b], bar, rules.lately_s, rules) for b in tails}
    late_calm = {b: _late(seen[b], bar, rules.calm_s, rules) for b in tails}
    least = _low([late[b] for b in measure])
    least_calm = _low([late_calm[b] for b in measure])
    # Where all are slow, a second is no silence.
    patience_s = max(rules.silent_after_s, rules.silent_for * best.p90)
    sights = {}
    for broker, tail in tails.items():
        silent = seen[broker].probes.silent_s >= patience_s
        if tail is None:
            sights[broker] = _Sight(silent=silent)
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
        sights[broker] = _Sight(
            silent=silent,
            known=True,
            is_slow=plainly or faint > rules.faint or asked > rules.asked,
            is_well=calm and not plainly and asked <= rules.asked,
            drowns=plainly
            and bool(lately)
            and _quantile(lately, 1 - rules.share_drowned) + rules.floor_s > bar,
            slowness=max(1.0, slowness),
        )
    return sights


def _loaded(seen: Mapping[int, Observation], rules: SteeringRules) -> set[int]:
    """Those that take records; where nobody knows, or there are next to none, all."""
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
    """How many probes took longer than the bar; those far beyond count twice."""
    return sum(
        1 + (latency_s + rules.floor_s > 4 * bar_s)
        for latency_s in seen.probes.latencies(within_s)
        if latency_s + rules.floor_s > bar_s
    )


def _best(tails: Sequence[_Tail]) -> _Tail:
    """The slowest of the best quarter, in each respect by itself."""
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
    """The value at that share of the way up, of values in order."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---------------------------------------------------------------- what follows from it


def target(slowness: float, rules: SteeringRules = SteeringRules()) -> float:  # noqa: B008 - frozen
    """What a broker that is evidently slow should weigh.

    >>> [round(target(r), 3) for r in (1.0, 1.6, 2.0, 3.0, 4.0, 50.0)]
    [1.0, 0.625, 0.5, 0.099, 0.031, 0.0]
    """
    if slowness <= rules.mild:
        return 1 / slowness
    return float((rules.mild / slowness) ** rules.fall / rules.mild)


def _told(weight: float) -> float:
    """A weight to two places, a small one to its first digit: what hardly changes stays."""
    if weight < _LEAST:
        return 0.0
    return round(weight, 2) if weight >= 0.1 else float(f"{weight:.1g}")


def _stands(
    before: Standing, sight: _Sight, now_s: float, passed_s: float, rules: SteeringRules
) -> Standing:
    if sight.silent:
        return replace(_ill(before, now_s, rules), weight=0.0, drowned=True)
    if not sight.known:
        return before
    if sight.is_slow or (before.ill_since is not None and not sight.is_well):
        wanted = min(target(sight.slowness, rules), before.ceiling)
        weight = min(wanted, before.weight + rules.rise_per_s * passed_s)
        ill = _ill(before, now_s, rules)
        return replace(ill, weight=weight, drowned=ill.drowned or sight.drowns)
    well = before if before.ill_since is None else _healed(before, now_s, rules)
    return _risen(well, now_s, passed_s, rules)


def _ill(before: Standing, now_s: float, rules: SteeringRules) -> Standing:
    if before.ill_since is not None:
        return before
    soon = now_s - max(before.well_since, before.held_until) <= rules.soon_s
    relapses = before.relapses if soon else 0
    return replace(
        before, ill_since=now_s, fell_from=before.weight, relapses=relapses, drowned=False
    )


def _healed(before: Standing, now_s: float, rules: SteeringRules) -> Standing:
    """It is well again; if that was quick, the load may have been what ailed it."""
    began = now_s if before.ill_since is None else before.ill_since
    well = replace(before, ill_since=None, well_since=now_s)
    if now_s - began > rules.quick_s:
        return replace(well, relapses=0, ceiling=1.0, held_until=now_s)
    if not before.drowned or before.weight > before.fell_from / 2:
        return well
    relapses = before.relapses + 1
    if relapses == 1:
        return replace(well, relapses=1)
    hold_s = min(rules.longest_hold_s, rules.hold_s * 2 ** min(relapses - 2, 30))
    ceiling = max(rules.kept_below * before.fell_from, 0.1)
    return replace(well, relapses=relapses, ceiling=ceiling, held_until=now_s + hold_s)


def _risen(well: Standing, now_s: float, passed_s: float, rules: SteeringRules) -> Standing:
    ceiling = well.ceiling
    if now_s >= well.held_until:  # a little more at a time, until it is slow again or all is well
        ceiling = min(1.0, ceiling + 0.1 * rules.rise_per_s * passed_s)
    weight = min(max(ceiling, well.weight), well.weight + rules.rise_per_s * passed_s)
    return replace(well, weight=weight, ceiling=ceiling)


def _verdict(
    standing: Standing,
    *,
    weight: float,
    seen: Observation,
    sight: _Sight,
    now_s: float,
    rules: SteeringRules,
) -> BrokerVerdict:
    lately_s = seen.probes.latencies(rules.lately_s)
    why, reason = Why.WELL, "as good as the best"
    if sight.silent:
        why, reason = Why.SILENT, f"silent for {seen.probes.silent_s:.1f} s"
    elif not sight.known:
        why, reason = Why.UNKNOWN, "too few probes so far"
    elif standing.ill_since is not None:
        why = Why.SLOW
        reason = f"{sight.slowness:.1f} × as slow as the best{_led(seen)}"
    elif standing.weight < min(1.0, standing.ceiling):
        why, reason = Why.RECOVERING, "well again, rising"
    elif standing.ceiling < 1.0:
        left_s = max(0.0, standing.held_until - now_s)
        why = Why.HELD
        reason = f"slow by its load before: kept below {standing.ceiling:.2f} for {left_s:.0f} s"
    return BrokerVerdict(
        weight=weight,
        why=why,
        reason=reason,
        slowness=round(sight.slowness, 2) if sight.known else None,
        latency_s=_quantile(lately_s, 0.9) if lately_s else None,
    )


def _led(seen: Observation) -> str:
    if seen.bytes_s is not None:
        return f", leads {seen.bytes_s / 1e6:.2f} MB/s"
    return "" if seen.records_s is None else f", takes {seen.records_s:.0f} records/s"
