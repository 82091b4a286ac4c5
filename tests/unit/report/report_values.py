"""One small measurement and its plan, for the tests of figures and of the page."""

from typing import Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, KeyLoad, Measurement, PartitionLoad, Source, Unit
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.report.plots import RatePoint

P = [TopicPartition("orders", n) for n in range(4)]
RECORDS = (700.0, 200.0, 100.0, 50.0)
OWNERS = Assignment({P[0]: 0, P[1]: 0, P[2]: 1, P[3]: 1})
STATES = {
    ("billing", p): state for p, state in zip(P, ("error", "warning", "ok", "ok"), strict=True)
}
SETTINGS = {"Kafka": "4.3.1", "seed": "0"}
LIMITS = GroupLimits(capacity=800, unit=Unit.RECORDS_S)


def partition(at, **changed):
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": at,
        "bytes_s": RECORDS[at] * 240,
        "records_s": RECORDS[at],
        "source": Source.LOG_DIRS,
        "end_offset": 9000,
        "lag": {"billing": 100 * (4 - at)},
        "lag_s": {"billing": 1.5},
    }
    return PartitionLoad(**values | changed)


def key(name=b"a", lower=3000, upper=3100, **changed):
    values: dict[str, Any] = {"topic": "orders", "share": 0.1, "partition_home": 0}
    return KeyLoad(key=name, lower=lower, upper=upper, **values | changed)


def measurement(**changed):
    values: dict[str, Any] = {
        "cluster": "Zx",
        "from_ts": 1_700_000_000_000_000,
        "to_ts": 1_700_000_030_000_000,
        "window_s": 10.0,
        "rejects": 0,
        "partitions": tuple(partition(at) for at in range(4)),
        "keys": (key(), key(b"b", 2000, 2000)),
    }
    return Measurement(**values | changed)


def history():
    start = 1_700_000_000_000_000
    return {
        p: [RatePoint(start + 2_000_000 * t, rate * 240, rate + t) for t in range(3)]
        for p, rate in zip(P, RECORDS, strict=True)
    }


def plan(found=None, owners=OWNERS, limits=LIMITS):
    loads = (found or measurement()).loads(limits.unit)
    return plan_consumers(loads, owners, limits, planner="mwf", made_ts=1, group="billing")
