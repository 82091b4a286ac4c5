"""The input of a plan for a consumer group: loads, assignment and capacities.

Missing facts raise here, so that planners get valid values only; `cautions` lists facts that are
known but doubtful.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from trimtab.errors import ConfigError, ThinData
from trimtab.measure.group_state import GroupSnapshot
from trimtab.measure.learned_capacity import BACKLOG_S, LEAST_SPAN_S, learned_from
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import (
    MEASURED_HEADROOM,
    GroupLimits,
    Loads,
    LoadStep,
    Measurement,
    RateSteps,
    Unit,
)
from trimtab.plan.consumers.planner import PackingPlanner, PlannerKind
from trimtab.plan.measurement_age import about_age

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The input of a packing planner; `remark` says how the capacity was derived, if it was."""

    loads: Mapping[TopicPartition, float]
    limits: GroupLimits
    current: Assignment = field(default_factory=Assignment)
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    sla_s: float | None = None
    remark: str | None = None


def situation_of_file(
    file: Loads,
    *,
    origin: str = "The loads file",
    step: int | None = None,
    topics: frozenset[str] | None = None,
    capacity: float | None = None,
    unit: Unit | None = None,
) -> Situation:
    """The situation of one step of a loads file, for these topics or for all."""
    if unit not in (None, file.unit):
        raise ConfigError(
            f"{origin} uses {file.unit}, not {unit}.",
            hint="Leave out --unit, or correct the file.",
        )
    chosen = step_of(file, step, origin=origin)
    loads = chosen.loads
    _check_topics(topics, {p.topic for p in loads})
    kept = {p: load for p, load in loads.items() if topics is None or p.topic in topics}
    if not math.isfinite(sum(kept.values())):
        raise ConfigError(f"{origin}: the sum of the loads is too large for a number.")
    left_out = list(map(str, sorted(file.assignment.keys() - loads.keys())))
    return Situation(
        loads=kept,
        limits=GroupLimits(
            capacity=_sound(file.capacity if capacity is None else capacity),
            capacities=file.capacities,
            unit=file.unit,
        ),
        current=file.assignment.only(kept),
        lags={p: lag for p, lag in chosen.lags.items() if p in kept},
        sla_s=file.sla_s,
        remark=f"{origin} assigns {_some(left_out)} but gives no load: left out of the plan."
        if left_out
        else None,
    )


def step_of(file: RateSteps, step: int | None, *, origin: str) -> LoadStep:
    """The requested step; it must be given only if there are several."""
    if step is None and len(file.steps) == 1:
        return file.steps[0]
    if step is None or step >= len(file.steps):
        asked = "none was selected" if step is None else f"there is no step {step}"
        raise ConfigError(
            f"{origin} has {len(file.steps)} step(s) and {asked}.",
            hint=f"Give --step with a number from 0 to {len(file.steps) - 1}.",
        )
    return file.steps[step]


def situation_of_measurement(
    measured: Measurement,
    *,
    topics: frozenset[str] | None = None,
    capacity: float | None = None,
    unit: Unit | None = None,
    group: str | None = None,
    live: GroupSnapshot | None = None,
) -> Situation:
    """The situation of a measurement, for these topics or for all; unknown loads raise.

    The lags are those of the group, if known. Without `capacity` it is derived from
    the consumers of the `live` group that had a backlog.
    """
    unit = Unit.BYTES_S if unit is None else unit
    remark = None
    if capacity is None:
        capacity, remark = _learned_capacity(measured, group, live, unit)
    _check_topics(topics, {p.topic for p in measured.partitions})
    partitions = [p for p in measured.partitions if topics is None or p.topic in topics]
    loads = replace(measured, partitions=tuple(partitions)).loads(unit)
    _refuse_unknown(p.name for p in partitions if p.name not in loads)
    lags = {p.name: p.lag.get(group) for p in partitions} if group is not None else {}
    return Situation(
        loads=loads,
        limits=GroupLimits(capacity=_sound(capacity), unit=unit),
        lags={name: lag for name, lag in lags.items() if lag is not None},
        remark=remark,
    )


