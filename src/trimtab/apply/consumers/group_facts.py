"""What is known of a group's load: rates as they are published, and loads and lags for planning.

Promise  Pure. `Facts.doubt` says why the rates are not reliable: too old, stale, or incomplete.
         With an SLA a packing planner gets `urgent` loads: the backlog counts as load.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trimtab.apply.consumers.controller_state import GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.waiting import listed
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.model.load import Unit

_MICROS = 1_000_000
_IN_FLIGHT_S, _TOLERATED = 1.0, 0.3
_CLEAR_WITHIN = 0.5


@dataclass(frozen=True, slots=True)
class NewestRates:
    """The newest rates of each topic, and the previous ones; λ is computed from their difference.

    `fresh_ts` is the time of the last record in which a partition's rate was not stale, by topic
    and partition. A single stale rate is ignored: samples of the same moment may arrive at
    different times.
    """

    newest: Mapping[str, TopicRates] = field(default_factory=dict)
    before: Mapping[str, TopicRates] = field(default_factory=dict)
    fresh_ts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def updated(self, *records: TopicRates) -> NewestRates:
        """These rates with more records; a record older than the newest changes nothing."""
        newest, before, fresh_ts = dict(self.newest), dict(self.before), dict(self.fresh_ts)
        for rates in records:
            topic, last = rates.topic, newest.get(rates.topic)
            if last is not None and rates.ts < last.ts:
                continue
            if last is not None and rates.ts != last.ts:
                before[topic] = last
            newest[topic] = rates
            fresh = {n: rates.ts for n, rate in rates.partitions.items() if not rate.stale}
            fresh_ts[topic] = {**fresh_ts.get(topic, {}), **fresh}
        return NewestRates(newest, before, fresh_ts)

    def of(self, partition: TopicPartition) -> PartitionRate | None:
        """The newest rate of a partition."""
        rates = self.newest.get(partition.topic)
        return None if rates is None else rates.partitions.get(partition.partition)

    def age_s(self, topics: Collection[str], *, ts: int) -> float:
        """The age of the oldest of these topics' newest rates; infinite if one has none."""
        known = [self.newest[t].ts for t in topics if t in self.newest]
        return (ts - min(known)) / _MICROS if len(known) == len(topics) and known else math.inf

    def silent_s(self, partition: TopicPartition, *, ts: int) -> float:
        """For how long a partition has had no new rate; infinite if it never had one."""
        fresh_ts = self.fresh_ts.get(partition.topic, {}).get(partition.partition)
        return math.inf if fresh_ts is None else (ts - fresh_ts) / _MICROS

    def arrivals_s(self, partition: TopicPartition) -> float | None:
        """λ in records/s, from the end offsets of two successive samples, else as published."""
        now, then = self.newest.get(partition.topic), self.before.get(partition.topic)
        rate = self.of(partition)
        if now is None or then is None or rate is None:
            return None if rate is None else rate.records_s
        earlier = then.partitions.get(partition.partition)
        if earlier is None or earlier.end_offset is None or rate.end_offset is None:
            return rate.records_s
        if rate.stale or earlier.stale:  # a stale rate's offset is older than its record
            return rate.records_s
        grown = rate.end_offset - earlier.end_offset
        return rate.records_s if grown < 0 else grown * _MICROS / (now.ts - then.ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Loads and lags for planning; `doubt` says why they are not reliable, if they are not.

    `arrivals` are the loads without the backlogs that an SLA adds to them.
    """

    loads: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, int]
    arrivals: Mapping[TopicPartition, float]
    doubt: str | None = None


def facts_of(measured: NewestRates, view: GroupView, aim: DecisionGoals, *, ts: int) -> Facts:
    """The measured loads and lags of the group's partitions, in the unit of the aim."""
    loads: dict[TopicPartition, float] = {}
    lags: dict[TopicPartition, int] = {}
    thin: list[TopicPartition] = []
    silent: list[TopicPartition] = []
    for partition in sorted(view.partitions):
        rate = measured.of(partition)
        if rate is not None and measured.silent_s(partition, ts=ts) > aim.stale_after_s:
            silent.append(partition)
        load = None if rate is None else _load(measured, partition, rate, aim)
        if rate is None or load is None or not rate.complete:
            thin.append(partition)
        if load is not None:
            loads[partition] = load
        lag = None if rate is None else rate.lag.get(aim.group)
        if lag is not None:
            lags[partition] = lag
    arrivals = loads
    if aim.urgent and aim.sla_s is not None:
        loads = {p: urgent(load, lags.get(p, 0), sla_s=aim.sla_s) for p, load in loads.items()}
    blind = view.partitions - lags.keys() if aim.by_lag else ()
    doubt = _old(measured, view, aim, ts) or _silent(silent, aim) or _thin(thin, blind)
    return Facts(loads=loads, lags=lags, arrivals=arrivals, doubt=doubt)


def _old(measured: NewestRates, view: GroupView, aim: DecisionGoals, ts: int) -> str | None:
    """Why the rates are not current; None if they are."""
    topics = {p.topic for p in view.partitions}
    age_s = measured.age_s(topics, ts=ts)
    if not math.isfinite(age_s):
        missing = topics - measured.newest.keys()
        of = f" of topic {listed(sorted(missing))}" if missing != topics else ""
        return f"no rates{of} have been published yet"
    if age_s < -aim.stale_after_s:
        return f"the newest rates have a time {-age_s:.1f} s in the future"
    if age_s > aim.stale_after_s:
        return f"the newest rates are {age_s:.1f} s old, the limit is {aim.stale_after_s:g} s"
    return None


def _silent(silent: Collection[TopicPartition], aim: DecisionGoals) -> str | None:
    """Which partitions have had no new rate for too long; None if there are none."""
    if not silent:
        return None
    return f"the rate of {some_of(silent)} is stale: older than {aim.stale_after_s:g} s"


def _thin(thin: Collection[TopicPartition], blind: Collection[TopicPartition]) -> str | None:
    """Which partitions have incomplete rates or no lag; None if there are none."""
    if thin:
        return f"too little is known of {some_of(thin)}"
    return f"the lag of {some_of(blind)} is unknown" if blind else None


def _load(
    measured: NewestRates, partition: TopicPartition, rate: PartitionRate, aim: DecisionGoals
) -> float | None:
    if aim.unit is Unit.BYTES_S:
        return rate.bytes_s
    if aim.planner.autoscaler is not None:
        return measured.arrivals_s(partition)
    return rate.records_s


def urgent(records_s: float, lag: int, *, sla_s: float) -> float:
    """The load of a partition: its arrival rate, plus its backlog over half the SLA.

    One second of arrivals is in flight in any healthy group and does not count as backlog. Nor does
    what waits for less than three tenths of the SLA: a partition that was just moved has that much.

    >>> urgent(60.0, 90, sla_s=5.0), urgent(60.0, 190, sla_s=5.0)
    (60.0, 100.0)
    """
    backlog = max(0.0, lag - records_s * max(_IN_FLIGHT_S, sla_s * _TOLERATED))
    return records_s + backlog / (sla_s * _CLEAR_WITHIN)


def some_of(partitions: Collection[TopicPartition]) -> str:
    """The first of these partitions, and how many more there are."""
    return listed(map(str, sorted(partitions)))
