"""The source of leaders that a watch asks, in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from trimtab.errors import TrimtabError, UnknownTopic

HOURS = 10_000.0


class FakeSource:
    """Knows `topics` and `where`; `fault` is raised instead, `asked` tells of each question.

    `faults` are those of single topics.
    """

    def __init__(self, topics: dict[str, dict[int, int]]) -> None:
        self.topics = topics
        self.cluster: str | None = "c"
        self.where: dict[int, str | None] = {}
        self.fault: TrimtabError | None = None
        self.faults: dict[str, TrimtabError] = {}
        self.racks_fault: TrimtabError | None = None
        self.questions: list[str] = []
        self.racks_asked = 0
        self.asked = threading.Condition()

    def leaders(self, topic: str, within_s: float) -> Mapping[int, int]:
        with self.asked:
            self.questions.append(topic)
            self.asked.notify_all()
        if self.fault is not None:
            raise self.fault
        if topic in self.faults:
            raise self.faults[topic]
        if topic not in self.topics:
            raise UnknownTopic(topic)
        return dict(self.topics[topic])

    def racks(self, within_s: float) -> Mapping[int, str | None]:
        self.racks_asked += 1
        if self.racks_fault is not None:
            raise self.racks_fault
        return dict(self.where)

    def wait_for(self, questions: int) -> None:
        with self.asked:
            assert self.asked.wait_for(lambda: len(self.questions) >= questions, 20)
