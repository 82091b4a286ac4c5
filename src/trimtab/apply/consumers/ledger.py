"""Decisions as a Parquet table, a file for every minute or so.

Promise  A file is whole or not there. What was decided since the last one is lost only if the
         process is killed; the topic of decisions has it all the same. A disk that is full ends no
         controller: what could not be written is kept and tried again with the next file.
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


class Ledger:
    """Keeps decisions in a folder that Spark reads as the table `decisions`."""

    def __init__(self, folder: Path, *, every_s: float = _EVERY_S) -> None:
        self._folder = folder
        self._every_s = every_s
        self._waiting: list[Decision] = []
        self._written = time.monotonic()
        self._guard = threading.Lock()

    def add(self, decision: Decision) -> None:
        """Takes a decision in."""
        with self._guard:
            self._waiting.append(decision)
            if time.monotonic() - self._written >= self._every_s:
                try:
                    self._write()
                except OSError as error:
                    log.warning("decisions_were_not_written", why=str(error))

    def __enter__(self) -> Ledger:
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
