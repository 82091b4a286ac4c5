"""Speed of the keys layer without brokers: the simulation of queues, and counting in batches.

Both sides of a benchmark get the same records, which are drawn before the clock starts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from trimtab.measure.counters import Count
from trimtab.measure.lossy_counting import LossyCounter
from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
from trimtab.simulate.keys.policy import KeyLevelPolicy, KeyPolicySettings
from trimtab.simulate.keys.registry import key_policy_of
from trimtab.workload.key_streams import KeyBlock, KeyStream, key_bytes
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second
from trimtab_lab.reference_scans.key_queues import plain_queues

SEED = 18
RATE_S = 112_400.0  # the busiest of 8 partitions is 94 % busy under hashing
PARTITIONS = 8
SERVICE_S = 50e-6
WINDOW_S = 2.0
THRESHOLD = 20
POLICY = "smalops-paper"
BATCH = 1000


class DrawnRecords:
    """Records that were drawn before, as a source of a simulation."""

    rate_s = RATE_S

    def __init__(self, rows: int) -> None:
        duration_s = 1.2 * rows / RATE_S + 1
        blocks = list(KeyStream(rate_s=RATE_S, seed=SEED).blocks(duration_s))
        self.times_s = np.concatenate([block.times_s for block in blocks])[:rows]
        self.keys = np.concatenate([block.keys for block in blocks])[:rows]

    def blocks(self, duration_s: float, *, block_records: int) -> Iterator[KeyBlock]:
        """Yields all records."""
        del duration_s
        for start in range(0, self.keys.size, block_records):
            part = slice(start, start + block_records)
            yield KeyBlock(self.times_s[part], self.keys[part])


def simulated_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    """Records per second; `rows` is the number of records."""
    context.say(f"drawing {rows:,} records")
    records = DrawnRecords(rows)
    topic = KeyedTopic(
        partitions=PARTITIONS,
        service_s=SERVICE_S,
        window_s=WINDOW_S,
        threshold=Count(THRESHOLD),
        sketch=False,
    )
    kind = key_policy_of(POLICY)
    duration_s = float(records.times_s[-1]) + 1
    times, keys = (records.times_s * 1e9).astype(np.int64).tolist(), records.keys.tolist()

    def ours() -> None:
        simulate_keys(records, topic, [kind], duration_s=duration_s)

    def rival() -> None:
        settings = KeyPolicySettings(
            partitions=PARTITIONS,
            window_s=WINDOW_S,
            service_s=SERVICE_S,
            handover_s=topic.handover_s,
        )
        policy = kind.create(settings)
        if not isinstance(policy, KeyLevelPolicy):
            raise TypeError(f"{POLICY} does not keep keys whole")
        plain_queues(times, keys, topic, policy)

    seconds = alternating(ours, rival, runs=runs)
    stream = KeyStream(rate_s=RATE_S, seed=SEED)
    start = time.perf_counter()
    drawn = simulate_keys(stream, topic, [kind], duration_s=rows / RATE_S)
    with_drawing = drawn.records / (time.perf_counter() - start)
    return rows_per_second(
        rows,
        seconds,
        policy=POLICY,
        partitions=PARTITIONS,
        window_s=WINDOW_S,
        threshold=THRESHOLD,
        with_drawing_rows_s=float(f"{with_drawing:.3g}"),
        seed=SEED,
    )


def counted_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    """Microseconds per record; `rows` is the number of records."""
    context.say(f"drawing {rows:,} keys")
    keys = key_bytes(DrawnRecords(rows).keys)
    batches = [keys[start : start + BATCH] for start in range(0, rows, BATCH)]
    threshold = max(1, rows // 10_000)

    def ours() -> LossyCounter:
        counter = LossyCounter(threshold / (10 * rows))
        for batch in batches:
            counter.add_batch(batch)
        return counter

    def rival() -> Counter[bytes]:
        counter: Counter[bytes] = Counter()
        for batch in batches:
            counter.update(batch)
        return counter

    both = alternating(ours, rival, runs=runs)
    per_record = [tuple(1e6 * s / rows for s in side) for side in both]
    return Sides(
        ours=per_record[0],
        rival=per_record[1],
        settings={
            "batch": BATCH,
            "threshold": threshold,
            "entries": ours().entries,
            "distinct_keys": len(rival()),
            "seed": SEED,
        },
    )
