"""Makes the worker of a keyed consumer: topics checked, receipts, tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ParamSpec

from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.model.record import Record

if TYPE_CHECKING:
    from trimtab.apply.consumers.interfaces import AttachedWorker
    from trimtab.apply.keys.kafka.keyed_work import KeyedWork
    from trimtab.apply.keys.kafka.keyed_worker import KeyedWorker
    from trimtab.apply.keys.task_round import AppliedReceipt

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedConsumer:
    """Opens the worker of a keyed consumer; see `ConsumerConfig.worker`.

    Example::

        keyed = KeyedConsumer(
            cluster=cluster, group="pay", topics=("orders",), work=KeyedWork(handler=handler)
        )
        DirectedConsumer(ConsumerConfig(..., worker=keyed)).run()
    """

    cluster: Cluster
    group: str
    topics: tuple[str, ...]
    work: KeyedWork
    index: int | None = None
    receipts: bool = True
    run: str = "live"

    def __call__(
        self,
        *,
        client_id: str,
        incarnation: str,
        stop: threading.Event,
        on_fenced: Callable[[frozenset[TopicPartition]], None] | None,
    ) -> AbstractContextManager[AttachedWorker]:
        """The worker; it is closed with the block."""
        return self._opened(client_id, incarnation, stop, on_fenced)

    @contextmanager
    def _opened(
        self,
        client_id: str,
        incarnation: str,
        stop: threading.Event,
        on_fenced: Callable[[frozenset[TopicPartition]], None] | None,
    ) -> Iterator[KeyedWorker]:
        from trimtab.apply.keys.kafka.keyed_worker import KeyedWorker
        from trimtab.apply.keys.kafka.topic_checks import checked_topics
        from trimtab.apply.keys.keyed_metrics import KeyedMetrics

        with self.cluster.admin() as admin:
            facts = checked_topics(admin, self.topics, self.group)
        text = self._receipt_text(incarnation) if self.receipts else None
        shown = KeyedMetrics(self.group)
        worker = KeyedWorker(
            self.cluster,
            self.group,
            replace(
                self.work,
                receipt_text=text,
                on_adopted=each(self.work.on_adopted, shown.adopted),
                on_restored=each(self.work.on_restored, shown.restored),
                on_written=each(self.work.on_written, shown.written),
            ),
            facts=facts,
            client_id=client_id,
            stop=stop,
            on_fenced=on_fenced,
        )
        shown.show(lambda: worker.tasks)
        try:
            yield worker
        finally:
            shown.hide()
            worker.close()

    def _receipt_text(self, incarnation: str) -> Callable[[AppliedReceipt], bytes]:
        def text(applied: AppliedReceipt) -> bytes:
            record = applied.record
            event_ts = _number(record, "tt-ts")
            receipt = Receipt(
                run=self.run,
                group=self.group,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                key=record.key,
                seq=_number(record, "tt-seq"),
                set_id=applied.set_id,
                consumer=self.index or 0,
                incarnation=incarnation,
                event_ts=record.timestamp_ms * 1000 if event_ts is None else event_ts,
                started_ts=applied.started_ts,
                finished_ts=applied.finished_ts,
                chain=applied.chain,
            )
            return dumps(receipt_to(receipt)).encode()

        return text


def each(first: Callable[P, None], second: Callable[P, None]) -> Callable[P, None]:
    """Calls both."""

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return call


def _number(record: Record, header: str) -> int | None:
    """A number from a header: eight bytes, big-endian, signed; None if it is not one."""
    value = record.header(header)
    if value is None or len(value) != 8:
        return None
    return int.from_bytes(value, "big", signed=True)
