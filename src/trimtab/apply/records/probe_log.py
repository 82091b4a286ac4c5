"""The latencies of one broker's probes over the last seconds.

Why      Only one probe is in flight at a time, so a slow broker is probed less often: a second of
         silence would count as one slow probe among twenty good ones, although all records sent
         at a steady pace would have waited.
Promise  `latencies` are those of single probes. `waits` are those of records at the pace: a probe
         that took longer than the pace counts as all records that would have been sent meanwhile,
         each with the remaining time. An unanswered probe counts with at least its age.
Cost     O(window / pace) when asked.

>>> log = ProbeLog(pace_s=0.1, kept_s=10.0)
>>> log.sent(10.0)
>>> log.answered(10.25, latency_s=0.25)
>>> seen = log.seen(10.3)
>>> seen.latencies(2.0), [round(wait, 2) for wait in seen.waits(2.0)]
([0.25], [0.25, 0.15, 0.05])
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The probes of one broker at one moment.

    Attributes:
        answers: How long ago each was answered, and its latency; the newest last.
        silent_s: For how long probes have been unanswered; 0 if the last one was answered.
        pace_s: The time between two probes, while they are answered.
    """

    answers: tuple[tuple[float, float], ...] = ()
    silent_s: float = 0.0
    pace_s: float = 0.1

    def latencies(self, within_s: float) -> list[float]:
        """The latencies of recent probes, sorted; includes the probe in flight if it is late."""
        found = [latency_s for ago_s, latency_s in self.answers if ago_s <= within_s]
        return sorted(found + [self.silent_s] * (self.silent_s > self.pace_s))

    def waits(self, within_s: float) -> list[float]:
        """How long records at the pace would have waited recently."""
        return [
            wait
            for ago_s, latency_s in (*self.answers, *[(0.0, self.silent_s)] * (self.silent_s > 0))
            for wait in self._met(ago_s, latency_s, within_s)
        ]

    def _met(self, ago_s: float, latency_s: float, within_s: float) -> Iterator[float]:
        too_early = max(0, math.ceil((ago_s + latency_s - within_s) / self.pace_s))
        wait_s = latency_s - too_early * self.pace_s
        while wait_s > 0:
            yield wait_s
            wait_s -= self.pace_s


class ProbeLog:
    """Stores the probes of one broker; times are monotonic seconds."""

    def __init__(self, *, pace_s: float, kept_s: float) -> None:
        self._pace_s = pace_s
        self._kept_s = kept_s
        self._answers: deque[tuple[float, float]] = deque()
        self._silent_since: float | None = None
        self.waiting = False
        """Whether a probe is in flight."""

    def sent(self, now: float) -> None:
        """A probe was sent."""
        self.waiting = True
        if self._silent_since is None:
            self._silent_since = now

    def answered(self, now: float, *, latency_s: float) -> None:
        """The probe was answered."""
        self._answers.append((now, latency_s))
        self._silent_since = None
        self.waiting = False

    def failed(self) -> None:
        """The probe failed; the broker stays silent."""
        self.waiting = False

    def seen(self, now: float) -> Probes:
        """The probes as of now."""
        while self._answers and self._answers[0][0] < now - self._kept_s:
            self._answers.popleft()
        return Probes(
            answers=tuple((now - at, latency_s) for at, latency_s in self._answers),
            silent_s=0.0 if self._silent_since is None else max(0.0, now - self._silent_since),
            pace_s=self._pace_s,
        )
