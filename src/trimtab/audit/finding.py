"""One finding of an audit, and the words that findings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.audit.faults import Fault
from trimtab.audit.topology import SERVER
from trimtab.audit.unevenness import Level

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: its level, kind, number of objects concerned, text, and advice to fix it."""

    level: Level
    kind: str
    count: int
    text: str
    advice: str = ""

    def advice_for(self, server: str) -> str:
        """The advice with the address of the cluster in its commands."""
        return self.advice.replace(SERVER, server)


def some(names: Sequence[object], most: int = _NAMED) -> str:
    """The first few names, and how many more there are.

    >>> some([1, 2, 3], 2)
    '1, 2 and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "topic"), counted(1200, "topic")
    ('1 topic', '1,200 topics')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def named(fault: Fault) -> str:
    """The brokers of a failure in words.

    >>> from trimtab.audit.topology import audit
    >>> from trimtab.testing.placements import placement
    >>> named(audit(placement({"A": [[1]]})).faults[0])
    'broker 1'
    """
    brokers = in_words(fault.dead)
    return f"{fault.what} ({brokers})" if fault.what else brokers


def in_words(ids: Sequence[int]) -> str:
    """Brokers by their ids."""
    return f"broker{'s'[: len(ids) != 1]} {some(ids, 8)}"
