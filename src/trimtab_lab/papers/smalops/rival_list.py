"""The policies in the table of rivals, and the settings of SMALOPS that `trim` is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.simulate.keys.registry import key_policy_of
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.smalops.design import HASH, ROUND_ROBIN, SMALOPS, TRIM, KeyContestant

_OTHERS = ("pkg", "d-choices", "w-choices", "ch-bl-1.25", "ch-bl-1.05", "gedik", "dkg")

DEFAULT = SMALOPS.with_options("smalops, cool at half", cool_below="half")
TOTAL = SMALOPS.with_options("smalops, from home, total load", initial="home", load="total")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRival:
    """A policy, whether the records of a key stay together, what it gives up, what was chosen."""

    contestant: KeyContestant
    whole_keys: bool
    gives_up: str
    chosen: str


def _rival(contestant: KeyContestant, known: str = "", chosen: str = "") -> KeyRival:
    """What the simulation says about a policy, which it may know by another name."""
    kind = key_policy_of(known or contestant.policy)
    return KeyRival(
        contestant=contestant,
        whole_keys=kind.whole_state,
        gives_up=f"{kind.gives_up}; remembers {kind.memory}",
        chosen=chosen or kind.chosen,
    )


RIVALS = (
    _rival(HASH),
    _rival(SMALOPS, "smalops-paper"),
    _rival(DEFAULT),
    _rival(TOTAL, chosen="A key that becomes hot stays, and all records are balanced."),
    _rival(TRIM),
    *(_rival(KeyContestant(name, name)) for name in _OTHERS),
    _rival(ROUND_ROBIN),
)

_FEWER = SMALOPS.with_options("smalops, 10 records", threshold=f"count:{paper.HOT_COUNT // 10}")
SETTINGS: Mapping[float, tuple[KeyContestant, ...]] = {
    1.0: (SMALOPS, DEFAULT, TOTAL, _FEWER),
    10.0: (SMALOPS, DEFAULT, TOTAL),
}
"""By the length of the window: with 1 s also as many records a second as with 10 s."""
