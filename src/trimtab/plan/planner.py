"""What planners of all layers have in common: a name, a rule and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Generic, Self, TypeVar

from trimtab.errors import ConfigError, UnknownPlanner
from trimtab.model.plan import Layer

RuleT = TypeVar("RuleT")
OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlanner(Generic[RuleT, OptionsT]):
    """A planner by name: its rule, a pure function, its options, and the facts that it uses.

    Options are a frozen dataclass. Each field has a default, and its type says what it means:
    `Annotated[float, "text for the command line and the reference"]`.
    """

    name: str
    rule: RuleT
    options: OptionsT
    uses: frozenset[str] = frozenset()

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(own.name for own in fields(self._options))

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        usual = type(self._options)()
        values = {name: getattr(self.options, name) for name in self.option_names}
        return {name: value for name, value in values.items() if value != getattr(usual, name)}

    @property
    def reads(self) -> frozenset[str]:
        """Everything that its result may depend on: options, and facts of the context."""
        return self.uses.union(self.option_names)

    def with_options(self, **named: Any) -> Self:
        """This planner with other options; one that it does not have is refused."""
        for name in named:
            if name not in self.option_names:
                known = ", ".join(self.option_names)
                raise ConfigError(
                    f"Planner {self.name} has no option {name}.",
                    hint=f"Its options: {known}." if known else "It has no options.",
                )
        return replace(self, options=replace(self._options, **named))

    @property
    def _options(self) -> Any:
        return self.options


PlannerT = TypeVar("PlannerT")


def planner_named(known: Mapping[str, PlannerT], name: str, layer: Layer) -> PlannerT:
    """The planner of that name."""
    if name not in known:
        close = get_close_matches(name.lower(), known, n=1)
        raise UnknownPlanner(
            f'There is no planner "{name}" for {layer}; known are {", ".join(sorted(known))}.',
            hint=f'Did you mean "{close[0]}"?' if close else None,
        )
    return known[name]