def _learned_capacity(
    measured: Measurement, group: str | None, live: GroupSnapshot | None, unit: Unit
) -> tuple[float, str]:
    """The capacity that consumers reached, minus headroom, and a text that explains it."""
    why = "The capacity of a consumer is measured only for a live group: --group is missing."
    if group is not None and live is not None:
        shown = learned_from(measured, group, live.assignment).of(unit)
        if shown:
            capacity = median(shown.values())
            consumers = len(live.assignment.consumers)
            return capacity * (1 - MEASURED_HEADROOM), (
                f"Capacity {capacity * (1 - MEASURED_HEADROOM):.4g} {unit}: {len(shown)} of "
                f"{consumers} consumers were behind all the time and committed {capacity:.4g} "
                f"{unit} (median); a sixth of that is left free. --capacity overrides it."
            )
        why = (
            f"The capacity of a consumer of group {group} is unknown: none had a backlog of "
            f"{BACKLOG_S:g} s throughout {LEAST_SPAN_S:g} s or more of the measurement."
        )
    raise ConfigError(
        why, hint="Give --capacity, in the unit of --unit, or --group of a live group."
    )


def in_group(situation: Situation, group: GroupSnapshot) -> Situation:
    """The situation with the live group's assignment; each of its partitions needs a load."""
    _refuse_unknown(p for p in group.partitions if p not in situation.loads)
    return replace(
        situation,
        loads={p: load for p, load in situation.loads.items() if p in group.partitions},
        current=group.assignment,
    )


def cautions(
    situation: Situation,
    measured: Measurement | None,
    *,
    now_ts: int,
    max_age_s: float,
    incomplete: bool = True,
) -> Iterator[str]:
    """Warnings about these loads that a user must know before trusting the plan."""
    loads = situation.loads
    if not loads:
        yield "there are no loads: the plan is empty"
    if loads and not any(loads.values()):
        yield "all loads are 0: the plan does not show how a real load would be assigned"
    if measured is None:
        return
    yield from about_age(measured, now_ts=now_ts, max_age_s=max_age_s)
    thin = [str(p.name) for p in measured.partitions if p.name in loads and not p.complete]
    if thin and incomplete:
        yield (
            f"the rate of {_some(thin)} is incomplete: it has a gap, covers less time than "
            "requested, or is based on timestamps that are not arrival times"
        )


def check_lags(situation: Situation, planner: PackingPlanner) -> None:
    """Rejects a planner that needs lags if lags are unknown or the unit is not records/s."""
    if "lags" not in planner.uses or not situation.loads:
        return
    unit = situation.limits.unit
    if planner.kind is PlannerKind.LATENCY and unit is not Unit.RECORDS_S:
        raise ConfigError(
            f"{planner.name} compares rates with lags, which are records; the loads are in {unit}.",
            hint='Give the loads in records/s, with --unit or "unit" in the loads file.',
        )
    if planner.kind is PlannerKind.PACKS:
        return
    unknown = [str(p) for p in sorted(situation.loads) if p not in situation.lags]
    if unknown:
        raise ThinData(
            f"{planner.name} needs lags, but the lag of {_some(unknown)} is unknown.",
            hint='Give "lags" in the loads file, or --group with a measurement of its lag.',
        )


def _sound(capacity: float) -> float:
    if not (math.isfinite(capacity) and capacity > 0):
        raise ConfigError(f"The capacity must be a positive number, not {capacity}.")
    return capacity


def _check_topics(asked: frozenset[str] | None, known: Collection[str]) -> None:
    for topic in sorted(asked or ()):
        if topic not in known:
            raise ConfigError(
                f'There is no load of topic "{topic}".',
                hint=f"The file has {_some(sorted(known)) or 'no topic at all'}.",
            )


def _refuse_unknown(partitions: Iterable[TopicPartition]) -> None:
    names = [str(p) for p in sorted(partitions)]
    if names:
        raise ThinData(
            f"The load of {_some(names)} is unknown.",
            hint="Measure again over a longer span, or restrict the plan with --topic.",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
