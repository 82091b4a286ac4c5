"""What a campaign has left in topics: the history of every key, and its state at rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.handover_layout import handover_chunk
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.message_sets import EndMarker, FenceMarker, StartMarker
from trimtab.apply.keys.record_headers import parse as parse_headers
from trimtab.apply.keys.state_layout import RestoredState, entry_of
from trimtab.evaluate.key_history import (
    KeptEntry,
    KeptStatus,
    KeyHistory,
    KeySetPlace,
    NumberedKey,
    SetMarker,
    SetMarkerKind,
    SetReceipt,
)
from trimtab.kafka.cluster import Cluster
from trimtab.model.control_codec import receipt_from
from trimtab.model.json_reader import parse
from trimtab.model.record import Record
from trimtab.observe.clock import TimedOut, wait_until

_RECEIPT_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class CountedState:
    """The state of the counting handler."""

    count: int
    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The history for the set audit, the counted states, and how long states were on their way."""

    history: KeyHistory
    counts: Mapping[bytes, CountedState]
    from_end_s: tuple[float, ...] = field(default=())

    @property
    def unrest(self) -> str:
        """What is not finished, in words; empty if everything is at rest."""
        history = self.history
        waiting = sum(entry.status is KeptStatus.WAIT for entry in history.entries)
        parked = sum(history.parked.values())
        found = {
            "keys wait": waiting,
            "records are parked": parked,
            "states came early": len(history.early),
            "states are on their way": len(history.handovers),
        }
        return ", ".join(f"{number} {what}" for what, number in found.items() if number)


def aftermath(
    cluster: Cluster, topic: str, group: str, partitions: int, truth: Counter[bytes]
) -> Aftermath:
    """Reads everything that was committed so far."""
    topics = KeyedTopics(topic, group)
    data = _read(cluster, topic, partitions)
    handovers = _read(cluster, topics.handover, partitions)
    markers = tuple(_markers(data))
    entries, parked, early = _states(_read(cluster, topics.state, partitions), partitions)
    last = {(r.partition, r.key or b""): r.value for r in handovers}
    open_ones: list[KeySetPlace] = []
    adopted: list[KeySetPlace] = []
    for (partition, key), value in last.items():
        chunk = handover_chunk(key, value)
        place = KeySetPlace(chunk.key, chunk.set_id, partition)
        (adopted if value is None else open_ones).append(place)
    history = KeyHistory(
        acknowledged={key: range(1, count + 1) for key, count in truth.items()},
        receipts=tuple(_receipts(cluster, group)),
        markers=markers,
        entries=tuple(entry for entry, _ in entries),
        parked=parked,
        early=early,
        handovers=open_ones,
        adopted=adopted,
        dead=frozenset(_dead(_read(cluster, topics.dead, partitions))),
    )
    counts = {entry.key: count for entry, count in entries if count is not None}
    return Aftermath(
        history=history, counts=counts, from_end_s=tuple(_from_end(data, markers, handovers))
    )


def _read(cluster: Cluster, topic: str, partitions: int) -> list[Record]:
    settings = {
        "group.id": "aftermath",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found: list[Record] = []
    ended: set[int] = set()
    with closing(cluster.consumer("aftermath", settings)) as reader:
        reader.assign([TheirPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])

        def all_ended() -> bool:
            for message in reader.consume(1000, 0.2):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition() or 0)
                    continue
                listed: Any = message.headers() or ()
                headers = tuple((name, value or b"") for name, value in listed)
                place = (topic, message.partition() or 0, message.offset() or 0)
                time_ms = message.timestamp()[1]
                found.append(Record(*place, message.key(), message.value(), headers, time_ms))
            return len(ended) == partitions

        wait_until(all_ended, within_s=120, every_s=0.0, what=f"the end of {topic}")
    return found


