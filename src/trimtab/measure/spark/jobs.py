"""The batch job: reads the input, runs the steps, writes the tables, returns the result."""

from __future__ import annotations

from trimtab.measure.spark.measure_frames import MeasureFrames
from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod, check_span
from trimtab.measure.spark.measure_result import MeasureResult, measure_result
from trimtab.model.codec import short_hash
from trimtab.spark.session import spark_errors
from trimtab.spark.warehouse import Warehouse


def measure(
    given: MeasureInput, how: MeasureMethod, warehouse: Warehouse | None = None
) -> MeasureResult:
    """Runs every step that the given sources allow, and writes the tables."""
    check_span(given.span_s, how)
    run = _run_id(given, how)
    with spark_errors("measuring"):
        steps = MeasureFrames(given, how)
        try:
            if warehouse is not None:
                for name, frame in steps.tables.items():
                    warehouse.write(frame, name, run=run)
            return measure_result(given, how, steps, run)
        finally:
            steps.forget()


def _run_id(given: MeasureInput, how: MeasureMethod) -> str:
    """The same measurement has the same id, so that repeating it replaces the result."""
    return "batch-" + short_hash(
        {
            "cluster": given.cluster,
            "topics": sorted({p.topic for p in given.partitions}),
            "span": [given.from_ts, given.to_ts],
            "sources": [given.events is not None, given.samples is not None],
            "counted": sorted(map(str, given.counted)),
            "how": repr(how),
        }
    )
