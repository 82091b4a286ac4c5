"""The phases of the controller: only the transitions of the table are possible."""

from __future__ import annotations

from itertools import product

import pytest

from trimtab.apply.consumers import controller
from trimtab.apply.consumers.controller_state import PHASES, ControllerState, Phase
from trimtab.apply.consumers.controller_turn import ControllerTurn


@pytest.mark.parametrize(("source", "target"), list(product(Phase, Phase)))
def test_only_the_transitions_of_the_table_are_possible(source: Phase, target: Phase) -> None:
    turn = ControllerTurn(ControllerState(phase=source, now=7.0))
    if target in PHASES[source]:
        turn.enter(target, lost="")
        assert (turn.state.phase, turn.state.entered) == (target, 7.0)
    else:
        with pytest.raises(AssertionError, match=f"{source} cannot become {target}"):
            turn.enter(target)


def test_every_phase_is_drawn_in_the_head_of_the_controller() -> None:
    assert all(phase.name in (controller.__doc__ or "") for phase in PHASES)
