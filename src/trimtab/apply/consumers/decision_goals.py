"""What decisions about a group aim at: the planner, capacities, an SLA, and limits."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.model.load import Unit
from trimtab.plan.consumers.planner import MoveBudget, PackingPlanner, PlannerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionGoals:
    """The goals and limits of decisions about a group.

    Attributes:
        group: The consumer group.
        planner: The planner, with its options.
        unit: The unit of loads and capacities.
        capacity: The load that one consumer can process; None uses what consumers report.
        sla_s: How long a record may wait, for planners by latency.
        interval_s: The shortest time between two decisions.
        max_quiet_s: After this time without a decision, check whether fewer consumers suffice.
        cooldown_s: The shortest time between two changes of the number of consumers.
        stale_after_s: Older rates are not used.
        headroom: The part of the capacity that is left free; None leaves a sixth of a measured
            capacity free, and nothing of a given one.
        most: The largest number of consumers; they share a load that is too much for them.
    """

    group: str
    planner: PackingPlanner
    unit: Unit
    capacity: float | None = None
    sla_s: float | None = None
    interval_s: float = 1.0
    max_quiet_s: float = 10.0
    cooldown_s: float = 0.0
    stale_after_s: float = 10.0
    headroom: float | None = None
    most: int | None = None

    @property
    def budget(self) -> MoveBudget:
        """How much one plan may move."""
        return self.planner.options.budget

    @property
    def by_lag(self) -> bool:
        """Whether lags are needed."""
        return self.urgent or self.planner.autoscaler is not None

    @property
    def urgent(self) -> bool:
        """Whether a packing planner has an SLA, so that backlogs count as load."""
        packs = self.planner.kind is PlannerKind.PACKS
        return packs and self.sla_s is not None and self.unit is Unit.RECORDS_S
