"""The topics of a keyed consumer group as a history for the set audit."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.apply.keys.handover_layout import handover_chunk
from trimtab.apply.keys.key_entry import KeyEntry
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    FenceMarker,
    PlainRecord,
    StartMarker,
)
from trimtab.apply.keys.record_headers import parse as parse_headers
from trimtab.apply.keys.state_layout import RestoredState, entry_of
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.errors import ConfigError, MeasurementError, SchemaMismatch
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
from trimtab.model.control_codec import receipt_from
from trimtab.model.json_reader import parse
from trimtab.model.record import Record, TopicLog

ReadTopic = Callable[[str], TopicLog | None]
"""The log of a topic; None if there is no such topic."""

_SEQ = "tt-seq"


def read_key_history(
    read: ReadTopic, topics: KeyedTopics, *, receipts: str, source: str | None = None
) -> KeyHistory:
    """Reads everything that the set audit needs.

    `source` is the topic that has every record of the source; without it `<t>.in` if it exists,
    else the data topic. Receipts are read first and the source last, so that a source that goes on
    does not look like a receipt without a record.
    """
    given = _log(read, receipts, "Receipts are written by `trimtab consume --keyed`.")
    applied = tuple(_receipts(given, topics))
    kept = _KeptState.read(_beside(read, topics.state, topics).records)
    handovers, adopted = _handovers(_beside(read, topics.handover, topics).records)
    data_log = _log(read, topics.data, "Correct --topic.")
    data = _DataTopic.read(data_log.records)
    input_log = None
    if source is not None and source != topics.data:
        input_log = _log(read, source, "Correct --source.")
    elif source is None:
        input_log = read(topics.input)
    if input_log is None:
        acknowledged, starts = data.acknowledged(), data_log.starts
    else:
        acknowledged = _joined(data.plain, _numbers(input_log.records))
        starts = input_log.starts
    dead = read(topics.dead)
    return KeyHistory(
        acknowledged=acknowledged,
        receipts=applied,
        markers=data.markers,
        entries=kept.entries,
        parked=kept.parked,
        early=kept.early,
        handovers=handovers,
        adopted=adopted,
        dead=frozenset() if dead is None else frozenset(_dead(dead.records)),
        log_starts=data_log.starts,
        complete=not any(given.starts.values()) and not any(starts.values()),
    )


def _log(read: ReadTopic, topic: str, hint: str) -> TopicLog:
    found = read(topic)
    if found is None:
        raise ConfigError(f"There is no topic {topic}.", hint=hint)
    return found


def _beside(read: ReadTopic, topic: str, topics: KeyedTopics) -> TopicLog:
    hint = (
        f"Group {topics.group} has not consumed {topics.data} by key: check --topic and --group, "
        "or start `trimtab consume --keyed`."
    )
    return _log(read, topic, hint)


# ------------------------------------------------------------ receipts and sources


def _receipts(log: TopicLog, topics: KeyedTopics) -> Iterator[SetReceipt]:
    for record in log.records:
        try:
            found = receipt_from(parse(record.value or b"", origin=record.topic))
        except ConfigError as error:
            raise SchemaMismatch(
                f"{record.source} has a record at offset {record.offset} that is no receipt: "
                f"{error}"
            ) from error
        if (found.group, found.topic) != (topics.group, topics.data) or found.key is None:
            continue
        yield SetReceipt(
            key=found.key,
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


def _seq(record: Record) -> int | None:
    value = record.header(_SEQ)
    if value is None or len(value) != 8:
        return None
    return int.from_bytes(value, "big", signed=True)


def _numbers(records: Iterable[Record]) -> dict[bytes, list[int]]:
    """The numbers of each key; the records of a key are in one partition."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for record in records:
        seq = _seq(record)
        if record.key is not None and seq is not None:
            found[record.key].append(seq)
    return dict(found)


def _dead(records: Iterable[Record]) -> Iterator[NumberedKey]:
    for record in records:
        seq = _seq(record)
        if record.key is not None and seq is not None:
            yield NumberedKey(record.key, seq)


def _joined(
    before: Mapping[bytes, Sequence[int]], after: Mapping[bytes, Sequence[int]]
) -> dict[bytes, list[int]]:
    """Records that were written past the gateway, and those of its input, as one sequence.

    By number if each occurs once, else the former first: they were written before it came.
    """
    found = {key: list(numbers) for key, numbers in after.items()}
    for key, numbers in before.items():
        both = [*numbers, *found.get(key, ())]
        found[key] = sorted(both) if len(set(both)) == len(both) else both
    return found


# ------------------------------------------------------------ the data topic


