"""What a controller waits for before it decides anything else, in words for the operator.

Promise  Pure. While partitions wait for a consumer that is starting, nothing else is decided, save
         that partitions without a reader are given out: new ones at once, those that were promised
         to the starting consumer after a minute, as far as other consumers can take them.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.apply.consumers.controller import GroupView

_NAMED = 3
_USUAL_START_S = 5.0
_UNREAD_S = 60.0


def subscribed(view: GroupView, group: str) -> str:
    """Why nothing can be done while a directed group has ordinary members."""
    return (
        f"group {group} has subscribed members ({listed(view.subscribed)}), so the brokers refuse "
        "the commits of directed consumers: end those members, or use --mode group"
    )


def is_about_to_start(view: GroupView) -> bool:
    """Whether a consumer that is waited for has had only the few seconds that a start takes."""
    startup = view.startup
    if not startup.promised or view.orphans - startup.promised:
        return False
    return max(startup.starting.values(), default=0.0) < _USUAL_START_S


def waits_for_start(view: GroupView) -> str | None:
    """Which consumers are waited for, and for how long; None where nothing is waited for."""
    startup = view.startup
    if startup.promised:
        if view.orphans - startup.promised or _shares_meanwhile(view):
            return None
        return _starting(view)
    if startup.retry_in_s > 0 and not (view.consumers or startup.starting):
        return _retries(view)
    return None


def reach(view: GroupView) -> tuple[int | None, str]:
    """How many consumers can be had now, and why there cannot be more; None without a limit."""
    startup = view.startup
    if _shares_meanwhile(view):
        return len(view.consumers), _starting(view)
    if startup.retry_in_s > 0:
        return len(view.consumers.union(startup.starting)), _retries(view)
    return None, ""


def ending(view: GroupView) -> str:
    """Whose partitions nobody else may read until it is gone; empty where there is none."""
    if not view.withheld:
        return ""
    names = listed(f"consumer {c}" + (f" ({why})" if why else "") for c, why in view.ending.items())
    are = "is" if len(view.ending) == 1 else "are"
    return f"{names} {are} not gone yet: {listed(map(str, sorted(view.withheld)))} cannot be read"


def listed(words: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    names = list(words)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _shares_meanwhile(view: GroupView) -> bool:
    """Whether others read what was promised to a consumer that takes long to start."""
    waited_s = max(view.startup.starting.values(), default=0.0)
    promised = bool(view.orphans & view.startup.promised)
    return promised and bool(view.consumers) and waited_s > _UNREAD_S


def _starting(view: GroupView) -> str:
    startup = view.startup
    names = listed(f"consumer {c}" for c in startup.starting)
    waited_s = max(startup.starting.values(), default=0.0)
    words = f" ({startup.words})" if startup.words else ""
    return (
        f"waiting for {names} to start: {waited_s:.0f} s of at most {startup.patience_s:g} s{words}"
    )


def _retries(view: GroupView) -> str:
    startup = view.startup
    return f"{startup.failure}; the next try is in {startup.retry_in_s:.0f} s"
