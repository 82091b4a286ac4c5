"""The registry of planners by layer and name, used by the command line and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from trimtab.errors import UnknownPlanner
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.baselines import BASELINES
from trimtab.plan.consumers.ilp import EXACT
from trimtab.plan.consumers.least_loaded_ffd import LATENCY
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT
from trimtab.plan.consumers.planner import PackingPlanner
from trimtab.plan.consumers.trim import TRIM

PLANNERS: Mapping[Layer, Mapping[str, PackingPlanner]] = {
    Layer.CONSUMERS: {
        planner.name: planner
        for planner in (
            *ANY_FIT,
            *MODIFIED_ANY_FIT,
            *LATENCY,
            *EXACT,
            *TRIM,
            *BASELINES,
        )
    },
}


def planner_of(layer: Layer, name: str) -> PackingPlanner:
    """The planner of that name."""
    known = PLANNERS[layer]
    if name not in known:
        close = get_close_matches(name.lower(), known, n=1)
        raise UnknownPlanner(
            f'There is no planner "{name}" for {layer}; known are {", ".join(sorted(known))}.',
            hint=f'Did you mean "{close[0]}"?' if close else None,
        )
    return known[name]