@dataclass(slots=True)
class _DataTopic:
    """Markers, and the numbers of records with and without a gateway's headers.

    `routed` has for each key the shard and the source offset of every record: a gateway that
    restarts sends records again, which are the same ones.
    """

    markers: tuple[SetMarker, ...] = ()
    plain: dict[bytes, list[int]] = field(default_factory=dict)
    routed: dict[bytes, dict[tuple[int, int], int]] = field(default_factory=dict)

    @classmethod
    def read(cls, records: Iterable[Record]) -> _DataTopic:
        found = cls()
        markers = []
        for record in records:
            parsed = parse_headers(record)
            key, seq = record.key or b"", _seq(record)
            match parsed:
                case EndMarker() | StartMarker() | FenceMarker():
                    markers.append(_marker(record, parsed))
                case DataRecord() if seq is not None:
                    sent = found.routed.setdefault(key, {})
                    sent.setdefault((parsed.shard, parsed.src), seq)
                case PlainRecord() if seq is not None:
                    found.plain.setdefault(key, []).append(seq)
                case _:
                    pass
        found.markers = tuple(markers)
        return found

    def acknowledged(self) -> dict[bytes, list[int]]:
        """The records as the source wrote them, without an input topic to tell."""
        routed = {key: [sent[at] for at in sorted(sent)] for key, sent in self.routed.items()}
        return _joined(self.plain, routed)


def _marker(record: Record, parsed: EndMarker | StartMarker | FenceMarker) -> SetMarker:
    marker = SetMarker(
        kind=SetMarkerKind.FENCE,
        partition=record.partition,
        offset=record.offset,
        shard=parsed.shard,
        gen=parsed.gen,
    )
    match parsed:
        case EndMarker():
            return replace(
                marker,
                kind=SetMarkerKind.END,
                key=record.key or b"",
                set_id=parsed.next_set,
                old_set=parsed.set_id,
                other=parsed.to,
            )
        case StartMarker():
            return replace(
                marker,
                kind=SetMarkerKind.START,
                key=record.key or b"",
                set_id=parsed.set_id,
                other=parsed.source,
                end_offset=parsed.end_offset,
            )
        case FenceMarker():
            return marker


# ------------------------------------------------------------ the state at rest


@dataclass(frozen=True, slots=True)
class _KeptState:
    """What `.state` says, over all partitions."""

    entries: tuple[KeptEntry, ...]
    parked: dict[tuple[int, bytes], int]
    early: tuple[KeySetPlace, ...]

    @classmethod
    def read(cls, records: Iterable[Record]) -> _KeptState:
        by_partition: defaultdict[int, RestoredState] = defaultdict(RestoredState)
        try:
            for record in records:
                if record.key is not None:
                    by_partition[record.partition].add(record.key, record.value)
            for state in by_partition.values():
                state.finish()
            entries = tuple(
                _entry(partition, key, entry_of(text))
                for partition, state in sorted(by_partition.items())
                for key, text in state.entries.items()
            )
        except BrokenState as error:
            raise MeasurementError(f"The changelog cannot be read: {error}.") from error
        return cls(
            entries,
            {
                (partition, key): len(numbers)
                for partition, state in by_partition.items()
                for key, numbers in state.parked.items()
            },
            tuple(
                KeySetPlace(key, set_id, partition)
                for partition, state in sorted(by_partition.items())
                for key, held in state.held.items()
                for set_id in held
            ),
        )


def _entry(partition: int, key: bytes, entry: KeyEntry[bytes]) -> KeptEntry:
    return KeptEntry(
        partition=partition,
        key=key,
        status=KeptStatus(entry.status.value),
        set_id=entry.set_id,
        has_value=entry.value is not None,
        chain=_chain(entry.value),
    )


def _chain(value: bytes | None) -> str | None:
    """The chain in a state of the counting handler."""
    if value is None or b'"chain"' not in value:
        return None
    try:
        state = json.loads(value)
    except ValueError:
        return None
    chain = state.get("chain") if isinstance(state, dict) else None
    return chain if isinstance(chain, str) else None


def _handovers(
    records: Iterable[Record],
) -> tuple[tuple[KeySetPlace, ...], tuple[KeySetPlace, ...]]:
    """The states on their way, and those that were adopted."""
    chunks: defaultdict[KeySetPlace, dict[int, bool]] = defaultdict(dict)
    for record in records:
        try:
            chunk = handover_chunk(record.key or b"", record.value)
        except BrokenState as error:
            raise MeasurementError(f"{record.source} cannot be read: {error}.") from error
        place = KeySetPlace(chunk.key, chunk.set_id, record.partition)
        chunks[place][chunk.chunk] = chunk.text is not None
    return (
        tuple(sorted(place for place, known in chunks.items() if any(known.values()))),
        tuple(sorted(place for place, known in chunks.items() if not any(known.values()))),
    )
