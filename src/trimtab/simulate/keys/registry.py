"""Every policy of the keys simulation by name: what it does, and what it gives up for that.

Where a paper leaves something open, `chosen` says what was chosen here. All policies divide light
keys by the same hash as Kafka's default partitioner wherever their source only asks for some hash:
so the comparison shows how heavy keys are treated, and not the luck of a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.simulate.keys.key_policies import BoundedLoads, HashOnly, HeavyKeyMap, LearnedKeyMap
from trimtab.simulate.keys.policy import KeyPolicyKind
from trimtab.simulate.keys.record_policies import MoreChoices, PartialKeyGrouping, RoundRobin

if TYPE_CHECKING:
    from trimtab.plan.keys.planner import KeyPlanner

_TABLE = "a routing table of hot keys"


def planner_policy(planner: KeyPlanner, *, name: str, what: str, chosen: str) -> KeyPolicyKind:
    """A policy that asks a planner with these options at the end of each window."""
    from trimtab.simulate.keys.planned import PlannerPolicy

    return KeyPolicyKind(
        name=name,
        what=what,
        whole_state=True,
        memory=_TABLE,
        chosen=chosen,
        create=lambda settings: PlannerPolicy(planner, smooth=settings.smooth),
    )


def _planned() -> list[KeyPolicyKind]:
    from trimtab.plan.keys.smalops import PAPER_MODE, SMALOPS
    from trimtab.plan.keys.trim import TRIM

    return [
        planner_policy(
            SMALOPS,
            name="smalops",
            what="hot keys by two choices, then moved until no partition has too much hot load",
            chosen="The planner's defaults: a key cools down at half the threshold.",
        ),
        planner_policy(
            SMALOPS.with_options(cool_below=PAPER_MODE.cool_below),
            name="smalops-paper",
            what="the same as in Bhattacharya & Wood: a key cools down at the threshold",
            chosen="Ties, the order of partitions and the random choices: see the planner.",
        ),
        planner_policy(
            TRIM,
            name="trim",
            what="moves few keys, where it pays, to even out all load",
            chosen="The planner's defaults.",
        ),
    ]


def _bounded(c: str) -> KeyPolicyKind:
    return KeyPolicyKind(
        name=f"ch-bl-{c}",
        what=f"a hot key goes to the first partition of its ring with load below {c} × the mean",
        whole_state=True,
        memory=_TABLE,
        chosen="The paper bounds the number of keys per server; here it is the number of records "
        "in the last window. Only hot keys move, the largest first, from their home on; the ring "
        "has 64 points per partition. Where no partition has room, the least loaded is taken.",
        create=lambda settings: BoundedLoads(settings.partitions, c=c),
    )


def _rivals() -> list[KeyPolicyKind]:
    return [
        KeyPolicyKind(
            name="hash",
            what="Kafka's default partitioner: murmur2 of the key",
            whole_state=True,
            memory="nothing",
            chosen="",
            create=lambda _: HashOnly(),
        ),
        KeyPolicyKind(
            name="round-robin",
            what="records in turn, whatever their key: the bound for topics without keys",
            whole_state=False,
            memory="nothing",
            chosen="",
            create=lambda settings: RoundRobin(settings.partitions),
        ),
        KeyPolicyKind(
            name="pkg",
            what="each record to the less loaded of the two partitions of its key",
            whole_state=False,
            memory="a counter per partition",
            chosen="One sender, whose load counts are its records since the start. The first "
            "choice is the home, the second always another partition.",
            create=lambda settings: PartialKeyGrouping(settings.partitions),
        ),
        KeyPolicyKind(
            name="d-choices",
            what="as pkg, but heavy keys have as many choices as are needed to spread them",
            whole_state=False,
            memory="the heavy keys",
            chosen="Heavy: more than 1/(5m) of the records of the last window, counted exactly; "
            "none in the first. The number of choices by the paper's inequality, ε = 0.0001.",
            create=lambda settings: MoreChoices(settings.partitions, all_partitions=False),
        ),
        KeyPolicyKind(
            name="w-choices",
            what="as pkg, but heavy keys may go to every partition",
            whole_state=False,
            memory="the heavy keys",
            chosen="Heavy: as for d-choices.",
            create=lambda settings: MoreChoices(settings.partitions, all_partitions=True),
        ),
        *_mapped(),
    ]


def _mapped() -> list[KeyPolicyKind]:
    """Rivals that keep a key's state whole."""
    return [
        _bounded("1.25"),
        _bounded("1.05"),
        KeyPolicyKind(
            name="gedik",
            what="an explicit map for hot keys that counts the cost of migration, hash for others",
            whole_state=True,
            memory=_TABLE,
            chosen="Hot by the same threshold as all; rates are means over the last three windows, "
            "for the paper's three counters. Hot keys are placed anew, the largest first; a move "
            "counts as much as the key's own load. The hash is Kafka's, since the number of "
            "partitions does not change.",
            create=lambda _: HeavyKeyMap(),
        ),
        KeyPolicyKind(
            name="dkg",
            what="heavy keys and buckets of light ones, placed greedily, the largest first",
            whole_state=True,
            memory="a table of heavy keys and of buckets",
            chosen="Learned once, from the first window, counted exactly; 64 buckets per "
            "partition; heavy is a key with more records than a mean bucket. The paper learns "
            "before it starts; here all keys whose partition changes migrate after the first "
            "window.",
            create=lambda settings: LearnedKeyMap(settings.partitions),
        ),
    ]


def key_policies() -> Mapping[str, KeyPolicyKind]:
    """All policies by name: the planners of Trimtab, then their rivals."""
    rivals = _rivals()
    ordered = [rivals[0], *_planned(), *rivals[1:]]
    return MappingProxyType({kind.name: kind for kind in ordered})


def key_policy_of(name: str) -> KeyPolicyKind:
    """The policy of that name."""
    known = key_policies()
    if name not in known:
        close = get_close_matches(name.lower(), known, n=1)
        raise ConfigError(
            f'There is no policy "{name}"; known are {", ".join(known)}.',
            hint=f'Did you mean "{close[0]}"?' if close else None,
        )
    return known[name]
