"""Compares a plan's forecast with what was measured and who reads what."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.errors import ConfigError, ThinData
from trimtab.evaluate.forecast import ForecastCheck, check_forecast
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.journal import JournalEntry
from trimtab.model.load import Measurement, Unit
from trimtab.model.plan import AnyPlan, ConsumerPlan
from trimtab.observe.clock import wall_clock_us
from trimtab.services.apply import journal_of
from trimtab.services.groups import present_group

_STALE_S = 60.0
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The comparison, and the plan's journal; None if the plan was never carried out."""

    check: ForecastCheck
    unit: Unit
    journal: JournalEntry | None


def evaluate_plan(
    plan: AnyPlan, cluster: Cluster, measured: Measurement | None = None
) -> PlanOutcome:
    """Compares the plan with the group as it is; loads are `measured`, else the newest published.

    A partition of the plan without a load makes the comparison meaningless, and is refused.
    """
    if not isinstance(plan, ConsumerPlan):
        raise ConfigError(f"Plans for {plan.layer} cannot be evaluated by this release.")
    if plan.scope.group is None:
        raise ConfigError(
            "The plan names no group, so it is not known who reads what.",
            hint='Make it with "trimtab plan consumers --group G".',
        )
    unit = Unit(plan.params.get("unit", Unit.BYTES_S))
    topics = frozenset(plan.scope.topics)
    now = present_group(cluster, plan.scope.group, topics)
    if not now.assignment:
        raise ThinData(f"No consumer of group {plan.scope.group} reads its topics now.")
    loads = measured.loads(unit) if measured is not None else _published(plan, cluster, unit)
    unknown = sorted(p for p in now.assignment if p not in loads)
    if unknown:
        raise ThinData(
            f"The load of {unknown[0]} is unknown"
            + (f", and of {len(unknown) - 1} more." if len(unknown) > 1 else "."),
            hint="Measure while the load runs: trimtab measure --topic … --since 1m -o loads.json",
        )
    return PlanOutcome(check_forecast(plan, loads, now.assignment), unit, journal_of(cluster, plan))


def _published(plan: ConsumerPlan, cluster: Cluster, unit: Unit) -> dict[TopicPartition, float]:
    """The newest rates of `trimtab.rates`; older than a minute they say nothing of now."""
    from trimtab.apply.consumers.kafka.inbox import newest_rates
    from trimtab.apply.consumers.kafka.leadership import GroupConfig

    config = GroupConfig(
        cluster=cluster, group=plan.scope.group or "", topics=tuple(plan.scope.topics)
    )
    found = newest_rates(config)
    if found.age_s(plan.scope.topics, ts=wall_clock_us()) > _STALE_S:
        raise ThinData(
            f"{cluster.topics.rates} has no rates of the last minute.",
            hint='Start "trimtab measure --continuous", or give --loads FILE of "trimtab measure".',
        )
    loads = {}
    for topic in plan.scope.topics:
        for number, rate in found.newest[topic].partitions.items():
            load = rate.bytes_s if unit is Unit.BYTES_S else rate.records_s
            if load is not None:
                loads[TopicPartition(topic, number)] = load
    return loads
