"""Counts crashes of consumers by place, and how long the next start must wait.

Why      A record that crashes the process is read again after every restart: without pauses that is
         a restart every few seconds, and the record is hard to find in the log.
Promise  The first crash at a place causes no pause. From the second on the pause doubles, from
         `first_s` up to `most_s`. After `forget_s` without a crash at a place its count is reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Crashes:
    """Crashes by place: a record, or a consumer that exited soon after its start."""

    first_s: float = 1.0
    most_s: float = 60.0
    forget_s: float = 600.0
    _times: dict[str, list[float]] = field(default_factory=dict, repr=False)

    def note(self, place: str, now: float) -> int:
        """Counts a crash; returns how many there were at this place."""
        times = self._times.setdefault(place, [])
        if times and now - times[-1] > self.forget_s:
            times.clear()
        times.append(now)
        return len(times)

    def waiting(self, now: float) -> tuple[str, int, float] | None:
        """The place with the longest remaining pause, its crashes, and the seconds left."""
        left = {
            place: times[-1] + self.pause_s(len(times)) - now
            for place, times in self._times.items()
        }
        place = max(left, key=left.__getitem__, default=None)
        if place is None or left[place] <= 0:
            return None
        return place, len(self._times[place]), left[place]

    def pause_s(self, crashes: int) -> float:
        """The pause after this many crashes at one place.

        >>> [Crashes().pause_s(crashes) for crashes in (1, 2, 3, 4, 99)]
        [0.0, 1.0, 2.0, 4.0, 60.0]
        """
        if crashes < 2:
            return 0.0
        return min(self.first_s * 2.0 ** min(crashes - 2, 30), self.most_s)
