"""Starts the rates query on the driver: where its tables end, with the samples of its window.

Why      Spark's checkpoint may be days old: the driver did not run, or rates were computed on
         executors. All telemetry since then would come in one batch, and would be too late.
Promise  Windows missed meanwhile are computed together by the batch step, so that new rates are not
         delayed. The stream begins in the first window that is not in the tables; a checkpoint is
         used only if it is not older. Nothing starts while a partition of the log has no leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trimtab.errors import BrokerUnavailable
from trimtab.measure.spark.live_rates import RatesQuery
from trimtab.measure.spark.streaming_queries import Stream, committed_offsets
from trimtab.measure.spark.window_tables import NO_LEADER, WindowTables
from trimtab.measure.windows import MICROS
from trimtab.observe.clock import wall_clock_us
from trimtab.spark.sources import offsets_text
from trimtab.spark.warehouse import Folder


@dataclass(slots=True)
class DriverStart:
    """Starts the query; the ring is filled once, and is kept when the query is started again."""

    session: SparkSession
    query: RatesQuery
    tables: WindowTables
    stream: Stream
    _is_filled: bool = False

    def __call__(self) -> StreamingQuery:
        """Starts the query; raises BrokerUnavailable if telemetry cannot be read now."""
        if not self._is_filled:
            self._fill()
            self._is_filled = True
        return self._stream().start(self.session, self.query.on_batch)

    def _stream(self) -> Stream:
        """The stream from its checkpoint, or from the open window if that is older."""
        begin = self.tables.offsets_at(self.query.ring.closed_until)
        if begin is None:
            raise BrokerUnavailable(NO_LEADER)
        read = committed_offsets(self.session, Folder(self.stream.folder))
        if all(read.get(name, -1) >= offset for name, offset in begin.items()):
            return self.stream
        parent, _, name = self.stream.folder.rpartition("/")
        Folder(parent).delete(self.session, name)
        return replace(self.stream, starting=offsets_text(begin))

    def _fill(self) -> None:
        """Restores the ring to its state when the last driver ended.

        The first start begins with the current window.
        """
        ring = self.query.ring
        width, now = round(ring.window_s * MICROS), wall_clock_us()
        recent = now // width * width
        closed = self.tables.closed_until()
        if closed < recent - width:
            recent -= width
            if not self.tables.write(closed, recent):
                raise BrokerUnavailable(NO_LEADER)
            closed = recent
        raw = self.tables.telemetry(from_ts=min(closed, now - width), to_ts=now)
        if raw is None:
            raise BrokerUnavailable(NO_LEADER)
        ring.closed_until = closed
        self.query.refill(raw)
