"""What a plan for a consumer group starts from: loads, who reads what, what consumers can carry.

Facts that are missing or doubtful are refused here, so that planners meet only sound values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.errors import ConfigError, ThinData
from trimtab.measure.group_state import GroupState
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Loads, LoadStep, Measurement, PartitionLoad, Unit
from trimtab.plan.planner import Kind, PackingPlanner

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything a packing planner needs to know."""

    loads: Mapping[TopicPartition, float]
    limits: GroupLimits
    current: Assignment = field(default_factory=Assignment)
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    sla_s: float | None = None


def situation_of_file(
    file: Loads,
    *,
    origin: str = "The loads file",
    step: int | None = None,
    topics: frozenset[str] | None = None,
    capacity: float | None = None,
    unit: Unit | None = None,
) -> Situation:
    """What a loads file says, in one of its steps, of these topics or of all."""
    if unit not in (None, file.unit):
        raise ConfigError(
            f"{origin} counts in {file.unit}, not in {unit}.",
            hint="Leave --unit out, or correct the file.",
        )
    chosen = step_of(file, step, origin=origin)
    loads = chosen.loads
    _check_topics(topics, {p.topic for p in loads})
    kept = {p: load for p, load in loads.items() if topics is None or p.topic in topics}
    if not math.isfinite(sum(kept.values())):
        raise ConfigError(f"{origin}: the loads add up to more than a number can hold.")
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
    )


def step_of(file: Loads, step: int | None, *, origin: str) -> LoadStep:
    """The step asked for; it must be named only where there are several."""
    if step is None and len(file.steps) == 1:
        return file.steps[0]
    if step is None or step >= len(file.steps):
        asked = "it is not said which" if step is None else f"there is no step {step}"
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
    allow_incomplete: bool = False,
) -> Situation:
    """What was measured of these topics, or of all; unknown loads are refused, never taken as 0.

    The lags are those of the group, where they are known.
    """
    if capacity is None:
        raise ConfigError(
            "A measurement does not say what one consumer can carry.",
            hint="Give --capacity, in the unit of --unit.",
        )
    _check_topics(topics, {p.topic for p in measured.partitions})
    unit = Unit.BYTES_S if unit is None else unit
    partitions = [p for p in measured.partitions if topics is None or p.topic in topics]
    loads = replace(measured, partitions=tuple(partitions)).loads(unit)
    _refuse_unknown(p.name for p in partitions if p.name not in loads)
    if not allow_incomplete:
        _refuse_incomplete([p for p in partitions if not p.complete])
    lags = {p.name: p.lag.get(group) for p in partitions} if group is not None else {}
    return Situation(
        loads=loads,
        limits=GroupLimits(capacity=_sound(capacity), unit=unit),
        lags={name: lag for name, lag in lags.items() if lag is not None},
    )


def in_group(situation: Situation, group: GroupState) -> Situation:
    """The situation with the live group's assignment; each of its partitions needs a load."""
    _refuse_unknown(p for p in group.partitions if p not in situation.loads)
    return replace(
        situation,
        loads={p: load for p, load in situation.loads.items() if p in group.partitions},
        current=group.assignment,
    )


def check_lags(situation: Situation, planner: PackingPlanner) -> None:
    """Refuses a planner that decides by lag where lags are unknown, and one of another unit."""
    if "lags" not in planner.reads or not situation.loads:
        return
    unit = situation.limits.unit
    if planner.kind is Kind.LATENCY and unit is not Unit.RECORDS_S:
        raise ConfigError(
            f"{planner.name} weighs rates against lags, which are records; the loads are {unit}.",
            hint='Give the loads in records/s, and say so: --unit, or "unit" in the loads file.',
        )
    if planner.kind is Kind.PACKS:
        return
    unknown = [str(p) for p in sorted(situation.loads) if p not in situation.lags]
    if unknown:
        raise ThinData(
            f"{planner.name} decides by lag, and that of {_some(unknown)} is unknown.",
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
                f'No load of topic "{topic}" is given.',
                hint=f"The file has {_some(sorted(known)) or 'no topic at all'}.",
            )


def _refuse_unknown(partitions: Iterable[TopicPartition]) -> None:
    names = [str(p) for p in sorted(partitions)]
    if names:
        raise ThinData(
            f"The load of {_some(names)} is unknown.",
            hint="Measure again over a longer span, or restrict the plan with --topic.",
        )


def _refuse_incomplete(partitions: Collection[PartitionLoad]) -> None:
    names = [str(p.name) for p in partitions]
    if names:
        raise ThinData(
            f"The rate of {_some(names)} has a gap or too short a span.",
            hint="Measure again over a longer span, or take it as it is with --allow-incomplete.",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
