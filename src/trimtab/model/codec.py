"""Value ⇄ versioned JSON, as used in files, in topics and on the web.

The formats are in the contracts page of the documentation. Reading is strict: errors name the file
and the place; unknown fields give warnings in files and are ignored in records.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from trimtab.model import wire
from trimtab.model.cluster import NO_LEADER, ClusterSnapshot, Replicas, TopicPartition
from trimtab.model.json_reader import Node, parse_file
from trimtab.model.key_counts import KeyCounts
from trimtab.model.load import KeyLoad, Loads, Measurement, PartitionLoad, RateSteps
from trimtab.model.weights import Weights

Json = dict[str, Any]
VERSION = 1
MOST_RATES_BYTES = 900_000
"""Brokers and clients refuse records above 1 MB, unless they are configured otherwise."""

# ---------------------------------------------------------------- text


def dumps(value: Json, *, indent: int | None = None) -> str:
    """JSON text; NaN and infinity are not allowed."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)


_LEFT_OUT = re.compile(r"(id|ts|.*_(id|ts|start|end))$")


def canonical(value: Json) -> str:
    """The text that hashes are computed from: names sorted, no spaces, without times and ids.

    Times and ids are left out at the top level only: below it, a topic may be called "user_id".

    >>> canonical({"b": 1.5, "a": [2], "id": "x", "made_ts": 3})
    '{"a":[2],"b":1.5}'
    """
    kept = {name: v for name, v in value.items() if not _LEFT_OUT.fullmatch(name)}
    return json.dumps(
        kept, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def short_hash(value: Json) -> str:
    """First 12 hex digits of SHA-256 over the canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


# ---------------------------------------------------------------- files as values


def loads_from(node: Node) -> Loads:
    """Reads a loads file."""
    node.version()
    return wire.read_file(Loads, node, "v")


def rate_steps_from(node: Node) -> RateSteps:
    """Reads only the rates of a loads file; a capacity is not required."""
    node.version()
    return wire.read_file(RateSteps, node, "v", "capacity", "sla_s", "assignment", "capacities")


def loads_to(loads: Loads) -> Json:
    """A loads file."""
    return {"v": VERSION, **wire.write(loads)}


def measurement_from(node: Node) -> Measurement:
    """Reads a measurement file."""
    node.version()
    return wire.read_file(Measurement, node, "v", "kind")


def measurement_to(measurement: Measurement) -> Json:
    """A measurement file."""
    return {"v": VERSION, "kind": "measurement", **wire.write(measurement)}


def counts_from(node: Node) -> KeyCounts:
    """Reads a counts file."""
    node.version()
    try:
        return wire.read_file(KeyCounts, node, "v")
    except ValueError as error:  # the counts do not fit together
        node.fail(str(error))


def counts_to(counts: KeyCounts) -> Json:
    """A counts file."""
    return {"v": VERSION, **wire.write(counts)}


def snapshot_to(snapshot: ClusterSnapshot) -> Json:
    """A snapshot file."""
    return {"v": VERSION, **wire.write(snapshot)}


def snapshot_from(node: Node) -> ClusterSnapshot:
    """Reads a snapshot file."""
    node.version()
    snapshot = wire.read_file(ClusterSnapshot, node, "v")
    brokers = {broker.id for broker in snapshot.brokers}
    if not all(_is_sound(p, brokers) for p in snapshot.partitions):
        for entry in node.need("partitions").list():
            _check_brokers(entry, brokers)
    return snapshot


def _is_sound(partition: Replicas, brokers: Set[int]) -> bool:
    replicas = set(partition.replicas)
    led = partition.leader == NO_LEADER or partition.leader in replicas
    return led and replicas <= brokers and replicas.issuperset(partition.isr + partition.elr)


def _check_brokers(entry: Node, brokers: Set[int]) -> None:
    """Raises BadFile at the broker that does not fit: unknown, or not a replica."""
    partition = wire.read(Replicas, entry)
    leader, replicas = partition.leader, partition.replicas
    lists = {"replicas": replicas, "isr": partition.isr, "elr": partition.elr}
    for name, broker, node in (
        *((n, b, entry.need(n).at(i, b)) for n in lists for i, b in enumerate(lists[n])),
        *((("leader", leader, entry.need("leader")),) if leader != NO_LEADER else ()),
    ):
        if broker not in brokers:
            node.fail(f"broker {broker} is not in the list of brokers")
        word = {"isr": "in sync", "elr": "eligible", "leader": "the leader"}.get(name)
        if word is not None and broker not in replicas:
            entry.need(name).fail(f"broker {broker} is {word} but not a replica")


# ---------------------------------------------------------------- records of Trimtab's topics


def rates_to(
    topic: str,
    partitions: Iterable[PartitionLoad],
    *,
    ts: int,
    window_start: int,
    window_end: int,
    stale: frozenset[int] = frozenset(),
) -> Json:
    """The rates of one topic with all its partitions; `rates_records` splits them if needed."""
    return {
        "v": VERSION,
        "ts": ts,
        "window_start": window_start,
        "window_end": window_end,
        "topic": topic,
        "partitions": {
            str(p.partition): {
                "bytes_s": p.bytes_s,
                "records_s": p.records_s,
                "end_offset": p.end_offset,
                "lag": dict(p.lag),
                "source": str(p.source),
                "complete": p.complete,
                "stale": p.partition in stale,
            }
            for p in sorted(partitions, key=lambda p: p.partition)
        },
    }


def rates_records(rates: Json, *, most_bytes: int = MOST_RATES_BYTES) -> Iterator[Json]:
    """The records of `trimtab.rates` for what `rates_to` returns: one, or parts if it is too large.

    Parts have equal numbers of partitions, in order, so a topic is always split at the same places.
    A partition is never split: a part that has only one may be too large.
    """
    if len(rates["partitions"]) < 2 or _size(rates) <= most_bytes:
        yield rates
        return
    entries = list(rates["partitions"].items())
    head = {name: value for name, value in rates.items() if name != "partitions"}
    ends = _ends([_size(dict([entry])) for entry in entries], most_bytes - _size(head) - 100)
    for part, (first, end) in enumerate(pairwise(ends)):
        numbered = {"part": part, "of": len(ends) - 1}
        yield head | numbered | {"partitions": dict(entries[first:end])}


def _ends(sizes: Sequence[int], most: int) -> list[int]:
    """Where to split, into as few equal parts as stay below `most`; the first place is 0."""
    before = [0, *accumulate(sizes)]
    of = 2
    while True:
        ends = [len(sizes) * part // of for part in range(of + 1)]
        if of == len(sizes) or all(before[b] - before[a] <= most for a, b in pairwise(ends)):
            return ends
        of = min(len(sizes), of + 1 + of // 8)


def _size(value: Json) -> int:
    return len(dumps(value).encode())


def hot_keys_to(
    topic: str,
    keys: Iterable[KeyLoad],
    *,
    window_start: int,
    window_end: int,
    n: int,
    epsilon: float,
) -> Json:
    """A record of `trimtab.hotkeys`."""
    written = [wire.write(key) for key in keys]
    return {
        "v": VERSION,
        "window_start": window_start,
        "window_end": window_end,
        "topic": topic,
        "n": n,
        "epsilon": epsilon,
        "keys": [{name: key[name] for name in key if name != "topic"} for key in written],
    }


def weights_to(weights: Weights) -> Json:
    """A record of `trimtab.weights`."""
    return {"v": VERSION, **wire.write(weights)}


def weights_from(node: Node) -> Weights:
    """Reads a record of `trimtab.weights`."""
    node.version()
    return wire.read(Weights, node)


def offsets_from(node: Node) -> dict[TopicPartition, tuple[int, int]]:
    """Reads `{"topic":{"0":[first,next]}}`."""
    out: dict[TopicPartition, tuple[int, int]] = {}
    for topic, partitions in node.items():
        for number, value in partitions.items():
            ends = [n.integer(least=0) for n in value.list()]
            if len(ends) != 2 or ends[0] > ends[1]:
                value.fail("should be [first, next], in order")
            out[TopicPartition(topic, partitions.index(number))] = (ends[0], ends[1])
    return out


# ---------------------------------------------------------------- files


def read_loads(path: str | Path) -> tuple[Loads | Measurement, list[str]]:
    """Reads a loads file or a measurement, by its `kind`; also returns the warnings."""
    node = parse_file(path)
    kind = node.get("kind")
    if kind is None:
        return loads_from(node), node.warnings
    if kind.value != "measurement":
        kind.fail(f"should be measurement or absent, is {kind.value}")
    return measurement_from(node), node.warnings


def read_rates(path: str | Path) -> tuple[RateSteps | Measurement, list[str]]:
    """Reads the rates of a loads file, with or without a capacity, or a measurement."""
    node = parse_file(path)
    if node.get("kind") is None:
        return rate_steps_from(node), node.warnings
    return read_loads(path)


def read_snapshot(path: str | Path) -> tuple[ClusterSnapshot, list[str]]:
    """Reads a snapshot file; also returns the warnings."""
    node = parse_file(path)
    return snapshot_from(node), node.warnings


def read_counts(path: str | Path) -> tuple[KeyCounts, list[str]]:
    """Reads a counts file; also returns the warnings."""
    node = parse_file(path)
    return counts_from(node), node.warnings
