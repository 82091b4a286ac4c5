"""The registry of planners by layer and name, and how options are passed to them.

Promise  A value that none of the chosen planners reads is refused, by name; in a comparison each
         planner gets those that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, get_type_hints

from trimtab.errors import ConfigError, UnknownPlanner
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.baselines import BASELINES
from trimtab.plan.consumers.ilp import EXACT
from trimtab.plan.consumers.latency_autoscaler import LATENCY
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner
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


def configured(
    planners: Sequence[PackingPlanner],
    named: Mapping[str, Any],
    *,
    optional: Collection[str] = (),
    spelled: Callable[[str], str] = str,
) -> tuple[list[PackingPlanner], PackingContext]:
    """The planners with the options that each of them reads, and the context they share.

    `named` has options of planners and facts of the context. One that no planner reads is refused,
    unless it is `optional`: then it is a condition that all planners of a comparison share.
    `spelled` says how messages spell a name.
    """
    for name in named:
        if name not in optional and not any(name in planner.reads for planner in planners):
            readers = [p.name for p in PLANNERS[Layer.CONSUMERS].values() if name in p.reads]
            raise ConfigError(
                f"{spelled(name)} is not supported by {', '.join(p.name for p in planners)}.",
                hint=f"It is for {', '.join(sorted(readers))}." if readers else None,
            )
    facts = {fact.name: named[fact.name] for fact in fields(PackingContext) if fact.name in named}
    return [
        planner.with_options(**{o: named[o] for o in planner.option_names if o in named})
        for planner in planners
    ], PackingContext(**facts)


def option_texts(planner: PackingPlanner) -> dict[str, str]:
    """What each option of a planner means."""
    hints = get_type_hints(type(planner.options), include_extras=True)
    return {name: hints[name].__metadata__[0] for name in planner.option_names}


def option_text(name: str) -> str:
    """What the option of that name means, for every planner that has it."""
    texts = (option_texts(planner) for planner in PLANNERS[Layer.CONSUMERS].values())
    return next(text[name] for text in texts if name in text)
