"""Explores the protocol of the keyed data path in a small world, or a broken variant of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.simulate.key_protocol.broken_variants import ProtocolVariant
    from trimtab.simulate.key_protocol.exploration import Exploration
    from trimtab.simulate.key_protocol.scenario import ProtocolScenario
    from trimtab.simulate.key_protocol.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRun:
    """What was explored and found; `story` tells how a fault is reached."""

    scenario: ProtocolScenario
    exploration: Exploration[World]
    story: str | None


def broken_variant(name: str) -> ProtocolVariant:
    """The broken variant of this name."""
    from trimtab.simulate.key_protocol.broken_variants import BROKEN_VARIANTS

    known = {variant.name: variant for variant in BROKEN_VARIANTS}
    if name not in known:
        raise ConfigError(
            f"There is no variant {name!r}.", hint=f"Known variants: {', '.join(known)}."
        )
    return known[name]


def explore_protocol(
    asked: ProtocolScenario | ProtocolVariant,
    *,
    limit: int | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> ProtocolRun:
    """Explores a scenario, or the scenario of a broken variant, up to `limit` states."""
    from trimtab.simulate.key_protocol.broken_variants import ProtocolVariant
    from trimtab.simulate.key_protocol.exploration import explore
    from trimtab.simulate.key_protocol.model import KeyProtocolModel
    from trimtab.simulate.key_protocol.narration import narrate

    if isinstance(asked, ProtocolVariant):
        scenario, model = asked.scenario, KeyProtocolModel(asked.scenario, asked.protocol)
    else:
        scenario, model = asked, KeyProtocolModel(asked)

    def on_progress(states: int, frontier: int) -> None:
        listener.progress(f"states; {frontier:,} at the frontier", states, limit)

    found = explore(model, limit=limit, on_progress=on_progress)
    story = None if found.fault is None else narrate(found.fault, model.tables)
    return ProtocolRun(scenario=scenario, exploration=found, story=story)
