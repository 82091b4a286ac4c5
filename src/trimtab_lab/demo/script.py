"""The parameters of the demo, the listener that shows its progress, and where it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trimtab.kafka.cluster import Cluster
from trimtab.settings import Settings
from trimtab.workload.key_streams import ZipfMandelbrot

if TYPE_CHECKING:
    from trimtab.spark.session import Session


STEPS = 7
CLUSTER = "demo"
BROKERS = 3
PLANNER = "trim"
"""The same as the default of `plan` and `run`."""
LEAST_DURATION_S = 10.0
"""The warm-up plus enough samples to compute a rate."""

_KEYS = ZipfMandelbrot(s=1.1, v=1.0, keys=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The parameters of the demo.

    `spare` is how much more than the mean load a consumer can handle. The first `warm_up_s` are
    not measured; plots use windows of `line_s`. Then a controller runs a group for `loop_s` with
    a latency target of `loop_sla_s`, on the same skew, with a total rate up to `loop_rate_s`.
    """

    duration_s: float = 30.0
    rate_s: float = 3000.0
    partitions: int = 12
    seed: int = 0
    topic: str = "orders"
    group: str = "billing"
    consumers: int = 4
    spare: float = 0.2
    value_bytes: int = 200
    keys: ZipfMandelbrot = _KEYS
    warm_up_s: float = 3.0
    window_s: float = 10.0
    line_s: float = 2.0
    loop_s: float = 40.0
    loop_rate_s: float = 150.0
    loop_sla_s: float = 5.0

    @property
    def pace_s(self) -> float:
        """How many records per second one consumer can handle."""
        return self.rate_s / self.consumers * (1 + self.spare)


class Audience(Protocol):
    """Receives the progress of the demo, for example to print it."""

    def step(self, number: int, title: str) -> None:
        """A new step begins."""
        ...

    def say(self, line: str) -> None:
        """Shows a line of information."""
        ...

    def warn(self, line: str) -> None:
        """Shows a warning."""
        ...

    def bar(self, title: str) -> AbstractContextManager[Callable[[int, int, str], None]]:
        """A progress bar, updated with (done, total, text) while the block runs."""
        ...


@dataclass(frozen=True, slots=True)
class BarListener:
    """Passes what a service reports to the audience; progress moves the bar."""

    audience: Audience
    move: Callable[[int, int, str], None]

    def started(self, what: str) -> None:
        """The demo has announced the step itself."""

    def progress(self, what: str, done: float, total: float | None) -> None:
        """Moves the bar; texts after a comma are figures."""
        _, _, figures = what.partition(", ")
        self.move(int(done), int(total or 0), figures)

    def note(self, line: str) -> None:
        """Shows a line of information."""
        self.audience.say(line)

    def warning(self, line: str) -> None:
        """Shows a warning."""
        self.audience.warn(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEnvironment:
    """A running cluster, a Spark session that may still be starting, settings and a folder."""

    cluster: Cluster
    spark: Callable[[], Session]
    settings: Settings
    tables: Path
