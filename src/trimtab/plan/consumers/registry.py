"""The planners of the consumers layer by name."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.baselines import BASELINES
from trimtab.plan.consumers.ilp import EXACT
from trimtab.plan.consumers.latency_autoscaler import LATENCY
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT
from trimtab.plan.consumers.planner import PackingPlanner
from trimtab.plan.consumers.trim import TRIM

PACKING_PLANNERS: Mapping[str, PackingPlanner] = {
    planner.name: planner
    for planner in (
        *ANY_FIT,
        *MODIFIED_ANY_FIT,
        *LATENCY,
        *EXACT,
        *TRIM,
        *BASELINES,
    )
}
