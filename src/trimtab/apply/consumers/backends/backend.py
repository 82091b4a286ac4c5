"""The protocol of backends, which start and stop consumers.

A backend knows processes, not partitions: the controller decides which consumer may be stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol


class Backend(Protocol):
    """Creates, removes and kills the consumers of one group."""

    def running(self) -> Mapping[int, str]:
        """Returns the index of each running consumer with the identity of its process.

        Another process with the same index has another identity. A consumer that is not in the
        result has certainly exited; one whose state is unknown counts as running.
        """
        ...

    def exit_reasons(self) -> Mapping[int, str]:
        """Returns why consumers exited or do not start, as far as that is known, by index.

        As of the last call of `running`; consumers that run normally are not included.
        """
        ...

    def names(self) -> Collection[str] | None:
        """Returns the names of the running consumers where they have no fixed index.

        None where the indexes of `running` are fixed.
        """
        ...

    def create(self, consumers: Collection[int]) -> None:
        """Starts those of these consumers that do not run, and returns when they are starting.

        Where consumers have no fixed index, the total number is raised to as many as these.
        """
        ...

    def remove(self, idle: Collection[int]) -> None:
        """Stops idle consumers gracefully and returns when they have exited.

        It may keep some that cannot be removed individually: `running` still lists them. Raises
        ApplyError if one does not exit in time.
        """
        ...

    def kill(self, consumer: int) -> None:
        """Kills a consumer and returns when its exit is confirmed.

        Raises ApplyError if it cannot be confirmed: the consumer must then count as running.
        """
        ...

    def close(self) -> None:
        """Closes connections; the consumers keep running."""
        ...
