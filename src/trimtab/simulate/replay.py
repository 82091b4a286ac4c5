"""What if: any planner over the rates that a real cluster had.

Why      A planner that wins on random walks may lose on one's own load. What `measure` has written
         is the load of the past; a group that never existed can be run through it.
Promise  Windows follow one another without gaps, whatever lay between them; how many gaps, repeats
         and unknown rates were bridged is said. A rate that is unknown stays what it was, as the
         controller would take it; a partition without a row between two others was idle if rates
         come from counted events, else unchanged. Every planner meets the same load, and its own
         lags: those of the past belong to the group of the past, save the backlog at the start.
Cost     That of the fluid world.
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
from trimtab.plan.consumers.planner import DEFAULTS, PackingOptions, PackingPlanner
from trimtab.simulate.controllers import packing
from trimtab.simulate.fluid import FluidOrder, FluidOutcome, FluidWorld, fluid
from trimtab.workload.rate_streams import RateSchedule

_MICROS = 1_000_000
_LONGEST = 100  # times the history, for one partition to be read by a consumer of its own
_SOURCES = (Source.LOG_DIRS, Source.OFFSETS, Source.EVENTS)


class RateRow(NamedTuple):
    """A row of `partition_rates`; None is unknown."""

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
    """A row of `lag`; None is unknown."""

    ts: int
    group: str
    name: TopicPartition
    lag_records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rates window by window, each with every partition, and what waited when they began.

    `notes` say what had to be bridged.
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
    """Puts rows of the tables in order: one kind of window, one source, one row per partition."""
    wanted = [row for row in rows if topics is None or row.name.topic in topics]
    kept, notes = _one_kind(wanted, window_s)
    if not any(row.rate(unit) is not None for row in kept):
        raise ThinData(
            f"The history has no rate in {unit}.",
            hint="Measure first, look at another topic, or take the other --unit.",
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
    """Refuses rows that no measurement could have given."""
    for row in rows:
        rate = row.rate(unit)
        if rate is not None and not 0 <= rate < math.inf:
            raise BadFile(
                f"The history has a rate of {rate:g} {unit} for {row.name}; "
                "a rate is finite and not negative."
            )
        if row.window_end <= row.window_start:
            raise BadFile(f"The history has a window of {row.name} that ends before it begins.")


def _one_kind(rows: Sequence[RateRow], window_s: float | None) -> tuple[list[RateRow], list[str]]:
    """The rows of one source and of one length of window: the one asked for, else the commonest."""
    source = next((s for s in _SOURCES if any(row.source == s for row in rows)), None)
    kept = [row for row in rows if row.source == source]
    lengths = Counter(row.window_end - row.window_start for row in kept)
    if not lengths:
        raise ThinData("The history has no row of these topics.", hint="Measure first.")
    length = round(window_s * _MICROS) if window_s else max(lengths, key=lambda n: (lengths[n], n))
    if length not in lengths:
        known = ", ".join(f"{n / _MICROS:g}" for n in sorted(lengths))
        raise ConfigError(f"The history has no windows of {window_s:g} s; it has those of {known}.")
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
    """One row per window and partition: a complete one before others, then that of most samples."""
    best: dict[tuple[int, TopicPartition], RateRow] = {}
    repeats = 0
    for row in rows:
        place = (row.window_start, row.name)
        repeats += place in best
        # The rates at last, so that the order of files plays no part.
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
    """One partition's rate in every window, and how many of them had to be guessed."""
    known = [None if row is None else row.rate(unit) for row in rows]
    there = [i for i, rate in enumerate(known) if rate is not None]
    first, last = there[0], there[-1]
    column, bridged, rate = [], 0, 0.0
    for i, found in enumerate(known):
        if found is not None:
            rate = found
        elif not first < i < last or (counted and rows[i] is None):
            rate = 0.0  # not yet there, gone, or without a single event
        else:
            bridged += 1
        column.append(rate)
    return column, bridged


def _ratios(
    rows: Iterable[RateRow], names: Collection[TopicPartition], unit: Unit
) -> dict[TopicPartition, float]:
    """What one record of each partition weighs in the unit, in the mean; 1 if it is records."""
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
    """What the group had not yet read in the first window, by the first look at each partition."""
    groups = sorted({row.group for row in lags if row.name in weights})
    if group is None and len(groups) > 1:
        raise ConfigError(
            f"The history has lags of several groups: {', '.join(groups)}.",
            hint="Say with --group whose backlog there is at the start.",
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
class Replayed:
    """What a planner would have made of the history; latencies are None if nothing was read."""

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
    options: PackingOptions = DEFAULTS,
    *,
    limits: GroupLimits,
    world: FluidWorld,
    sla_s: float,
    on_step: Callable[[int, int], None] | None = None,
) -> Replayed:
    """Runs a group through the history, planned by what the last interval has shown.

    It begins with a plan for the first window. After that it decides as often as `world` says.
    """
    _check_capacity(history, world)
    told = replace(options, sla_s=sla_s)
    first = dict(zip(history.names, history.rates[0], strict=True))
    lags = {name: round(lag) for name, lag in history.backlog.items()}
    begin = planner(first, Assignment(), limits, replace(told, lags=lags))
    outcome = fluid(
        RateSchedule.from_steps(history.window_s, history.rates),
        packing(planner, limits=limits, options=told),
        world=world,
        start=FluidOrder.using(begin),
        names=history.names,
        backlog=history.backlog,
        on_step=on_step,
    )
    return _judged(planner.name, outcome, history, limits, sla_s)


def _check_capacity(history: History, world: FluidWorld) -> None:
    """Refuses consumers so slow that the run would not end in a lifetime: units mixed up."""
    length_s = history.window_s * len(history.rates)
    for name, rates in zip(history.names, zip(*history.rates, strict=True), strict=True):
        amount = sum(rates) * history.window_s + history.backlog.get(name, 0.0)
        fastest = max((world.service_rate, *world.service_rates.values()))
        if amount > _LONGEST * length_s * fastest:
            raise ConfigError(
                f"{name} alone would take a consumer that reads {fastest:g} {history.unit} more "
                f"than {_LONGEST} times as long as the history.",
                hint=f"Are --capacity and --service-rate in {history.unit}?",
            )


def _judged(
    planner: str, outcome: FluidOutcome, history: History, limits: GroupLimits, sla_s: float
) -> Replayed:
    def percentile(percent: float) -> float | None:
        found = outcome.delays.percentile_s(percent)
        return None if math.isnan(found) else found

    minutes = history.window_s * len(history.rates) / 60
    load = sum(change.moved_load for change in outcome.changes)
    looked = outcome.decisions + 1  # the plan at the start included, which moves nothing
    mean_load = sum(map(sum, history.rates)) / len(history.rates)
    return Replayed(
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
