"""A user's handler: how it is found, how often it is tried, and when a record is given up.

Promise  A record is handled, or handed to the dead letters with the last error; never skipped.
         Each record is tried `Retry.attempts` times, with pauses that double. A consumer that is
         told to leave does not wait a pause out: the record then counts as not handled.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.apply.records import Handler, Record
from trimtab.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a handler is tried in all, and how the pauses in between grow.

    >>> list(Retry(attempts=5, first_s=1.0, most_s=3.0).pauses())
    [1.0, 2.0, 3.0, 3.0]
    """

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_s < 0 or self.most_s < self.first_s:
            raise ValueError(f"no way to retry: {self}")

    def pauses(self) -> Iterator[float]:
        """The pause before each further attempt, in seconds."""
        for pause_s, _ in zip(self.for_ever(), range(self.attempts - 1), strict=False):
            yield pause_s

    def for_ever(self) -> Iterator[float]:
        """The same pauses, without an end."""
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, self.most_s)


class Interrupted(Exception):
    """The consumer was told to leave before the record was handled."""


def attempt(
    handler: Handler, record: Record, *, retry: Retry, told_to_leave_in: Callable[[float], bool]
) -> Exception | None:
    """Handles a record; returns the last error when it is given up, else None.

    `told_to_leave_in` waits so many seconds, and returns early with True when there is no time.
    """
    pauses = retry.pauses()
    while True:
        try:
            handler(record)
        except Exception as error:  # it is the user's code: anything may come
            pause_s = next(pauses, None)
            if pause_s is None:
                return error
            if told_to_leave_in(pause_s):
                raise Interrupted from error
        else:
            return None


def load_handler(name: str) -> Handler:
    """The function that `module:function` names; the working folder is searched as well."""
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ConfigError(
            f"{name!r} names no handler.", hint="Write it as module:function, such as shop:handle."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:  # a module may fail in any way while it is imported
        raise ConfigError(
            f"The module {module_name} of the handler cannot be imported: {error!r}.",
            hint="It is looked for in the working folder and where Python finds packages.",
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"The module {module_name} has no function {path}.",
            hint="A handler takes one trimtab.apply.records.Record.",
        )
    return found


class FixedService:
    """A handler that takes the same time for every record, for experiments.

    A sleep is always a little too long: what was slept too much is taken off the next one, so that
    the mean is exact.
    """

    def __init__(
        self,
        service_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._service_s = service_s
        self._clock = clock
        self._sleep = sleep
        self._due_s = 0.0

    def __call__(self, record: Record) -> None:
        """Takes its time."""
        del record
        self._due_s += self._service_s
        if self._due_s > 0:
            began = self._clock()
            self._sleep(self._due_s)
            self._due_s -= self._clock() - began
