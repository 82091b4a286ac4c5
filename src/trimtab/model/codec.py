"""Value ⇄ versioned JSON, as used in files, in topics and on the web.

The formats are in the contracts page of the documentation. Reading is strict: errors name the file
and the place; unknown fields give warnings in files and are ignored in records.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import (
    NO_LEADER,
    Broker,
    BrokerId,
    ClusterSnapshot,
    Replicas,
    TopicPartition,
)
from trimtab.model.json_reader import Node, parse_file
from trimtab.model.load import (
    KeyLoad,
    Loads,
    LoadStep,
    Measurement,
    PartitionLoad,
    RateSteps,
    Source,
    Unit,
)
from trimtab.model.weights import Weights

Json = dict[str, Any]
_T = TypeVar("_T")
VERSION = 1

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


# ---------------------------------------------------------------- common parts


def by_partition(values: Mapping[TopicPartition, Any]) -> Json:
    """`{topic: {"0": value}}`, in order."""
    out: Json = {}
    for topic, partition in sorted(values):
        out.setdefault(topic, {})[str(partition)] = values[TopicPartition(topic, partition)]
    return out


def read_by_partition(node: Node | None, read: Callable[[Node], _T]) -> dict[TopicPartition, _T]:
    """Reads `{topic: {"0": value}}`; empty if there is no node."""
    out: dict[TopicPartition, _T] = {}
    if node is None:
        return out
    for topic, partitions in node.items():
        for number, value in partitions.items():
            out[TopicPartition(topic, partitions.index(number))] = read(value)
    return out


def key_field(key: bytes) -> Json:
    """`key` if it is text, else `key_b64`."""
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_b64": base64.b64encode(key).decode()}


def read_key(node: Node) -> bytes:
    """Reads what `key_field` writes."""
    text = node.get("key")
    if text is not None:
        return text.text().encode()
    encoded = node.need("key_b64")
    try:
        return base64.b64decode(encoded.text(), validate=True)
    except ValueError:
        encoded.fail("is not valid base64")


def tidy(number: float) -> float:
    """Converts a whole float to an integer, so that files show 5 instead of 5.0."""
    return int(number) if float(number).is_integer() else number


def tidied(value: Any) -> Any:
    """Converts all whole floats in a tree to integers, so that equal plans have equal ids."""
    match value:
        case Mapping():
            return {name: tidied(v) for name, v in value.items()}
        case list() | tuple():
            return [tidied(v) for v in value]
        case float():
            return tidy(value)
        case _:
            return value


# ---------------------------------------------------------------- loads


def loads_from(node: Node) -> Loads:
    """Reads a loads file."""
    rates = rate_steps_from(node)
    sla, capacities = node.get("sla_s"), node.get("capacities")
    return Loads(
        capacity=node.need("capacity").number(above=0),
        unit=rates.unit,
        sla_s=sla.number(above=0) if sla is not None else None,
        assignment=Assignment(
            read_by_partition(node.get("assignment"), lambda n: n.integer(least=0))
        ),
        capacities=read_capacities(capacities) if capacities is not None else {},
        steps=rates.steps,
    )


def rate_steps_from(node: Node) -> RateSteps:
    """Reads only the rates of a loads file; a capacity is not required."""
    node.version()
    node.known("v", "capacity", "unit", "sla_s", "assignment", "capacities", "steps")
    steps = []
    for step in node.need("steps").list():
        step.known("loads", "lags")
        steps.append(
            LoadStep(
                loads=read_by_partition(step.need("loads"), lambda n: n.number(least=0)),
                lags=read_by_partition(step.get("lags"), lambda n: n.integer(least=0)),
            )
        )
    if not steps:
        node.need("steps").fail("has no steps")
    return RateSteps(unit=read_unit(node.get("unit")), steps=tuple(steps))


def read_unit(node: Node | None) -> Unit:
    """The unit of loads; bytes/s if it is not given."""
    if node is None:
        return Unit.BYTES_S
    if node.value not in list(Unit):
        node.fail(f"should be {' or '.join(Unit)}, is {node.value}")
    return Unit(node.value)


def read_capacities(node: Node) -> dict[int, float]:
    """Capacities of single consumers, by number."""
    return {node.index(consumer): value.number(above=0) for consumer, value in node.items()}


def loads_to(loads: Loads) -> Json:
    """A loads file."""
    out: Json = {"v": VERSION, "capacity": loads.capacity, "unit": str(loads.unit)}
    if loads.sla_s is not None:
        out["sla_s"] = loads.sla_s
    if loads.assignment:
        out["assignment"] = by_partition(loads.assignment)
    if loads.capacities:
        out["capacities"] = {str(c): loads.capacities[c] for c in sorted(loads.capacities)}
    out["steps"] = [
        {"loads": by_partition(step.loads)}
        | ({"lags": by_partition(step.lags)} if step.lags else {})
        for step in loads.steps
    ]
    return out


# ---------------------------------------------------------------- snapshot


def snapshot_from(node: Node) -> ClusterSnapshot:
    """Reads a snapshot file."""
    node.version()
    node.known("v", "cluster", "ts", "brokers", "partitions")
    brokers: dict[int, Broker] = {}
    for entry in node.need("brokers").list():
        entry.known("id", "rack", "capacity", "alive")
        broker = entry.need("id").integer(least=0)
        if broker in brokers:
            entry.fail(f"broker {broker} appears twice")
        rack, capacity, alive = (entry.get(name) for name in ("rack", "capacity", "alive"))
        brokers[broker] = Broker(
            id=BrokerId(broker),
            rack=rack.text() if rack is not None else None,
            capacity=capacity.number(above=0) if capacity is not None else None,
            alive=alive.flag() if alive is not None else None,
        )
    partitions: dict[TopicPartition, Replicas] = {}
    for entry in node.need("partitions").list():
        read = _read_replicas(entry, brokers)
        if read.name in partitions:
            entry.fail(f"partition {read.name} appears twice")
        partitions[read.name] = read
    cluster, ts = node.get("cluster"), node.get("ts")
    return ClusterSnapshot(
        ts=ts.integer(least=0) if ts is not None else 0,
        cluster=cluster.text() if cluster is not None else None,
        brokers=tuple(brokers[b] for b in sorted(brokers)),
        partitions=tuple(partitions[p] for p in sorted(partitions)),
    )


def _read_replicas(entry: Node, brokers: Mapping[int, Broker]) -> Replicas:
    entry.known(
        *("topic", "partition", "leader", "replicas", "isr", "elr"),
        *("bytes", "begin_offset", "end_offset"),
    )

    def known(node: Node) -> BrokerId:
        broker = node.integer()
        if broker not in brokers:
            node.fail(f"broker {broker} is not in the list of brokers")
        return BrokerId(broker)

    def list_of(name: str) -> tuple[BrokerId, ...]:
        ids = tuple(known(n) for n in entry.need(name).list())
        if len(set(ids)) != len(ids):
            entry.need(name).fail("lists a broker twice")
        return ids

    def maybe(name: str) -> int | None:
        found = entry.get(name)
        return None if found is None else found.integer(least=0)

    leader, replicas, isr = entry.need("leader"), list_of("replicas"), list_of("isr")
    elr = list_of("elr") if entry.get("elr") is not None else ()
    for name, word, listed in (("isr", "in sync", isr), ("elr", "eligible", elr)):
        for broker in listed:
            if broker not in replicas:
                entry.need(name).fail(f"broker {broker} is {word} but not a replica")
    leads = NO_LEADER if leader.value == NO_LEADER else known(leader)
    if leads != NO_LEADER and leads not in replicas:
        leader.fail(f"broker {leads} is the leader but not a replica")
    return Replicas(
        topic=entry.need("topic").text(),
        partition=entry.need("partition").integer(least=0),
        leader=leads,
        replicas=replicas,
        isr=isr,
        elr=elr,
        log_bytes=maybe("bytes"),
        begin_offset=maybe("begin_offset"),
        end_offset=maybe("end_offset"),
    )


def snapshot_to(snapshot: ClusterSnapshot) -> Json:
    """A snapshot file."""
    return {
        "v": VERSION,
        "cluster": snapshot.cluster,
        "ts": snapshot.ts,
        "brokers": [
            {"id": b.id} | _present(rack=b.rack, capacity=b.capacity, alive=b.alive)
            for b in snapshot.brokers
        ],
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "leader": p.leader,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
            }
            | ({"elr": list(p.elr)} if p.elr else {})
            | _present(bytes=p.log_bytes, begin_offset=p.begin_offset, end_offset=p.end_offset)
            for p in snapshot.partitions
        ],
    }


def _present(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


# ---------------------------------------------------------------- measurement


def measurement_to(m: Measurement) -> Json:
    """A measurement file."""
    return {
        "v": VERSION,
        "kind": "measurement",
        "cluster": m.cluster,
        "from_ts": m.from_ts,
        "to_ts": m.to_ts,
        "window_s": tidy(m.window_s),
        "rejects": m.rejects,
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "bytes_s": p.bytes_s,
                "records_s": p.records_s,
                "source": str(p.source),
                "end_offset": p.end_offset,
                "lag": dict(p.lag),
                "lag_s": dict(p.lag_s),
                **({"committed_s": dict(p.committed_s)} if p.committed_s else {}),
                **({"least_lag": dict(p.least_lag)} if p.least_lag else {}),
                "complete": p.complete,
            }
            for p in m.partitions
        ],
        "keys": [{"topic": k.topic} | key_load_to(k) for k in m.keys],
    }


def key_load_to(key: KeyLoad) -> Json:
    """A heavy key, without its topic."""
    return key_field(key.key) | {
        "lower": key.lower,
        "upper": key.upper,
        "share": key.share,
        "partition_home": key.partition_home,
    }


def measurement_from(node: Node) -> Measurement:
    """Reads a measurement file."""
    node.version()
    node.known(
        "v", "kind", "cluster", "from_ts", "to_ts", "window_s", "rejects", "partitions", "keys"
    )
    partitions: dict[TopicPartition, PartitionLoad] = {}
    for entry in node.need("partitions").list():
        load = _read_partition_load(entry)
        if load.name in partitions:
            entry.fail(f"partition {load.name} appears twice")
        partitions[load.name] = load
    cluster, keys = node.get("cluster"), node.get("keys")
    return Measurement(
        cluster=cluster.text() if cluster is not None else None,
        from_ts=node.need("from_ts").integer(),
        to_ts=node.need("to_ts").integer(),
        window_s=node.need("window_s").number(above=0),
        rejects=node.need("rejects").integer(least=0),
        partitions=tuple(partitions[p] for p in sorted(partitions)),
        keys=tuple(_read_key_load(entry) for entry in keys.list()) if keys is not None else (),
    )


def _read_partition_load(entry: Node) -> PartitionLoad:
    entry.known(
        "topic",
        "partition",
        "bytes_s",
        "records_s",
        "source",
        "end_offset",
        "lag",
        "lag_s",
        "committed_s",
        "least_lag",
        "complete",
    )

    def rate(name: str) -> float | None:
        found = entry.get(name)
        return None if found is None else found.number(least=0)

    def per_group(name: str, read: Callable[[Node], _T]) -> dict[str, _T | None]:
        found = entry.get(name)
        if found is None:
            return {}
        return {g: None if n.value is None else read(n) for g, n in found.items()}

    source, end = entry.need("source"), entry.get("end_offset")
    if source.value not in list(Source):
        source.fail(f"should be one of {', '.join(Source)}, is {source.value}")
    return PartitionLoad(
        topic=entry.need("topic").text(),
        partition=entry.need("partition").integer(least=0),
        bytes_s=rate("bytes_s"),
        records_s=rate("records_s"),
        source=Source(source.value),
        end_offset=None if end is None else end.integer(least=0),
        lag=per_group("lag", lambda n: n.integer(least=0)),
        lag_s=per_group("lag_s", lambda n: n.number(least=0)),
        committed_s=per_group("committed_s", lambda n: n.number(least=0)),
        least_lag=per_group("least_lag", lambda n: n.integer(least=0)),
        complete=entry.need("complete").flag(),
    )


def _read_key_load(entry: Node) -> KeyLoad:
    entry.known("topic", "key", "key_b64", "lower", "upper", "share", "partition_home")
    home = entry.get("partition_home")
    return KeyLoad(
        topic=entry.need("topic").text(),
        key=read_key(entry),
        lower=entry.need("lower").integer(least=0),
        upper=entry.need("upper").integer(least=0),
        share=entry.need("share").number(least=0),
        partition_home=None if home is None else home.integer(least=0),
    )


# ---------------------------------------------------------------- records of Trimtab's topics


def telemetry_to(
    partition: Replicas,
    *,
    ts: int,
    sample_id: str,
    cluster: str | None,
    committed: Mapping[str, int | None],
) -> Json:
    """A record of `trimtab.telemetry`."""
    return {
        "v": VERSION,
        "sample_id": sample_id,
        "ts": ts,
        "cluster": cluster,
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "log_bytes": partition.log_bytes,
        "begin_offset": partition.begin_offset,
        "end_offset": partition.end_offset,
        "committed": dict(committed),
    }


def rates_to(
    topic: str,
    partitions: Iterable[PartitionLoad],
    *,
    ts: int,
    window_start: int,
    window_end: int,
    stale: frozenset[int] = frozenset(),
) -> Json:
    """A record of `trimtab.rates`: one topic with all its partitions."""
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
    return {
        "v": VERSION,
        "window_start": window_start,
        "window_end": window_end,
        "topic": topic,
        "n": n,
        "epsilon": epsilon,
        "keys": [key_load_to(k) for k in keys],
    }


def weights_to(weights: Weights) -> Json:
    """A record of `trimtab.weights`."""
    return {
        "v": VERSION,
        "ts": weights.ts,
        "valid_s": tidy(weights.valid_s),
        "weights": {str(broker): weight for broker, weight in sorted(weights.weights.items())},
    }


def weights_from(node: Node) -> Weights:
    """Reads a record of `trimtab.weights`."""
    node.version()
    named = node.need("weights")
    return Weights(
        ts=node.need("ts").integer(least=0),
        valid_s=node.need("valid_s").number(above=0),
        weights={named.index(name): value.number(least=0) for name, value in named.items()},
    )


def offsets_from(node: Node) -> dict[TopicPartition, tuple[int, int]]:
    """Reads `{"topic":{"0":[first,next]}}`."""

    def pair(value: Node) -> tuple[int, int]:
        numbers = [n.integer(least=0) for n in value.list()]
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            value.fail("should be [first, next], in order")
        return numbers[0], numbers[1]

    return read_by_partition(node, pair)


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
