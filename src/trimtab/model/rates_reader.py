"""Reads records of `trimtab.rates` as they come: of the topics asked for, and the newest first.

Why      A large topic has megabytes of rates, five times per second. A reader that starts finds
         those of a minute; reading them all would take longer than they are valid.
Promise  Records of other topics are not parsed. What comes together is read in full up to 8 MB; of
         more, only the two newest complete rates of each topic are, since λ is their difference.
         A record that cannot be read hides no other.
Cost     O(partitions) per record that is read; nothing for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from trimtab.errors import BadFile
from trimtab.model.control import TopicRates
from trimtab.model.control_codec import topic_rates_from
from trimtab.model.json_reader import parse
from trimtab.model.rate_parts import RateParts

_IN_FULL_BYTES = 8_000_000
_NEWEST = 2

Keyed = tuple[bytes | None, bytes]
"""The key and the value of a record."""


class RatesReader:
    """Reads records and keeps the parts of rates that are not complete yet."""

    def __init__(self, *, origin: str, topics: Collection[str] | None = None) -> None:
        """`origin` is the name of the topic of rates; without `topics` all of them are read."""
        self._origin = origin
        self._keys = None if topics is None else frozenset(topic.encode() for topic in topics)
        self._parts = RateParts()

    def read(self, records: Iterable[Keyed]) -> tuple[list[TopicRates], list[BadFile]]:
        """The rates that these records complete, in their order, and why others were refused."""
        ours = [record for record in records if self._is_asked(record[0])]
        if sum(len(value) for _, value in ours) <= _IN_FULL_BYTES:
            return self._joined(ours, most=len(ours))
        complete, refused = self._joined(reversed(ours), most=_NEWEST)
        return complete[::-1], refused[::-1]

    def _is_asked(self, key: bytes | None) -> bool:
        return self._keys is None or key is None or key in self._keys

    def _joined(
        self, records: Iterable[Keyed], *, most: int
    ) -> tuple[list[TopicRates], list[BadFile]]:
        """Reads until there are `most` complete rates of each topic."""
        complete: list[TopicRates] = []
        refused: list[BadFile] = []
        found: Counter[bytes | None] = Counter()
        for key, value in records:
            if found[key] >= most:
                continue
            try:
                rates = self._parts.joined(topic_rates_from(parse(value, origin=self._origin)))
            except BadFile as error:
                refused.append(error)
                continue
            if rates is not None:
                complete.append(rates)
                found[key] += 1
        return complete, refused