def _markers(data: list[Record]) -> Iterator[SetMarker]:
    for record in data:
        if record.header("tt-kind") is None:
            continue
        found = parse_headers(record)
        where: dict[str, Any] = {"partition": record.partition, "offset": record.offset}
        match found:
            case EndMarker():
                yield SetMarker(
                    kind=SetMarkerKind.END,
                    **where,
                    shard=found.shard,
                    gen=found.gen,
                    key=record.key or b"",
                    set_id=found.next_set,
                    old_set=found.set_id,
                    other=found.to,
                )
            case StartMarker():
                yield SetMarker(
                    kind=SetMarkerKind.START,
                    **where,
                    shard=found.shard,
                    gen=found.gen,
                    key=record.key or b"",
                    set_id=found.set_id,
                    other=found.source,
                    end_offset=found.end_offset,
                )
            case FenceMarker():
                yield SetMarker(kind=SetMarkerKind.FENCE, **where, shard=found.shard, gen=found.gen)
            case _:
                pass


def _states(
    records: list[Record], partitions: int
) -> tuple[
    list[tuple[KeptEntry, CountedState | None]],
    dict[tuple[int, bytes], int],
    list[KeySetPlace],
]:
    """The entries with their counted states, the parked records, and early hand-overs."""
    entries: list[tuple[KeptEntry, CountedState | None]] = []
    parked: dict[tuple[int, bytes], int] = {}
    early: list[KeySetPlace] = []
    for partition in range(partitions):
        restored = RestoredState()
        for record in records:
            if record.partition == partition and record.key is not None:
                restored.add(record.key, record.value)
        restored.finish()
        for key, text in restored.entries.items():
            entry = entry_of(text)
            count = None if entry.value is None else CountedState(**json.loads(entry.value))
            kept = KeptEntry(
                partition=partition,
                key=key,
                status=KeptStatus(entry.status.value),
                set_id=entry.set_id,
                has_value=count is not None,
                chain=None if count is None else count.chain,
            )
            entries.append((kept, count))
        parked |= {(partition, key): len(texts) for key, texts in restored.parked.items()}
        early += [
            KeySetPlace(key, set_id, partition)
            for key, held in restored.held.items()
            for set_id in held
        ]
    return entries, parked, early


def _receipts(cluster: Cluster, group: str) -> Iterator[SetReceipt]:
    for record in _read(cluster, cluster.topics.receipts, _RECEIPT_PARTITIONS):
        found = receipt_from(parse((record.value or b"").decode(), origin="receipts"))
        if found.group == group:
            yield SetReceipt(
                key=found.key or b"",
                seq=found.seq,
                set_id=found.set_id,
                partition=found.partition,
                offset=found.offset,
                chain=found.chain,
                run=found.run,
                consumer=found.consumer,
                incarnation=found.incarnation,
                started_ts=found.started_ts,
                finished_ts=found.finished_ts,
                log_partition=record.partition,
                log_offset=record.offset,
            )


def _dead(records: list[Record]) -> Iterator[NumberedKey]:
    for record in records:
        number = record.header("tt-seq")
        if number is not None:
            yield NumberedKey(record.key or b"", int.from_bytes(number, "big", signed=True))


def _from_end(
    data: list[Record], markers: tuple[SetMarker, ...], handovers: list[Record]
) -> Iterator[float]:
    """Seconds from the first END of a set to its adoption."""
    times = {(r.partition, r.offset): r.timestamp_ms for r in data}
    ended: dict[tuple[bytes, int], int] = {}
    for marker in markers:
        if marker.kind is SetMarkerKind.END:
            ended.setdefault((marker.key, marker.set_id), times[marker.partition, marker.offset])
    for record in handovers:
        chunk = handover_chunk(record.key or b"", record.value)
        began = ended.pop((chunk.key, chunk.set_id), None) if record.value is None else None
        if began is not None:
            yield (record.timestamp_ms - began) / 1000


def settled_aftermath(
    cluster: Cluster,
    topic: str,
    group: str,
    partitions: int,
    truth: Counter[bytes],
    *,
    within_s: float,
) -> Aftermath:
    """The same once everything is at rest; what is found after `within_s` if it never is."""

    def look() -> Aftermath:
        return aftermath(cluster, topic, group, partitions, truth)

    found = [look()]

    def at_rest() -> bool:
        if found[-1].unrest:
            found.append(look())
        return not found[-1].unrest

    with suppress(TimedOut):
        wait_until(at_rest, within_s=within_s, every_s=1.0, what="hand-overs")
    return found[-1]
