"""The peak rate of a consumer: reads full topics, writes Parquet, no service time.

Paper    Landau et al., section VI-F: Table VI and figure 13. Sizes are scaled; partitions, tables,
         `BATCH_BYTES` and `WAIT_TIME_SECS` are the paper's.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from trimtab.apply.consumers.cycle import Cycle
from trimtab.apply.consumers.kafka.directed_reader import DirectedReader
from trimtab.apply.consumers.kafka.parquet_sink import Lake
from trimtab.apply.consumers.work import Limits, Work
from trimtab.errors import MeasurementError
from trimtab.kafka.admin import TopicSpec
from trimtab.model.cluster import TopicPartition
from trimtab.workload.kafka.fill import FillRecord, fill
from trimtab_lab.papers.live.distributions import levels, mode
from trimtab_lab.papers.live.kafka.live_site import LiveSite

_VALUE_BYTES = 1000
_MOST_IDLE = 30


def peak(place: LiveSite, *, megabytes: float, partitions: int, tables: int) -> dict[str, Any]:
    """The throughput of every cycle while a consumer reads full topics; 1 MB is 10⁶ bytes."""
    run = f"live-peak-{uuid.uuid4().hex[:6]}"
    names = [f"{run}-{n}" for n in range(tables)]
    sources = [TopicPartition(names[n % tables], n // tables) for n in range(partitions)]
    folder = place.folder / run
    with ExitStack() as open_now:
        admin = open_now.enter_context(place.cluster.admin())
        for name in names:
            count = sum(source.topic == name for source in sources)
            admin.create_topic(TopicSpec(name=name, partitions=count, replication=1))
            open_now.callback(admin.delete_topic, name)
        total = _fill(place, sources, round(megabytes * 1e6))
        open_now.callback(shutil.rmtree, folder, ignore_errors=True)
        reader = DirectedReader(run, place.cluster, client_id=run, on_lost=lambda _: None)
        open_now.callback(reader.close)
        stop = threading.Event()
        work = Work(sink=Lake(folder), limits=Limits(batch_bytes=5_000_000, wait_s=1.0))
        cycle = Cycle(reader, work, stop=stop)
        for source, committed in reader.take(sources, stop).items():
            cycle.begin(source, committed)
        rates = _measured(cycle, total=total)
    return {
        "megabytes": megabytes,
        "partitions": partitions,
        "tables": tables,
        "mode_mb_s": mode(rates),
        "median_mb_s": median(rates),
        "levels": levels(rates),
        "rates_mb_s": rates,
    }


def _measured(cycle: Cycle, *, total: int) -> list[float]:
    """Megabytes per second of each cycle, including waiting, until all is read."""
    rates: list[float] = []
    idle = 0
    while cycle.totals.bytes < total and idle < _MOST_IDLE:
        before, began = cycle.totals.bytes, time.monotonic()
        cycle.turn()
        size, took_s = cycle.totals.bytes - before, time.monotonic() - began
        idle = 0 if size else idle + 1
        if size and cycle.totals.bytes < total:  # the last cycle only waited for more records
            rates.append(size / 1e6 / took_s)
    if cycle.totals.bytes < total or not rates:
        raise MeasurementError(
            f"Only {cycle.totals.bytes} of {total} bytes were read, in {len(rates)} cycles.",
            hint="Use a larger --scale: there must be more than one batch of 5 MB.",
        )
    return rates


def _fill(place: LiveSite, sources: Sequence[TopicPartition], size: int) -> int:
    """Fills the partitions evenly with incompressible values of 1000 bytes; returns all bytes."""
    chance = random.Random(0)
    values = [chance.randbytes(_VALUE_BYTES) for _ in range(64)]
    count = size // _VALUE_BYTES
    fill(
        (FillRecord(sources[n % len(sources)], values[n % len(values)]) for n in range(count)),
        place.cluster,
        what="topics",
    )
    return count * _VALUE_BYTES
