"""The members of a subscribed group as a plan's consumers: stable numbers, and the assignment.

Why      Plans number consumers 0, 1, 2 …; pods and members have names, join and leave, and the
         orchestrator chooses which one it stops. If every observation numbered them again,
         partitions would seem to have no consumer, and the group would rebalance each time.
Promise  A member keeps its number while it exists and the plan gives that number partitions. A
         number of the plan without a member goes to a new member, else to one without partitions.
         So as many members as the plan has consumers always cover it, whichever were stopped.
         Deterministic: new members are numbered in the order of their names.

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
    """The assignment while these consumers follow a plan; it covers all partitions.

    Every partition has a member: those that the plan gives to missing consumers, or does not
    contain, are assigned to the others as `answer` does. Empty without a plan or consumers.
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
class ServedAssignment:
    """The last request of the group's leader, the answer to it, and the plan used."""

    request: AssignmentRequest
    shares: Shares
    plan: GroupPlan

    def differs_under(self, plan: GroupPlan) -> bool:
        """Whether the same members would now be given other partitions.

        With fewer members than bins several answers are correct: the plan's answer to the same
        request, or to members that already have these shares. Changed loads do not count.
        """
        plan = replace(plan, loads=self.plan.loads)
        asked, shares = self.request, dict(self.shares)
        if answer(plan, asked.members, asked.partitions) == shares:
            return False
        members = [replace(m, owned=shares.get(m.member_id, ())) for m in asked.members]
        return answer(plan, members, asked.partitions) != shares

    def misses(self, plan: GroupPlan) -> bool:
        """Whether members would not notice a different plan, as they have its version already."""
        if plan is self.plan or plan.version != self.plan.version:
            return False
        return self.differs_under(plan)
