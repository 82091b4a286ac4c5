"""The policies in the table of rivals, and the settings of SMALOPS that `trim` is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.simulate.keys.policy import KeyPolicyKind
from trimtab.simulate.keys.registry import key_policy_of
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops.design import HASH, ROUND_ROBIN, SMALOPS, TRIM, KeyContestant

_OTHERS = ("pkg", "d-choices", "w-choices", "ch-bl-1.25", "ch-bl-1.05", "gedik", "dkg")

DEFAULT = SMALOPS.with_options("smalops, cool at half", cool_below="half")
TOTAL = SMALOPS.with_options("smalops, from home, total load", initial="home", load="total")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRival:
    """A policy with what the simulation says about it."""

    contestant: KeyContestant
    kind: KeyPolicyKind

    @property
    def whole_keys(self) -> bool:
        """Whether the records and the state of a key are on one partition."""
        return self.kind.whole_state

    @property
    def gives_up(self) -> str:
        """What it gives up, and what it has to remember."""
        return f"{self.kind.gives_up}; remembers {self.kind.memory}"


def _rival(contestant: KeyContestant) -> KeyRival:
    return KeyRival(contestant=contestant, kind=key_policy_of(contestant.policy))


RIVALS = tuple(
    map(
        _rival,
        (
            HASH,
            SMALOPS,
            DEFAULT,
            TOTAL,
            TRIM,
            *(KeyContestant(name, name) for name in _OTHERS),
            ROUND_ROBIN,
        ),
    )
)

_FEWER = SMALOPS.with_options("smalops, 10 records", threshold=f"count:{paper.HOT_COUNT // 10}")
SETTINGS: Mapping[float, tuple[KeyContestant, ...]] = {
    1.0: (SMALOPS, DEFAULT, TOTAL, _FEWER),
    10.0: (SMALOPS, DEFAULT, TOTAL),
}
"""By the length of the window: with 1 s also as many records a second as with 10 s."""
