"""What the probes of one broker say of the last seconds.

Why      Only one probe is under way at a time, so a slow broker is asked more seldom: left at
         that, a second of silence would count as one probe of a second among twenty good ones.
         Records that come at a steady pace would all have met that second.
Promise  `latencies` are those of single probes: each is a piece of evidence of its own. `waits`
         are what records at the pace would have met: a probe that took longer than the pace
         counts as all those that would have been sent while it was under way, each with the time
         that was left. A probe that has not come back counts as at least its age.
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
    """Probes of one broker as they stand at one moment.

    Attributes:
        answers: How long ago each was answered, and what it took; the newest last.
        silent_s: For how long nothing came back that was asked for; 0 when the last probe did.
        pace_s: The time between two probes, as long as they are answered.
    """

    answers: tuple[tuple[float, float], ...] = ()
    silent_s: float = 0.0
    pace_s: float = 0.1

    def latencies(self, within_s: float) -> list[float]:
        """What the probes of the last seconds took, in order; the one under way if it is late."""
        found = [latency_s for ago_s, latency_s in self.answers if ago_s <= within_s]
        return sorted(found + [self.silent_s] * (self.silent_s > self.pace_s))

    def waits(self, within_s: float) -> list[float]:
        """What records at the pace would have waited over the last seconds."""
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
    """Keeps the probes of one broker; times are seconds that only grow."""

    def __init__(self, *, pace_s: float, kept_s: float) -> None:
        self._pace_s = pace_s
        self._kept_s = kept_s
        self._answers: deque[tuple[float, float]] = deque()
        self._silent_since: float | None = None
        self.waiting = False
        """Whether a probe is under way."""

    def sent(self, now: float) -> None:
        """A probe goes out."""
        self.waiting = True
        if self._silent_since is None:
            self._silent_since = now

    def answered(self, now: float, *, latency_s: float) -> None:
        """The probe came back."""
        self._answers.append((now, latency_s))
        self._silent_since = None
        self.waiting = False

    def failed(self) -> None:
        """The probe was given up; the silence goes on."""
        self.waiting = False

    def seen(self, now: float) -> Probes:
        """The probes as they stand now."""
        while self._answers and self._answers[0][0] < now - self._kept_s:
            self._answers.popleft()
        return Probes(
            answers=tuple((now - at, latency_s) for at, latency_s in self._answers),
            silent_s=0.0 if self._silent_since is None else max(0.0, now - self._silent_since),
            pace_s=self._pace_s,
        )
