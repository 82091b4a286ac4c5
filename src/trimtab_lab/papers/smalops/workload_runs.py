"""Cells of the workload: how many keys the generator uses, and how many of them are hot.

Promise  Pure: equal parameters give equal figures. Counts are exact, except those of the sketch,
         which is the lossy counter that a gateway would use.
Cost     About 0.2 µs per record, and four bytes per possible key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.measure.columnar_counting import ArrowLossyCounter
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot, key_bytes

SKETCH_DOUBT = 10
"""The lossy counter's error is at most this part of the threshold."""


def counted(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keys used and hot over the whole run; hot keys of each window and of two windows together."""
    keys, hot_count = int(parameters["keys"]), int(parameters["hot_count"])
    stream = KeyStream(
        rate_s=parameters["records"] / parameters["duration_s"],
        seed=parameters["seed"],
        distribution=ZipfMandelbrot(keys=keys),
    )
    totals = np.zeros(keys, dtype=np.int32)
    tracked: list[int] = []
    tracked_in_two: list[int] = []
    last: NDArray[np.int64] | None = None
    sketch: dict[str, int] = {}
    for window in windows(stream, parameters["duration_s"], parameters["window_s"]):
        found, counts = np.unique(window, return_counts=True)
        totals[found] += counts.astype(np.int32)
        tracked.append(int((counts >= hot_count).sum()))
        sketch = sketch or sketched(window, hot_count)
        if last is None:
            last = window
        else:
            _, counts = np.unique(np.concatenate([last, window]), return_counts=True)
            tracked_in_two.append(int((counts >= hot_count).sum()))
            last = None
    hot = totals >= hot_count
    return {
        "records": int(totals.sum()),
        "used_keys": int((totals > 0).sum()),
        "hot_keys": int(hot.sum()),
        "hot_records": int(totals[hot].sum()),
        "first_shares": [float(count / totals.sum()) for count in totals[:3]],
        "tracked": tracked,
        "tracked_in_two": tracked_in_two,
        **sketch,
    }


def windows(stream: KeyStream, duration_s: float, window_s: float) -> Iterator[NDArray[np.int64]]:
    """The keys of each whole window."""
    kept: list[NDArray[np.int64]] = []
    end_s = window_s
    for times, keys in stream.blocks(duration_s, block_records=1 << 18):
        start = 0
        while times[-1] >= end_s:
            cut = int(np.searchsorted(times, end_s))
            yield np.concatenate([*kept, keys[start:cut]])
            kept, start = [], cut
            end_s += window_s
        kept.append(keys[start:])
    if end_s <= duration_s:
        yield np.concatenate(kept)


def sketched(keys: NDArray[np.int64], hot_count: int) -> dict[str, int]:
    """The entries of a lossy counter at the end of one window, and the keys it reports as hot."""
    import pyarrow as pa

    counter = ArrowLossyCounter(hot_count / (SKETCH_DOUBT * keys.size))
    counter.add_keys(pa.array(key_bytes(keys), type=pa.binary()))
    summary = counter.summary()
    return {"sketch_entries": summary.entries, "sketch_hot": len(summary.hot(hot_count))}
