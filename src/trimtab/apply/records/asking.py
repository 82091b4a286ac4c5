"""Asks a cluster again and again, in a thread of its own that nobody waits for.

Promise  Begins when entered, ends when left. What goes wrong on a visit is said once, until one
         goes well again, and tried anew after a rest; it ends nothing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

import structlog

from trimtab.errors import TrimtabError

log = structlog.get_logger()


class Asking(ABC):
    """What visits a cluster."""

    def __init__(self, *, name: str, complaint: str, rest_s: float) -> None:
        self._closed = threading.Event()
        self._complaint, self._rest_s = complaint, rest_s
        self._complained = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    @abstractmethod
    def _visit(self) -> None:
        """Asks until `_closed` is set, or something goes wrong."""

    def _went_well(self) -> None:
        """What goes wrong from now on is said again."""
        self._complained = False

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._visit()
            except TrimtabError as error:
                if not self._complained:
                    log.warning(self._complaint, why=error.message)
                self._complained = True
                self._closed.wait(self._rest_s)
