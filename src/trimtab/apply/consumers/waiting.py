"""Reasons for a controller to wait before it decides anything else, in words for the operator.

Promise  Pure. While partitions wait for a consumer that is starting, only partitions without a
         consumer are assigned: new ones at once, those meant for the starting consumer after a
         minute, as far as other consumers have capacity.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.apply.consumers.controller_state import GroupView

_NAMED = 3
_USUAL_START_S = 5.0
_UNREAD_S = 60.0


def subscribed(view: GroupView, group: str) -> str:
    """Why nothing can be done while a directed group has subscribed members."""
    return (
        f"group {group} has subscribed members ({listed(view.subscribed)}), so brokers refuse the "
        "commits of directed consumers: stop those members, or use --mode group"
    )


def is_about_to_start(view: GroupView) -> bool:
    """Whether the awaited consumers have been starting for only a few seconds."""
    startup = view.startup
    if not startup.promised or view.orphans - startup.promised:
        return False
    return max(startup.starting.values(), default=0.0) < _USUAL_START_S


def waits_for_start(view: GroupView) -> str | None:
    """Which consumers are awaited, and for how long; None if none is."""
    startup = view.startup
    if startup.promised:
        if view.orphans - startup.promised or _shares_meanwhile(view):
            return None
        return _starting(view)
    if startup.retry_in_s > 0 and not (view.consumers or startup.starting):
        return _retries(view)
    return None


def available_consumers(view: GroupView) -> tuple[int | None, str]:
    """How many consumers are available now, and why not more; None without a limit."""
    startup = view.startup
    if _shares_meanwhile(view):
        return len(view.consumers), _starting(view)
    if startup.retry_in_s > 0:
        return len(view.consumers.union(startup.starting)), _retries(view)
    return None, ""


def ending(view: GroupView) -> str:
    """Which consumers have not exited yet, so their partitions cannot be read; may be empty."""
    if not view.withheld:
        return ""
    names = listed(f"consumer {c}" + (f" ({why})" if why else "") for c, why in view.ending.items())
    have = "has" if len(view.ending) == 1 else "have"
    partitions = listed(map(str, sorted(view.withheld)))
    return f"{names} {have} not exited yet: {partitions} cannot be read"


def listed(texts: Iterable[str]) -> str:
    """The first three of these, and how many more there are."""
    names = list(texts)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _shares_meanwhile(view: GroupView) -> bool:
    """Whether other consumers take the partitions of a consumer that starts slowly."""
    waited_s = max(view.startup.starting.values(), default=0.0)
    promised = bool(view.orphans & view.startup.promised)
    return promised and bool(view.consumers) and waited_s > _UNREAD_S


def _starting(view: GroupView) -> str:
    startup = view.startup
    names = listed(f"consumer {c}" for c in startup.starting)
    waited_s = max(startup.starting.values(), default=0.0)
    why = f" ({startup.reason})" if startup.reason else ""
    return (
        f"waiting for {names} to start: {waited_s:.0f} s of at most {startup.patience_s:g} s{why}"
    )


def _retries(view: GroupView) -> str:
    startup = view.startup
    return f"{startup.failure}; the next try is in {startup.retry_in_s:.0f} s"
