"""Keeps the current partition leaders in memory, for producers that use librdkafka.

Why      librdkafka returns leaders only by a metadata request: one per record would be too slow.
Promise  `snapshot` never waits. It is refreshed every `refresh_s`, and at once after `look_again`,
         at most ten times a second; it stays the same object while nothing changes. Without an
         answer the last one stays, topic by topic. `ensure_known` fetches a new topic; a deleted
         topic is forgotten, unless it is expected. A leader that is not among the brokers counts as
         no leader. A watch that is dropped without `close` ends by itself.
Cost     One request per topic and refresh. Producers that share a partitioner must share the watch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Protocol, Self
from weakref import finalize, ref

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from trimtab.errors import BrokerUnavailable, TrimtabError, UnknownTopic
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.kafka.retry import attempts
from trimtab.model.cluster import NO_LEADER
from trimtab.observe.logging import library_log
from trimtab.plan.records.leaders import LeaderSnapshot

log = library_log()

_PAUSE_S = 0.1  # at most ten refreshes a second
_SHORTEST_ANSWER_S, _LONGEST_ANSWER_S = 1.0, 5.0
_unnamed = count(1)
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


class _NoLeadersYet(BrokerUnavailable):
    """A broker answered, but does not know the leaders of this topic yet."""


class LeaderSource(Protocol):
    """Where a watch gets leaders and racks."""

    @property
    def cluster(self) -> str | None:
        """The id of the cluster; None while unknown."""
        ...

    def leaders(self, topic: str, within_s: float) -> Mapping[int, int]:
        """The leader of each partition; raises UnknownTopic or BrokerUnavailable."""
        ...

    def racks(self, within_s: float) -> Mapping[int, str | None]:
        """The rack of each broker."""
        ...


class ClientSource:
    """Uses a librdkafka client: a producer or an admin client.

    Its metadata has no racks: these come from an admin client that `open_admin` opens for each
    request, or are unknown without it.
    """

    def __init__(self, client: Any, open_admin: Callable[[], AdminClient] | None = None) -> None:
        self.cluster: str | None = None
        self._client = client
        self._open_admin = open_admin

    def leaders(self, topic: str, within_s: float) -> Mapping[int, int]:
        """The leader of each partition."""
        what = f"asking who leads topic {topic}"
        try:
            with kafka_errors(what):
                found = self._client.list_topics(topic, timeout=within_s)
        except RuntimeError as closed:
            raise BrokerUnavailable(f"The client was closed while {what}.") from closed
        self.cluster = getattr(found, "cluster_id", None) or self.cluster
        described = found.topics.get(topic)
        error = None if described is None else described.error
        if described is None or (error is not None and error.code() in _GONE):
            raise UnknownTopic(
                f"There is no topic {topic}.",
                hint="Check the name, or create the topic first.",
            )
        if error is not None and error.code() == KafkaError.LEADER_NOT_AVAILABLE:
            raise _NoLeadersYet(f"Topic {topic} has no leaders yet.", hint="Try again.")
        if error is not None:
            raise translated(KafkaException(error), what)
        return {
            p.id: p.leader if p.leader in found.brokers else NO_LEADER
            for p in described.partitions.values()
        }

    def racks(self, within_s: float) -> Mapping[int, str | None]:
        """The rack of each broker."""
        if self._open_admin is None:
            return {}
        with kafka_errors("asking for the brokers' racks"):
            admin = self._open_admin()  # must stay open until the answer has arrived
            found = admin.describe_cluster(request_timeout=within_s).result()
        return {node.id: node.rack for node in found.nodes}


class LeaderWatch:
    """The leaders of all topics used so far; the creator must close it."""

    def __init__(
        self,
        source: LeaderSource,
        *,
        refresh_s: float = 5.0,
        first_use_s: float = 10.0,
    ) -> None:
        """Sends no request yet.

        Args:
            source: Where leaders come from.
            refresh_s: The time between two refreshes.
            first_use_s: How long the first request for a topic may take.
        """
        self.snapshot = LeaderSnapshot({})
        self._source = source
        self._refresh_s = refresh_s
        self._first_use_s = first_use_s
        self._answer_s = min(max(refresh_s, _SHORTEST_ANSWER_S), _LONGEST_ANSWER_S)
        self._leaders: dict[str, Mapping[int, int]] = {}
        self._racks: Mapping[int, str | None] = {}
        self._published: tuple[Mapping[str, Mapping[int, int]], Mapping[int, str | None], str] = (
            {},
            {},
            "",
        )
        self._racks_asked_for: frozenset[int] = frozenset()
        self._looking = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unanswered: set[str] = set()
        self._expected: set[str] = set()
        self._racks_unknown = False
        self._unnamed = f"unnamed {next(_unnamed)}"
        finalize(self, _end, self._closed, self._wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ensure_known(self, topic: str) -> None:
        """Returns when the leaders of a topic are known.

        Raises UnknownTopic or BrokerUnavailable after `first_use_s`: a new topic is not known to
        all brokers at once.
        """
        if topic in self._published[0]:
            return
        until = time.monotonic() + self._first_use_s  # also for a thread that waits for another
        with self._looking:
            if topic not in self._leaders:
                left_s = max(0.0, until - time.monotonic())
                self._leaders[topic] = self._first_leaders(topic, left_s)
            self._publish()
        self._start()

    def _first_leaders(self, topic: str, within_s: float) -> Mapping[int, int]:
        """The leaders of a topic that was not asked for before; asks at least once."""
        failure: TrimtabError = UnknownTopic(f"There is no topic {topic}.")
        for left_s in attempts(within_s=within_s, stop=self._closed):
            try:
                return self._source.leaders(topic, max(left_s, _PAUSE_S))
            except (UnknownTopic, BrokerUnavailable) as error:
                failure = error
        raise failure

    def expect(self, topic: str) -> None:
        """Asks for a topic at every refresh until it is found, without waiting for it."""
        self._expected.add(topic)
        self._start()

    def look_again(self) -> None:
        """Refreshes soon, without waiting for it; call it when leaders may have moved."""
        self._wake.set()

    def refresh(self, topic: str | None = None) -> None:
        """Refreshes one topic, or all; topics without an answer stay as they are."""
        with self._looking:
            every = dict.fromkeys((*self._leaders, *tuple(self._expected)))
            for name in every if topic is None else (topic,):
                if self._closed.is_set() or not self._look(name):
                    break
            self._publish()

    def close(self) -> None:
        """Ends the watch; the last snapshot remains."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closed.is_set():
                args = ref(self), self._wake, self._closed, self._refresh_s
                self._thread = threading.Thread(
                    target=_run, args=args, name="leader-watch", daemon=True
                )
                self._thread.start()

    def _look(self, topic: str) -> bool:
        """Asks for a topic; False if no broker answers: the next topic would not be answered."""
        try:
            self._leaders[topic] = self._source.leaders(topic, self._answer_s)
            self._expected.discard(topic)
        except UnknownTopic:
            if self._leaders.pop(topic, None) is not None:
                log.warning("topic_was_deleted", topic=topic)
        except TrimtabError as error:
            if topic not in self._unanswered:  # once, not at every refresh
                log.warning("leaders_could_not_be_asked", topic=topic, why=error.message)
            self._unanswered.add(topic)
            return isinstance(error, _NoLeadersYet) or not isinstance(error, BrokerUnavailable)
        if topic in self._unanswered:
            log.warning("leaders_are_known_again", topic=topic)
            self._unanswered.discard(topic)
        return True

    def _publish(self) -> None:
        """Replaces the snapshot if something changed; asks for the racks of new brokers."""
        leading = frozenset(
            b for of_topic in self._leaders.values() for b in of_topic.values() if b >= 0
        )
        if not leading <= self._racks_asked_for:
            try:
                self._racks = self._source.racks(self._answer_s)
                self._racks_asked_for |= leading
            except TrimtabError as error:
                if not self._racks_unknown:  # logged once, retried at every refresh
                    log.warning("racks_are_unknown", why=error.message)
                self._racks_unknown = True
        found = dict(self._leaders), self._racks, self._source.cluster or self._unnamed
        if found != self._published:
            self.snapshot = LeaderSnapshot(*found)
            self._published = found


def _run(
    watch: ref[LeaderWatch], wake: threading.Event, closed: threading.Event, refresh_s: float
) -> None:
    """Refreshes periodically; keeps a reference to the watch only during a refresh."""
    while not closed.is_set():
        wake.wait(refresh_s)
        wake.clear()
        existing = watch()
        if existing is None:
            return
        if not closed.is_set():
            existing.refresh()
        del existing
        closed.wait(_PAUSE_S)


def _end(closed: threading.Event, wake: threading.Event) -> None:
    closed.set()
    wake.set()
