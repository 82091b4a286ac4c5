"""Who starts and stops consumers: one small protocol, whatever runs them.

A backend knows processes, not partitions: which consumer may be stopped is the controller's to say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol


class Backend(Protocol):
    """Creates, removes and kills the consumers of one group."""

    def living(self) -> Mapping[int, str]:
        """Returns each living consumer with the identity of the process that it is now.

        Another process under the same index has another identity. A consumer that is missing here
        is gone for certain; one that cannot be asked about still lives.
        """
        ...

    def last_words(self) -> Mapping[int, str]:
        """Returns why consumers ended or do not start, as far as that is known, by index.

        It is what was found at the last look; those that run well are not in it.
        """
        ...

    def names(self) -> Collection[str] | None:
        """Returns the names of the living consumers where they have no numbers of their own.

        None where `living` numbers them for good.
        """
        ...

    def create(self, consumers: Collection[int]) -> None:
        """Starts those of these consumers that do not live, and returns once they are under way.

        Where consumers have no numbers of their own, as many as these are to exist in all.
        """
        ...

    def remove(self, idle: Collection[int]) -> None:
        """Stops idle consumers gently and returns when they are gone.

        It may keep some that cannot be removed alone: `living` goes on to name them. Raises
        ApplyError if one does not end in time.
        """
        ...

    def kill(self, consumer: int) -> None:
        """Ends a consumer by force and returns when it is gone for certain.

        Raises ApplyError if that cannot be confirmed: it must then count as alive.
        """
        ...

    def close(self) -> None:
        """Lets go of connections; the consumers live on."""
        ...
