"""Replays recorded rates of a real cluster with any planner.

Why      A planner that is best on random walks may not be best on a user's own load.
Promise  Windows are joined without gaps; the notes count closed gaps, repeats and unknown rates. An
         unknown rate is taken as unchanged, as the controller does; a partition without a row
         between two others was idle if rates come from counted events, else unchanged. Every
         planner gets the same load, and the lags that it causes itself, plus the initial backlog.
Cost     That of the fluid simulation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from trimtab.errors import BadFile, ConfigError, ThinData
from trimtab.evaluate.rscore import moved_fraction
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Source, Unit
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PackingPlanner
from trimtab.simulate.controllers import packing
from trimtab.simulate.fluid import FluidOrder, FluidOutcome, FluidWorld, fluid
from trimtab.workload.rate_streams import RateSchedule

_MICROS = 1_000_000
_LONGEST = 100  # longest time to read one partition alone, in multiples of the history
_SOURCES = (Source.LOG_DIRS, Source.OFFSETS, Source.EVENTS)


class RateRow(NamedTuple):
    """A row of `partition_rates`; unknown values are None."""

    window_start: int
    window_end: int
    name: TopicPartition
    bytes_s: float | None
    records_s: float | None
    source: str
    samples: int
    complete: bool

    def rate(self, unit: Unit) -> float | None:
        """The rate in a unit."""
        return self.bytes_s if unit is Unit.BYTES_S else self.records_s


class LagRow(NamedTuple):
    """A row of `lag`; unknown values are None."""

    ts: int
    group: str
    name: TopicPartition
    lag_records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rates by window, each with every partition, and the backlog at the start.

    `notes` list closed gaps and assumed rates.
    """

    window_s: float
    unit: Unit
    names: tuple[TopicPartition, ...]
    rates: tuple[tuple[float, ...], ...]
    backlog: Mapping[TopicPartition, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def history_of(
    rows: Iterable[RateRow],
    lags: Iterable[LagRow] = (),
    *,
    unit: Unit,
    topics: Collection[str] | None = None,
    group: str | None = None,
    window_s: float | None = None,
) -> History:
    """Builds a history from table rows: one window length, one source, one row per partition."""
    wanted = [row for row in rows if topics is None or row.name.topic in topics]
    kept, notes = _one_kind(wanted, window_s)
    if not any(row.rate(unit) is not None for row in kept):
        raise ThinData(
            f"The history has no rate in {unit}.",
            hint="Measure first, choose another topic, or use the other --unit.",
        )
    _check(kept, unit)
    windows = sorted({row.window_start for row in kept})
    length = kept[0].window_end - kept[0].window_start
    gaps = sum(later != earlier + length for earlier, later in pairwise(windows))
    best = _best(kept, notes)
    names = tuple(sorted({row.name for row in kept if row.rate(unit) is not None}))
    columns, unknown = [], 0
    for name in names:
        column, bridged = _column(
            [best.get((start, name)) for start in windows], unit, counted=_is_counted(kept)
        )
        columns.append(column)
        unknown += bridged
    if gaps:
        notes.append(f"{gaps} gap(s) between windows were closed")
    if unknown:
        notes.append(f"{unknown} unknown rate(s) were taken as unchanged")
    return History(
        window_s=length / _MICROS,
        unit=unit,
        names=names,
        rates=tuple(zip(*columns, strict=True)),
        backlog=_backlog(list(lags), group, windows[0] + length, _ratios(kept, names, unit)),
        notes=tuple(notes),
    )


def _check(rows: Iterable[RateRow], unit: Unit) -> None:
    """Rejects invalid rows."""
    for row in rows:
        rate = row.rate(unit)
        if rate is not None and not 0 <= rate < math.inf:
            raise BadFile(
                f"The history has a rate of {rate:g} {unit} for {row.name}; "
                "a rate must be finite and not negative."
            )
        if row.window_end <= row.window_start:
            raise BadFile(f"The history has a window of {row.name} that ends before it starts.")


def _one_kind(rows: Sequence[RateRow], window_s: float | None) -> tuple[list[RateRow], list[str]]:
    """The rows of one source and one window length: the requested one, else the most common."""
    source = next((s for s in _SOURCES if any(row.source == s for row in rows)), None)
    kept = [row for row in rows if row.source == source]
    lengths = Counter(row.window_end - row.window_start for row in kept)
    if not lengths:
        raise ThinData("The history has no rows for these topics.", hint="Measure first.")
    length = round(window_s * _MICROS) if window_s else max(lengths, key=lambda n: (lengths[n], n))
    if length not in lengths:
        known = ", ".join(f"{n / _MICROS:g}" for n in sorted(lengths))
        raise ConfigError(f"The history has no windows of {window_s:g} s, only of {known}.")
    notes = []
    if len(rows) != len(kept):
        notes.append(f"{len(rows) - len(kept)} row(s) from other sources than {source} left out")
    if len(lengths) > 1:
        others = len(kept) - lengths[length]
        notes.append(
            f"{others} row(s) of windows that are not {length / _MICROS:g} s long left out"
        )
    return [row for row in kept if row.window_end - row.window_start == length], notes


def _best(rows: Iterable[RateRow], notes: list[str]) -> dict[tuple[int, TopicPartition], RateRow]:
    """One row per window and partition: complete rows first, then the most samples."""
    best: dict[tuple[int, TopicPartition], RateRow] = {}
    repeats = 0
    for row in rows:
        place = (row.window_start, row.name)
        repeats += place in best
        # Rates last, so that the order of files does not matter.
        best[place] = max(best.get(place, row), row, key=_worth)
    if repeats:
        notes.append(f"{repeats} row(s) of windows measured more than once left out")
    return best


def _worth(row: RateRow) -> tuple[Any, ...]:
    return (row.complete, row.samples, row.bytes_s or 0.0, row.records_s or 0.0)


def _is_counted(rows: Sequence[RateRow]) -> bool:
    return rows[0].source == Source.EVENTS


def _column(
    rows: Sequence[RateRow | None], unit: Unit, *, counted: bool
) -> tuple[list[float], int]:
    """One partition's rate in every window, and how many of them were assumed."""
    known = [None if row is None else row.rate(unit) for row in rows]
    there = [i for i, rate in enumerate(known) if rate is not None]
    first, last = there[0], there[-1]
    column, bridged, rate = [], 0, 0.0
    for i, found in enumerate(known):
        if found is not None:
            rate = found
        elif not first < i < last or (counted and rows[i] is None):
            rate = 0.0  # not yet created, deleted, or without any event
        else:
            bridged += 1
        column.append(rate)
    return column, bridged


def _ratios(
    rows: Iterable[RateRow], names: Collection[TopicPartition], unit: Unit
) -> dict[TopicPartition, float]:
    """The mean size of a record of each partition in the unit; 1 if the unit is records."""
    if unit is Unit.RECORDS_S:
        return dict.fromkeys(names, 1.0)
    sums: dict[TopicPartition, list[float]] = {}
    for row in rows:
        if row.bytes_s is not None and row.records_s is not None:
            both = sums.setdefault(row.name, [0.0, 0.0])
            both[0] += row.bytes_s
            both[1] += row.records_s
    return {name: weight / count for name, (weight, count) in sums.items() if count}


def _backlog(
    lags: Sequence[LagRow],
    group: str | None,
    before: int,
    weights: Mapping[TopicPartition, float],
) -> dict[TopicPartition, float]:
    """The unread records of the group at the first sample of each partition."""
    groups = sorted({row.group for row in lags if row.name in weights})
    if group is None and len(groups) > 1:
        raise ConfigError(
            f"The history has lags of several groups: {', '.join(groups)}.",
            hint="Select the group of the initial backlog with --group.",
        )
    if group is not None and group not in groups:
        raise ConfigError(
            f'The history has no lag of group "{group}".',
            hint=f"It has {', '.join(groups)}." if groups else "It has no lag of any group.",
        )
    first: dict[TopicPartition, LagRow] = {}
    for row in lags:
        fits = row.group == (group or row.group) and row.ts < before and row.name in weights
        if fits and row.lag_records is not None:
            first[row.name] = min(first.get(row.name, row), row)
    return {
        name: max(row.lag_records or 0, 0) * weights[name] for name, row in sorted(first.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a planner on the history; latencies are None if nothing was read."""

    planner: str
    sla_s: float
    sla_share: float
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    max_s: float
    replica_minutes: float
    mean_consumers: float
    max_lag: float
    moves: int
    e_rscore: float
    moved_fraction: float

    def to_json(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def replay(
    history: History,
    planner: PackingPlanner,
    context: PackingContext = NO_CONTEXT,
    *,
    limits: GroupLimits,
    world: FluidWorld,
    sla_s: float,
    on_step: Callable[[int, int], None] | None = None,
) -> ReplayResult:
    """Runs a group through the history, planned from the rates of the last interval.

    It starts with a plan for the first window, then decides at the interval of `world`.
    """
    _check_capacity(history, world)
    told = replace(context, sla_s=sla_s)
    first = dict(zip(history.names, history.rates[0], strict=True))
    lags = {name: round(lag) for name, lag in history.backlog.items()}
    begin = planner(first, Assignment(), limits, replace(told, lags=lags))
    outcome = fluid(
        RateSchedule.from_steps(history.window_s, history.rates),
        packing(planner, limits=limits, context=told),
        world=world,
        start=FluidOrder.using(begin),
        names=history.names,
        backlog=history.backlog,
        on_step=on_step,
    )
    return _judged(planner.name, outcome, history, limits, sla_s)


def _check_capacity(history: History, world: FluidWorld) -> None:
    """Rejects consumers so slow that the run would not end: usually a wrong unit."""
    length_s = history.window_s * len(history.rates)
    for name, rates in zip(history.names, zip(*history.rates, strict=True), strict=True):
        amount = sum(rates) * history.window_s + history.backlog.get(name, 0.0)
        fastest = max((world.service_rate, *world.service_rates.values()))
        if amount > _LONGEST * length_s * fastest:
            raise ConfigError(
                f"A consumer that reads {fastest:g} {history.unit} would need more than {_LONGEST} "
                f"times the length of the history for {name} alone.",
                hint=f"Check that --capacity and --service-rate are in {history.unit}.",
            )


def _judged(
    planner: str, outcome: FluidOutcome, history: History, limits: GroupLimits, sla_s: float
) -> ReplayResult:
    def percentile(percent: float) -> float | None:
        found = outcome.delays.percentile_s(percent)
        return None if math.isnan(found) else found

    minutes = history.window_s * len(history.rates) / 60
    load = sum(change.moved_load for change in outcome.changes)
    looked = outcome.decisions + 1  # including the plan at the start, which moves nothing
    mean_load = sum(map(sum, history.rates)) / len(history.rates)
    return ReplayResult(
        planner=planner,
        sla_s=sla_s,
        sla_share=outcome.delays.share_within(sla_s),
        p50_s=percentile(50),
        p90_s=percentile(90),
        p99_s=percentile(99),
        max_s=outcome.delays.maximum_s,
        replica_minutes=outcome.replica_minutes,
        mean_consumers=outcome.replica_minutes / minutes,
        max_lag=outcome.max_lag,
        moves=outcome.moves,
        e_rscore=load / limits.capacity / looked,
        moved_fraction=moved_fraction(load / looked, mean_load),
    )
