"""Which topics are measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.kafka.snapshot import is_internal


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """Topics by name or pattern, else all; Kafka's and Trimtab's own only if named.

    `own` are topics that are Trimtab's although their names do not begin with its prefix.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    own_prefix: str = "trimtab."
    own: frozenset[str] = frozenset()

    def wants(self, topic: str) -> bool:
        """Whether this topic is measured."""
        if topic in self.topics:
            return True
        if (self.topics and self.pattern is None) or topic in self.own:
            return False
        if is_internal(topic, own_prefix=self.own_prefix):
            return False
        return self.pattern is None or self.pattern.fullmatch(topic) is not None
