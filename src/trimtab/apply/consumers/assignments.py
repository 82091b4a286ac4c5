"""Group mode: maps a plan's bins to the members that a group has now, however many they are.

Promise  `answer` and `fallback` give every partition to exactly one member. Bins go to the members
         that own most of their load (maximum-weight matching, unknown loads weigh 1); bins without
         an owner go to the remaining members, by client id in natural order. Surplus members get
         nothing; surplus bins are split, heaviest partition first, to the least loaded. A partition
         outside the plan stays with its owner if that has a bin, else goes to the member with
         fewest. Of two owners the one with the higher generation counts, neither if they are equal.
         Deterministic: ties go to the first member.
Cost     The matching; the rest is O(n log n).
Paper    Ezzeddine et al., section 3.3. The naming of bins and the fallback are ours.

>>> first, second = TopicPartition("t", 0), TopicPartition("t", 1)
>>> members = (GroupMember(member_id="x", client_id="c-0", owned=(second,)),
...            GroupMember(member_id="y", client_id="c-1"))
>>> plan = GroupPlan(version=3, assignment=Assignment({first: 0, second: 1}))
>>> answer(plan, members, (first, second))
{'x': (TopicPartition(topic='t', partition=1),), 'y': (TopicPartition(topic='t', partition=0),)}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from trimtab.errors import ProtocolViolation
from trimtab.model import wire
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION, Json
from trimtab.model.json_reader import Node
from trimtab.model.wire import NOT_WRITTEN, REQUIRED, Count, Wire, are_distinct
from trimtab.plan.consumers.matching import named

NO_PLAN = -1
"""The version of an assignment that follows no plan; every plan is newer."""

_NAMED = 3

Shares = Mapping[str, tuple[TopicPartition, ...]]
"""Member → its partitions, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The assignment that a group should have; later plans have higher versions."""

    version: int
    assignment: Assignment
    loads: Mapping[TopicPartition, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.version < 0:
            raise ValueError(f"version {self.version}: versions of plans start at 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A joining member and its previous partitions; `topics` None means all topics of the group.

    `planned` is False for a member that has never had an assignment by a plan.
    """

    member_id: str
    client_id: str
    owned: Annotated[tuple[TopicPartition, ...], REQUIRED] = ()
    generation: Annotated[int, NOT_WRITTEN] = -1
    topics: Annotated[frozenset[str] | None, NOT_WRITTEN] = None
    planned: Annotated[bool, NOT_WRITTEN] = True

    def reads(self, partition: TopicPartition) -> bool:
        """Whether this member has subscribed to the partition's topic."""
        return self.topics is None or partition.topic in self.topics


