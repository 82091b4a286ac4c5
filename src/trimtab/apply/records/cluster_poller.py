"""Polls a cluster in a background thread.

Promise  Runs while the block runs. An error is logged once, until a poll succeeds again, and
         polling is retried after a pause; an error never ends it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

import structlog

from trimtab.errors import TrimtabError

log = structlog.get_logger()


class ClusterPoller(ABC):
    """Base of objects that poll a cluster; `error_event` is the log event of a failure."""

    def __init__(self, *, name: str, error_event: str, pause_s: float) -> None:
        self._closed = threading.Event()
        self._error_event, self._pause_s = error_event, pause_s
        self._logged = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    @abstractmethod
    def _poll(self) -> None:
        """Polls until `_closed` is set or an error occurs."""

    def _succeeded(self) -> None:
        """Marks a successful poll: the next error is logged again."""
        self._logged = False

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._poll()
            except TrimtabError as error:
                if not self._logged:
                    log.warning(self._error_event, why=error.message)
                self._logged = True
                self._closed.wait(self._pause_s)
