"""The members of a subscribed group as a plan's consumers: numbers that stay, and who reads what.

Why      Plans speak of consumers 0, 1, 2 …; pods and members have names, come and go, and which of
         them an orchestrator stops is its own choice. If every look numbered them anew, partitions
         would seem to have lost their consumer, and each time the whole group would rebalance.
Promise  A name keeps its number as long as it is there and the plan gives that number something.
         A number of the plan that nobody has goes to a newcomer, else to a member that the plan
         gives nothing. So as many members as the plan has consumers always cover it, whichever of
         them were stopped. Deterministic: newcomers are numbered in the order of their names.

>>> numbered(["a", "c"], {"a": 0, "b": 1, "c": 2}, planned=[0, 2])
{'a': 0, 'c': 2}
>>> numbered(["b", "c", "d"], {"a": 0, "b": 1, "c": 2}, planned=[0, 1])
{'b': 1, 'c': 2, 'd': 0}
>>> numbered(["b", "c"], {"a": 0, "b": 1, "c": 2}, planned=[0, 1])
{'b': 1, 'c': 0}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from trimtab.apply.consumers.assignments import (
    AssignmentRequest,
    GroupMember,
    GroupPlan,
    Shares,
    answer,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition


def numbered(
    names: Collection[str], known: Mapping[str, int], planned: Iterable[int]
) -> dict[str, int]:
    """A number for each of these names, by name."""
    kept = {name: known[name] for name in sorted(names) if name in known}
    new = [name for name in sorted(names) if name not in known]
    taken = set(kept.values())
    wanted = set(planned)
    idle = sorted((name for name in kept if kept[name] not in wanted), key=kept.__getitem__)
    kept |= dict(zip((*new, *idle), sorted(wanted - taken), strict=False))
    free = (number for number in count() if number not in {*kept.values(), *wanted})
    for name in new:
        if name not in kept:
            kept[name] = next(free)
    return dict(sorted(kept.items()))


def read_by(
    plan: GroupPlan | None, consumers: Collection[int], partitions: Collection[TopicPartition]
) -> Assignment:
    """Who reads what while these consumers carry out a plan; everything, if there is any of them.

    The brokers see to it that each partition has a member: what the plan gives to consumers that
    are not there, or does not know yet, is dealt to the others as `answer` does.
    """
    if plan is None or not consumers or not partitions:
        return Assignment()
    members = [
        GroupMember(
            member_id=str(c),
            client_id=str(c),
            owned=tuple(p for p in sorted(plan.assignment) if plan.assignment[p] == c),
        )
        for c in sorted(consumers)
    ]
    shares = answer(plan, members, partitions)
    return Assignment({p: int(c) for c, share in shares.items() for p in share})


@dataclass(frozen=True, slots=True)
class Told:
    """What the group's leader asked last, and what it was told by which plan."""

    request: AssignmentRequest
    shares: Shares
    plan: GroupPlan

    def is_told_otherwise_by(self, plan: GroupPlan) -> bool:
        """Whether the same members would now be given something else.

        With fewer members than bins there is more than one right answer: what the same question
        is answered with is as good as what members are told that have these shares already. Nor
        are loads that have changed since a reason to deal anew.
        """
        plan = replace(plan, loads=self.plan.loads)
        asked, shares = self.request, dict(self.shares)
        if answer(plan, asked.members, asked.partitions) == shares:
            return False
        members = [replace(m, owned=shares.get(m.member_id, ())) for m in asked.members]
        return answer(plan, members, asked.partitions) != shares

    def never_learns_of(self, plan: GroupPlan) -> bool:
        """Whether a plan that is news has the version that members have already."""
        if plan is self.plan or plan.version != self.plan.version:
            return False
        return self.is_told_otherwise_by(plan)
