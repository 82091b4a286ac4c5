"""Reads and writes `trimtab.plans`: plans by id, and the journal of each."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException

from trimtab.errors import BadFile, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.compacted import Keyed, TopicReader
from trimtab.kafka.errors import kafka_errors
from trimtab.model.codec import dumps
from trimtab.model.journal import JournalEntry
from trimtab.model.journal_codec import journal_from, journal_to
from trimtab.model.json_reader import parse
from trimtab.model.plan import AnyPlan
from trimtab.model.plan_codec import plan_from, plan_id, plan_to
from trimtab.observe.logging import library_log

log = library_log()

_CLIENT = "trimtab-plans"
_STATE = "/state"


def journal_record(entry: JournalEntry) -> tuple[bytes, bytes]:
    """Key and value of an entry's record."""
    return f"{entry.plan}{_STATE}".encode(), dumps(journal_to(entry)).encode()


def plan_record(plan: AnyPlan) -> tuple[bytes, bytes]:
    """Key and value of a plan's record."""
    return plan_id(plan).encode(), dumps(plan_to(plan)).encode()


class PlanTopic:
    """The stored plans and journals; `refresh` and `wait` read new records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topic = cluster.topics.plans
        self._plans: dict[str, bytes] = {}
        self._journal: dict[str, JournalEntry] = {}
        self._reader = TopicReader(cluster, self._topic, client_id=_CLIENT)

    def close(self) -> None:
        """Closes the client."""
        self._reader.close()

    def refresh(self) -> None:
        """Reads all records up to the current end."""
        if not self._reader.missing:
            self._take(self._reader.read_to_end())

    def wait(self, seconds: float) -> None:
        """Reads records that arrive within this time."""
        self._take(self._reader.read_for(seconds))

    def plan(self, plan: str) -> AnyPlan | None:
        """The plan with this id; None if there is none."""
        value = self._plans.get(plan)
        return None if value is None else plan_from(parse(value, origin=self._topic))

    def newest(self, plan: str) -> JournalEntry | None:
        """The last entry of a plan's journal."""
        return self._journal.get(plan)

    def entries(self) -> tuple[JournalEntry, ...]:
        """The last entry of every plan that has a journal, oldest first."""
        return tuple(sorted(self._journal.values(), key=lambda entry: (entry.ts, entry.plan)))

    def keep(self, plan: AnyPlan, entry: JournalEntry) -> None:
        """Writes a plan and an entry of its journal, and returns when both are acknowledged."""
        self._send([plan_record(plan), journal_record(entry)])
        self._journal[entry.plan] = entry

    def write(self, entry: JournalEntry) -> None:
        """Writes an entry, and returns when it is acknowledged."""
        self._send([journal_record(entry)])
        self._journal[entry.plan] = entry

    def _send(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        deliver(self._cluster, [(self._topic, None, key, value) for key, value in records])

    def _take(self, records: Iterable[Keyed]) -> None:
        for key, value in records:
            name = (key or b"").decode(errors="replace")
            if value is None:
                self._plans.pop(name, None)
                self._journal.pop(name.removesuffix(_STATE), None)
            elif not name.endswith(_STATE):
                self._plans[name] = value
            else:
                try:
                    entry = journal_from(parse(value, origin=self._topic))
                except BadFile as error:
                    log.warning("journal_entry_was_refused", key=name, why=error.message)
                    continue
                self._journal[name.removesuffix(_STATE)] = entry


def deliver(
    cluster: Cluster,
    records: Iterable[tuple[str, int | None, bytes | None, bytes]],
    *,
    within_s: float | None = None,
) -> None:
    """Writes records (topic, partition, key, value); returns when all are acknowledged.

    Without `within_s` the cluster's `delivery_s` counts.
    """
    failed: list[str] = []

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error.str())

    with kafka_errors("writing a plan"):
        producer = cluster.producer(
            _CLIENT, {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        for topic, partition, key, value in records:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition=-1 if partition is None else partition,  # the client chooses
                    on_delivery=on_delivery,
                )
            except KafkaException as error:
                failed.append(str(error))
        left = producer.flush(cluster.timeouts.delivery_s if within_s is None else within_s)
    if left or failed:
        why = failed[0] if failed else f"{left} records were not acknowledged"
        raise BrokerUnavailable(f"A plan could not be written: {why}.")


def kept_plan(cluster: Cluster, plan: str) -> tuple[AnyPlan | None, JournalEntry | None]:
    """The stored plan and the last entry of its journal."""
    with cluster.admin() as admin:
        if not admin.topics([cluster.topics.plans]):
            return None, None
    with closing(PlanTopic(cluster)) as topic:
        topic.refresh()
        return topic.plan(plan), topic.newest(plan)
