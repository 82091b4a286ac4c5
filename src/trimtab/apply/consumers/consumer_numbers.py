"""Which number a consumer of a plan gets: planners count consumers, a backend has numbered ones.

Promise  Pure. The shares of a plan stay together; only the consumer that reads a share changes.
"""

from __future__ import annotations

from trimtab.apply.consumers.controller_state import GroupView
from trimtab.model.assignment import Assignment


def on_idle(after: Assignment, view: GroupView) -> Assignment:
    """The assignment with idle and starting consumers in place of new ones."""
    wanted = frozenset(after.consumers)
    starting = view.startup.starting.keys() - view.consumers
    idle = [*sorted(view.consumers - wanted), *sorted(starting - wanted)]
    new = sorted(wanted - view.consumers - starting)
    return _renumbered(after, dict(zip(new, idle, strict=False)))


def on_lowest(after: Assignment, view: GroupView) -> Assignment:
    """The assignment with idle consumers in place of the highest busy ones above them.

    It changes nothing where the backend can remove any consumer, or would remove none: then the
    idle ones are kept as spares.
    """
    wanted = frozenset(after.consumers)
    idle = sorted(view.consumers - wanted)
    if not view.removes_highest_only or len(idle) <= view.spares:
        return after
    pairs = zip(sorted(wanted, reverse=True), idle, strict=False)
    return _renumbered(after, {high: low for high, low in pairs if low < high})


def _renumbered(after: Assignment, names: dict[int, int]) -> Assignment:
    if not names:
        return after
    return Assignment({p: names.get(c, c) for p, c in after.items()}, after.notes)
