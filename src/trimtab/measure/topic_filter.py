"""Which topics are measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.kafka.snapshot import is_internal


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """Topics by name or pattern, else all; Kafka's and Trimtab's own only if named."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    own_prefix: str = "trimtab."

    def wants(self, topic: str) -> bool:
        """Whether this topic is measured."""
        if topic in self.topics:
            return True
        if (self.topics and self.pattern is None) or is_internal(topic, own_prefix=self.own_prefix):
            return False
        return self.pattern is None or self.pattern.fullmatch(topic) is not None