_MEMBERS_ONCE = Wire(
    rules=(
        (bool, "has no member"),
        (lambda members: are_distinct([m.member_id for m in members]), "has duplicates"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRequest:
    """The request of a group's leader during a rebalance."""

    group: str
    generation: int
    members: Annotated[tuple[GroupMember, ...], _MEMBERS_ONCE]
    partitions: Annotated[
        tuple[TopicPartition, ...], Wire(rules=((are_distinct, "has duplicates"),))
    ]


@dataclass(frozen=True, slots=True)
class AssignmentAnswer:
    """The controller's answer: the assignment, and the version of its plan."""

    version: Count
    assignment: Shares


# ---------------------------------------------------------------- assignment


def answered(plan: GroupPlan, request: AssignmentRequest) -> AssignmentAnswer:
    """The plan's answer to a request."""
    return AssignmentAnswer(plan.version, answer(plan, request.members, request.partitions))


def answer(
    plan: GroupPlan, members: Collection[GroupMember], partitions: Collection[TopicPartition]
) -> dict[str, tuple[TopicPartition, ...]]:
    """The partitions of each member, so that the plan's bins stay together and little moves."""
    ranked = _ranked(members)
    there = frozenset(partitions)
    planned = plan.assignment.only(dict.fromkeys(there))
    bins = [[p for p in sorted(planned) if planned[p] == c] for c in planned.consumers]
    weights = {p: plan.loads.get(p, 1) for p in there}
    owners = _owners(ranked)
    places = named(bins, Assignment(owners), weights, idle=range(len(ranked)))

    # If the plan has no bins for these topics, all members take part.
    serving = [place for place in places if place < len(ranked)] or list(range(len(ranked)))
    shares: dict[int, list[TopicPartition]] = {place: [] for place in serving}
    unassigned: list[TopicPartition] = []
    for bin_, place in zip(bins, places, strict=True):
        shares.get(place, unassigned).extend(bin_)
    load = {place: sum(weights[p] for p in share) for place, share in shares.items()}
    for p in sorted(unassigned, key=lambda p: (-weights[p], p)):
        place = min(shares, key=lambda m: (load[m], len(shares[m]), m))
        shares[place].append(p)
        load[place] += weights[p]
    for p in _unplanned_in_order(there - planned.keys(), shares, owners):
        place = owners[p] if owners.get(p) in shares else min(shares, key=_by_count(shares))
        shares[place].append(p)
    return {m.member_id: tuple(sorted(shares.get(i, ()))) for i, m in enumerate(ranked)}


def fallback(
    members: Collection[GroupMember], partitions: Collection[TopicPartition]
) -> dict[str, tuple[TopicPartition, ...]]:
    """Members keep what they owned; the rest goes one by one to the member with fewest partitions.

    If no member has ever followed a plan, counts are levelled to differ by one at most: else the
    first member to join would keep everything. Topics without a subscriber are left out.
    """
    ranked = _ranked(members)
    there = frozenset(partitions)
    owners = {p: i for p, i in _owners(ranked).items() if p in there and ranked[i].reads(p)}
    shares: dict[int, list[TopicPartition]] = {i: [] for i in range(len(ranked))}
    for p, i in owners.items():
        shares[i].append(p)
    for p in sorted(there - owners.keys()):
        able = [i for i, member in enumerate(ranked) if member.reads(p)]
        if able:
            shares[min(able, key=_by_count(shares))].append(p)
    if not any(m.planned for m in ranked):
        _level_counts(shares, ranked)
    return {m.member_id: tuple(sorted(shares[i])) for i, m in enumerate(ranked)}


def _level_counts(shares: dict[int, list[TopicPartition]], ranked: Sequence[GroupMember]) -> None:
    """Moves partitions to members with at least two fewer that subscribe to their topic."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(shares, key=lambda i: (-len(shares[i]), i)):
            for taker in sorted(shares, key=_by_count(shares)):
                spare = (len(shares[giver]) - len(shares[taker])) // 2
                if spare <= 0:
                    continue
                able = sorted(p for p in shares[giver] if ranked[taker].reads(p))
                given = frozenset(able[-spare:])
                shares[giver] = [p for p in shares[giver] if p not in given]
                shares[taker] += given
                moved = moved or bool(given)


def checked(
    shares: Shares, members: Collection[GroupMember], partitions: Collection[TopicPartition]
) -> dict[str, tuple[TopicPartition, ...]]:
    """The same shares; raises unless every partition has exactly one subscribed member."""
    known = {m.member_id: m for m in members}
    given = Counter(p for share in shares.values() for p in share)
    faults: dict[str, Sequence[object]] = {
        "unknown members": sorted(shares.keys() - known.keys()),
        "assigned twice": sorted(p for p, times in given.items() if times > 1),
        "not partitions of this group": sorted(given.keys() - set(partitions)),
        "not assigned": sorted(set(partitions) - given.keys()),
        "assigned to a member that has not subscribed": sorted(
            p for m, share in shares.items() for p in share if m in known and not known[m].reads(p)
        ),
    }
    found = "; ".join(f"{what}: {_some(which)}" for what, which in faults.items() if which)
    if found:
        raise ProtocolViolation(f"The controller's assignment cannot be used: {found}.")
    return {m: tuple(sorted(shares.get(m, ()))) for m in known}


def settled(members: Collection[GroupMember]) -> tuple[GroupMember, ...]:
    """The same members in order, each with the partitions that only it owns."""
    ranked = _ranked(members)
    owners = _owners(ranked)
    return tuple(
        replace(m, owned=tuple(p for p in sorted(set(m.owned)) if owners.get(p) == i))
        for i, m in enumerate(ranked)
    )


def _ranked(members: Collection[GroupMember]) -> Sequence[GroupMember]:
    if not members:
        raise ValueError("a group without members can read nothing")
    return sorted(members, key=lambda m: (_natural(m.client_id), m.member_id))


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key that puts consumer-10 after consumer-9."""
    pieces = re.findall(r"([^0-9]*)([0-9]*)", name)
    return tuple((text, int(digits or -1)) for text, digits in pieces)


def _owners(ranked: Sequence[GroupMember]) -> dict[TopicPartition, int]:
    """Partition → index of its owner; a partition claimed twice in one generation has none."""
    claims: dict[TopicPartition, list[tuple[int, int]]] = {}
    for place, member in enumerate(ranked):
        for p in dict.fromkeys(member.owned):
            claims.setdefault(p, []).append((member.generation, place))
    owners = {}
    for p, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        places = [place for generation, place in claimed if generation == newest]
        if len(places) == 1:
            owners[p] = places[0]
    return owners


def _unplanned_in_order(
    unplanned: Iterable[TopicPartition],
    shares: Mapping[int, object],
    owners: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    """Partitions that stay come first, so that counts are right when the others are assigned."""
    return sorted(unplanned, key=lambda p: (owners.get(p) not in shares, p))


def _by_count(shares: Mapping[int, Sequence[object]]) -> Callable[[int], tuple[int, int]]:
    return lambda place: (len(shares[place]), place)


def _some(which: Sequence[object]) -> str:
    more = f" and {len(which) - _NAMED} more" if len(which) > _NAMED else ""
    return ", ".join(str(w) for w in which[:_NAMED]) + more


# ---------------------------------------------------------------- as JSON


def request_to(request: AssignmentRequest) -> Json:
    """A request as the controller reads it."""
    return {"v": VERSION, **wire.write(request)}


def request_from(node: Node) -> AssignmentRequest:
    """Reads a request; each member and each partition may occur only once."""
    node.version()
    return wire.read(AssignmentRequest, node)


def answer_to(reply: AssignmentAnswer) -> Json:
    """An answer as the leader reads it."""
    in_order = replace(reply, assignment=dict(sorted(reply.assignment.items())))
    return {"v": VERSION, **wire.write(in_order)}


def answer_from(node: Node) -> AssignmentAnswer:
    """Reads an answer; `checked` tells whether it can be used."""
    node.version()
    return wire.read(AssignmentAnswer, node)
