"""Decisions as `trimtab run` prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from trimtab.cli.output import result, result_json
from trimtab.model.control import Decision
from trimtab.model.control_codec import decision_to

_FIGURE = re.compile(r"(?<![\w.-])(?<!consumer )\d[\d.]*(?:e[+-]?\d+)?(?![\w-])")
"""A number that is neither part of a name nor the index of a consumer."""
_WORST = re.compile(r"consumer \d+(?= (?:carries|receives|has lag) )")


def decision_printer(*, as_json: bool) -> Callable[[Decision], None]:
    """Prints decisions as they come: all as JSON, or as lines those that differ from the last."""
    shown = _Shown()

    def on_decision(decision: Decision) -> None:
        if as_json:
            result_json(decision_to(decision))
        elif shown.is_news(decision):
            result(shown_line(decision))

    return on_decision


class _Shown:
    """What was shown last: the same decision is shown again only when another came between."""

    def __init__(self) -> None:
        self._last: tuple[str, ...] | None = None

    def is_news(self, decision: Decision) -> bool:
        said = gist(decision)
        news, self._last = said != self._last, said
        return news


def gist(decision: Decision) -> tuple[str, ...]:
    """What a decision says without what differs at every look.

    That is measured figures, and which of several overloaded consumers is the worst.
    """
    words = _FIGURE.sub("#", _WORST.sub("a consumer", decision.reason))
    return str(decision.action), str(decision.before), str(decision.after), words


def shown_line(decision: Decision) -> str:
    """A decision as a line for people: local time, action, from → to, reason."""
    at = datetime.fromtimestamp(decision.ts / 1_000_000, tz=UTC).astimezone()
    change = f"{decision.before} → {decision.after}"
    return f"{at:%H:%M:%S}  {decision.action:<10} {change:<8} {decision.reason}"
