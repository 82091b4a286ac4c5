"""Which number a consumer of a plan gets: planners count consumers, a backend has numbered ones.

Promise  Pure. The shares of a plan stay together; only the consumer that reads a share changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.apply.consumers.controller_state import GroupView
from trimtab.model.assignment import Assignment


def on_idle(after: Assignment, view: GroupView) -> Assignment:
    """The assignment with idle and starting consumers in place of new ones."""
    wanted = frozenset(after.consumers)
    starting = view.startup.starting.keys() - view.consumers
    idle = [*sorted(view.consumers - wanted), *sorted(starting - wanted)]
    new = sorted(wanted - view.consumers - starting)
    return _renumbered(after, dict(zip(new, idle, strict=False)))


def on_lowest(after: Assignment, view: GroupView) -> Iterator[Assignment]:
    """The assignment with idle consumers in place of busy ones above them, from most to fewest.

    Where only the highest consumers can be removed, the lowest are kept: as many as read, and the
    spares. Busy ones above these are replaced, the highest first, by idle ones that have reported
    lately. Yields nothing where none has to be replaced.
    """
    if not view.removes_highest_only:
        return
    busy = frozenset(after.consumers)
    kept = sorted(view.consumers | busy)[: len(busy) + view.spares]
    idle = [c for c in kept if c not in busy | view.silent]
    pairs = list(zip(sorted(busy.difference(kept), reverse=True), idle, strict=False))
    for count in range(len(pairs), 0, -1):
        yield _renumbered(after, dict(pairs[:count]))


def is_renumbered(before: Assignment, after: Assignment) -> bool:
    """Whether the same shares are read, by whichever consumers."""
    pairs = {(before.get(p), c) for p, c in after.items()}
    return len(pairs) == len(before.consumers) == len(after.consumers)


def _renumbered(after: Assignment, names: dict[int, int]) -> Assignment:
    if not names:
        return after
    return Assignment({p: names.get(c, c) for p, c in after.items()}, after.notes)
