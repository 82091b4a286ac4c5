"""Compares the forecast of a plan with the measured outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import Json
from trimtab.model.plan import ConsumerPlan, ConsumerState
from trimtab.model.plan_codec import plan_id
from trimtab.model.scalars import tidied


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCheck:
    """A plan's forecast figures and the measured ones, in the unit of the plan."""

    plan: str
    forecast: ConsumerState
    observed: ConsumerState

    @property
    def error(self) -> dict[str, float]:
        """The measured value minus the forecast, for each figure."""
        foreseen, found = asdict(self.forecast), asdict(self.observed)
        return {name: found[name] - foreseen[name] for name in foreseen}


def check_forecast(
    plan: ConsumerPlan, loads: Mapping[TopicPartition, float], present: Assignment
) -> ForecastCheck:
    """Compares the forecast with the present loads and assignment of the plan's topics."""
    topics = set(plan.scope.topics)
    mine = Assignment({p: c for p, c in present.items() if p.topic in topics})
    carried = mine.loads(loads)
    observed = ConsumerState(consumers=len(carried), max_load=max(carried.values(), default=0))
    return ForecastCheck(plan=plan_id(plan), forecast=plan.after, observed=observed)


def forecast_check_to(check: ForecastCheck) -> Json:
    """The document of `evaluate plan --json`."""
    return {
        "plan": check.plan,
        "forecast": tidied(asdict(check.forecast)),
        "observed": tidied(asdict(check.observed)),
        "error": tidied(check.error),
    }
