"""Gives up states that can never come, so that their keys go on with the empty state.

Promise  See `trimtab.apply.keys.end_search`. Each loss is logged and counted (`lost_states`).
Cost     Nothing until a key has waited for 30 s; then a look every 30 s, in a thread of its own,
         for at most 100 keys. Only where the group has passed END is anything read: the routes,
         the rest of the key's partition, and the changelog of the partition of END.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.end_search import (
    EndSources,
    KeySet,
    LostCandidate,
    OverdueKey,
    lost_candidates,
)
from trimtab.apply.keys.kafka.state_reader import state_consumer
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.message_sets import EndMarker, StartMarker
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import parse
from trimtab.apply.keys.routes_layout import prepared_set
from trimtab.apply.keys.state_layout import parked_record
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.errors import BrokerUnavailable, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

log = library_log()

_AT_ONCE = 10_000
_WAIT_S = 0.2
_KEYS_AT_ONCE = 100

Positions = Mapping[TopicPartition, int]


class LostEnds:
    """Looks after keys that have waited for `after_s`, as often; used by the worker's thread."""

    def __init__(
        self,
        sources: EndSources,
        *,
        after_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._after_s = after_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lost-ends")
        self._look: Future[tuple[LostCandidate, ...]] | None = None
        self._look_at = clock() + after_s
        self._candidates: tuple[LostCandidate, ...] = ()

    def look(
        self,
        tasks: Mapping[TopicPartition, PartitionTask],
        *,
        read_to: Positions,
        handovers_read: Positions,
    ) -> None:
        """Gives up what is lost for good, and begins the next look when it is time.

        `read_to` and `handovers_read` are by the data partition of a task: the offsets below which
        it has read its records, committed, and its hand-overs.
        """
        if self._look is not None and self._look.done():
            self._candidates, self._look = self._found(self._look), None
        if self._candidates:
            self._candidates = tuple(
                candidate
                for candidate in self._candidates
                if not self._settled(candidate, tasks, handovers_read)
            )
        elif self._look is None and self._clock() >= self._look_at:
            self._look_at = self._clock() + self._after_s
            waiting = self._waiting(tasks)
            if waiting:
                self._look = self._thread.submit(
                    lost_candidates, self._sources, waiting, dict(read_to)
                )

    def _waiting(self, tasks: Mapping[TopicPartition, PartitionTask]) -> list[OverdueKey]:
        found: list[OverdueKey] = []
        for partition, task in tasks.items():
            for key, awaited in task.overdue(self._after_s).items():
                set_id = task.awaited_set(key)
                if set_id is not None:
                    found.append(
                        OverdueKey(partition=partition, key=key, set_id=set_id, awaited=awaited)
                    )
                if len(found) == _KEYS_AT_ONCE:
                    return found
        return found

    def _found(self, look: Future[tuple[LostCandidate, ...]]) -> tuple[LostCandidate, ...]:
        try:
            return look.result()
        except (TrimtabError, BrokenState) as error:  # the keys go on waiting
            log.warning("late_states_not_looked_up", why=str(error))
            return ()

    def _settled(
        self,
        candidate: LostCandidate,
        tasks: Mapping[TopicPartition, PartitionTask],
        handovers_read: Positions,
    ) -> bool:
        """Whether there is nothing more to decide; adopts the empty state if there is no other."""
        waiting = candidate.waiting
        task = tasks.get(waiting.partition)
        if task is None or task.awaited_set(waiting.key) != waiting.set_id:
            return True
        if not candidate.is_lost(handovers_read.get(waiting.partition, -1)):
            return False
        if task.overdue(self._after_s).get(waiting.key) != waiting.awaited:
            return True  # another START was read meanwhile: the next look takes it from there
        task.adopt_lost(waiting.key)
        log.warning(
            "state_lost",
            key=waiting.key.decode(errors="backslashreplace"),
            set=waiting.set_id,
            partition=str(waiting.partition),
            end=f"{waiting.source} at {candidate.end.offset}",
            why="retention" if candidate.log_start > candidate.end.offset else "offsets moved",
        )
        return True

    def close(self) -> None:
        """Ends the thread and what it is reading."""
        self._sources.stop()
        self._thread.shutdown(wait=True, cancel_futures=True)


class KafkaEndSources:
    """The look-ups on a real cluster; see `EndSources`."""

    def __init__(self, cluster: Cluster, group: str, *, client_id: str) -> None:
        self._cluster = cluster
        self._group = group
        self._client_id = client_id
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ends what is being read."""
        self._stop.set()

    def prepared(self, topic: str, keys: Collection[bytes]) -> Collection[KeySet]:
        """The migrations of these keys that `.assign` has as prepared."""
        name = KeyedTopics(topic, self._group).assign
        with self._cluster.admin() as admin:
            ends = _spans(admin, [p.name for p in admin.topics([name])])
        routes: dict[bytes, bytes | None] = {}
        for partition, (_, end) in ends.items():
            for message in self._read(partition, None, end):
                key = message.key() or b""
                if key[:1] == b"k" and key[1:] in keys:
                    routes[key[1:]] = message.value()
        found = ((key, prepared_set(text)) for key, text in routes.items())
        return {KeySet(key, set_id) for key, set_id in found if set_id is not None}

    def ends_of_starts(
        self, partition: TopicPartition, start: int | None, sets: Collection[KeySet]
    ) -> Mapping[KeySet, int]:
        """The largest END offset that STARTs of these sets name, from offset `start` to the end."""
        keys = {name.key for name in sets}
        found: dict[KeySet, int] = {}
        for message in self._read(partition, start, self._end(partition)):
            key = message.key()
            if key not in keys:
                continue
            record = parse(_record(message))
            if isinstance(record, StartMarker):
                name = KeySet(key, record.set_id)
                found[name] = max(found.get(name, -1), record.end_offset)
        return {name: end for name, end in found.items() if name in sets}

    def log_starts(self, partitions: Collection[TopicPartition]) -> Positions:
        """The first offsets of these partitions."""
        with self._cluster.admin() as admin:
            return {name: start for name, (start, _) in _spans(admin, partitions).items()}

    def committed(self, partitions: Collection[TopicPartition]) -> Positions:
        """The group's offsets of these partitions, those it has."""
        with self._cluster.admin() as admin:
            offsets = admin.committed([self._group])
        if self._group not in offsets:
            raise BrokerUnavailable(f"The coordinator of group {self._group} did not answer.")
        return {p: at for p, at in offsets[self._group].items() if p in partitions}

    def parked_ends(self, partition: TopicPartition, keys: Collection[bytes]) -> Collection[KeySet]:
        """The sets to which parked ENDs of these keys lead, all transactions begun included."""
        topic = KeyedTopics(partition.topic, self._group).state
        changelog = TopicPartition(topic, partition.partition)
        parked: dict[bytes, bytes | None] = {}
        for message in self._read(changelog, None, self._end(changelog)):
            name = message.key() or b""
            if name[:1] == b"p" and name[1:-8] in keys:
                parked[name] = message.value()
        found = set()
        for name, text in parked.items():
            if text is None:
                continue
            key = name[1:-8]
            record = parse(parked_record(*partition, key, text))
            if isinstance(record, EndMarker):
                found.add(KeySet(key, record.next_set))
        return found

    def handover_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        """The ends of these tasks' hand-overs, all transactions begun included."""
        names = {
            TopicPartition(KeyedTopics(p.topic, self._group).handover, p.partition): p
            for p in partitions
        }
        with self._cluster.admin() as admin:
            return {names[name]: end for name, (_, end) in _spans(admin, names).items()}

    def _end(self, partition: TopicPartition) -> int:
        with self._cluster.admin() as admin:
            return _spans(admin, [partition])[partition][1]

    def _read(self, partition: TopicPartition, start: int | None, end: int) -> Iterator[Any]:
        """The committed records below `end`; waits for transactions that are open below it."""
        within_s = self._cluster.timeouts.request_s
        at = OFFSET_BEGINNING if start is None else start
        if end <= max(at, 0):
            return
        name = f"{self._client_id}-late-states"
        with (
            kafka_errors(f"reading {partition}"),
            state_consumer(self._cluster, client_id=name, group=self._group) as consumer,
        ):
            consumer.assign([TheirPartition(*partition, at)])
            until = time.monotonic() + within_s
            while time.monotonic() < until and not self._stop.is_set():
                for message in consumer.consume(_AT_ONCE, _WAIT_S):
                    error = message.error()
                    if error is None:
                        if (message.offset() or 0) >= end:
                            return
                        until = time.monotonic() + within_s
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if (message.offset() or 0) >= end:
                            return
                    elif error.fatal() or not error.retriable():
                        raise translated(KafkaException(error), f"reading {partition}")
        raise BrokerUnavailable(f"{partition} could not be read to its end.")


def _spans(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """First offset and high watermark of these partitions; raises if one is not known."""
    wanted = set(partitions)
    if not wanted:
        return {}
    leaders = {
        p.name: p.leader for p in admin.topics({p.topic for p in wanted}) if p.name in wanted
    }
    found = admin.offsets(leaders)
    missing = sorted(wanted - found.keys())
    if missing:
        raise BrokerUnavailable(f"No broker told the offsets of {missing[0]}.")
    return found


def _record(message: Any) -> Record:
    headers = tuple((name, value or b"") for name, value in message.headers() or ())
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        headers,
        0,
    )
