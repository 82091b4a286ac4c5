"""Stores decisions as a Parquet table, with about one file per minute.

Promise  Files are complete or absent. Decisions since the last file are lost only if the process is
         killed; the topic of decisions still has them. A full disk does not end the controller:
         decisions that could not be written are kept for the next file.
"""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from types import TracebackType

import structlog

from trimtab.model.codec import dumps
from trimtab.model.control import Decision
from trimtab.model.control_codec import decision_to

log = structlog.get_logger()

_EVERY_S = 60.0


class DecisionTable:
    """Stores decisions in a folder that Spark reads as the table `decisions`."""

    def __init__(self, folder: Path, *, every_s: float = _EVERY_S) -> None:
        self._folder = folder
        self._every_s = every_s
        self._waiting: list[Decision] = []
        self._written = time.monotonic()
        self._guard = threading.Lock()

    def add(self, decision: Decision) -> None:
        """Adds a decision; writes a file if the last one is older than a minute."""
        with self._guard:
            self._waiting.append(decision)
            if time.monotonic() - self._written >= self._every_s:
                try:
                    self._write()
                except OSError as error:
                    log.warning("decisions_were_not_written", why=str(error))

    def __enter__(self) -> DecisionTable:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._guard:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._written = time.monotonic()
        if not self._waiting:
            return
        rows = [decision_to(d) | {"forecast": dumps(dict(d.forecast))} for d in self._waiting]
        schema = pa.schema(
            {
                "ts": pa.timestamp("us", tz="UTC"),
                "group": pa.string(),
                "action": pa.string(),
                "from": pa.int32(),
                "to": pa.int32(),
                "plan": pa.string(),
                "reason": pa.string(),
                "forecast": pa.string(),
            }
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._waiting[0].ts}-{uuid.uuid4().hex}.parquet"
        hidden = self._folder / f".{name}"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), hidden)
        hidden.rename(self._folder / name)
        self._waiting = []
