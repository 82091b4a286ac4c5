"""The registry of planners by layer and name, and how options are passed to them.

Promise  A value that none of the chosen planners reads is refused, by name; in a comparison each
         planner gets those that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_type_hints, overload

from trimtab.errors import ConfigError
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner
from trimtab.plan.consumers.registry import PACKING_PLANNERS
from trimtab.plan.keys.planner import KeyPlanner
from trimtab.plan.keys.registry import KEY_PLANNERS
from trimtab.plan.planner import NamedPlanner, planner_named

_PlannersByName = Mapping[str, PackingPlanner] | Mapping[str, KeyPlanner]


class PlannersByLayer(Mapping[Layer, _PlannersByName]):
    """The planners of each layer by name, each layer with its own type of planner."""

    def __init__(self) -> None:
        self._layers: dict[Layer, _PlannersByName] = {
            Layer.CONSUMERS: PACKING_PLANNERS,
            Layer.KEYS: KEY_PLANNERS,
        }

    @overload
    def __getitem__(self, layer: Literal[Layer.CONSUMERS]) -> Mapping[str, PackingPlanner]: ...
    @overload
    def __getitem__(self, layer: Literal[Layer.KEYS]) -> Mapping[str, KeyPlanner]: ...
    @overload
    def __getitem__(self, layer: Layer) -> _PlannersByName: ...
    def __getitem__(self, layer: Layer) -> _PlannersByName:
        return self._layers[layer]

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


PLANNERS = PlannersByLayer()


@overload
def planner_of(layer: Literal[Layer.CONSUMERS], name: str) -> PackingPlanner: ...
@overload
def planner_of(layer: Literal[Layer.KEYS], name: str) -> KeyPlanner: ...
def planner_of(layer: Layer, name: str) -> PackingPlanner | KeyPlanner:
    """The planner of that name."""
    known: Mapping[str, PackingPlanner | KeyPlanner] = {**PLANNERS[layer]}
    return planner_named(known, name, layer)


PlannerT = TypeVar("PlannerT", bound=NamedPlanner[Any, Any])


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
    check_readers(planners, PACKING_PLANNERS, named, optional=optional, spelled=spelled)
    facts = {fact.name: named[fact.name] for fact in fields(PackingContext) if fact.name in named}
    return [_with_own(planner, named) for planner in planners], PackingContext(**facts)


def configured_keys(
    planners: Sequence[KeyPlanner],
    named: Mapping[str, Any],
    *,
    spelled: Callable[[str], str] = str,
) -> list[KeyPlanner]:
    """The planners for keys with the options that each of them reads; others are refused."""
    check_readers(planners, KEY_PLANNERS, named, spelled=spelled)
    return [_with_own(planner, named) for planner in planners]


def check_readers(
    planners: Sequence[PlannerT],
    known: Mapping[str, PlannerT],
    named: Collection[str],
    *,
    optional: Collection[str] = (),
    spelled: Callable[[str], str] = str,
) -> None:
    """Refuses an option that none of the planners reads, and names the ones that read it."""
    for name in named:
        if name not in optional and not any(name in planner.reads for planner in planners):
            readers = [planner.name for planner in known.values() if name in planner.reads]
            raise ConfigError(
                f"{spelled(name)} is not supported by {', '.join(p.name for p in planners)}.",
                hint=f"It is for {', '.join(sorted(readers))}." if readers else None,
            )


def _with_own(planner: PlannerT, named: Mapping[str, Any]) -> PlannerT:
    return planner.with_options(**{o: named[o] for o in planner.option_names if o in named})


def option_texts(planner: NamedPlanner[Any, Any]) -> dict[str, str]:
    """What each option of a planner means."""
    hints = get_type_hints(type(planner.options), include_extras=True)
    return {name: hints[name].__metadata__[0] for name in planner.option_names}


def option_text(name: str, layer: Layer = Layer.CONSUMERS) -> str:
    """What the option of that name means, for every planner of the layer that has it."""
    texts = (option_texts(planner) for planner in PLANNERS[layer].values())
    return next(text[name] for text in texts if name in text)
