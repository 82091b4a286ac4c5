"""A history as `measure` keeps it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def warehouse(root: Path, *, lag: bool = True) -> Path:
    """Tables as Spark writes them: by date and run, with marks of success between."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    place: dict[str, Any] = {"topic": ["a"], "partition": pa.array([0], pa.int32())}
    rates: dict[str, Any] = {
        "window_start": pa.array([at], pa.timestamp("us", tz="UTC")),
        "window_end": pa.array([at.replace(second=30)], pa.timestamp("us", tz="UTC")),
        **place,
        "bytes_s": [10.0],
        "records_s": pa.array([None], pa.float64()),
        "source": ["log_dirs"],
        "samples": [30],
        "complete": [True],
    }
    lags = {"ts": rates["window_start"], "group": ["g"], **place, "lag_records": [4]}
    for name, columns in {"partition_rates": rates, **({"lag": lags} if lag else {})}.items():
        folder = root / name / "date=2026-01-01" / "run=abc"
        folder.mkdir(parents=True)
        (root / name / "_SUCCESS").write_text("")
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return root
