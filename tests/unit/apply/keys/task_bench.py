"""A task on a bench: it reads what a test says, and its rounds are kept."""

from __future__ import annotations

from itertools import count as counted

import pytest

from trimtab.apply.keys.handover_layout import handover_writes
from trimtab.apply.keys.key_entry import (
    KeyHandover,
)
from trimtab.apply.keys.keyed_handler import CODECS, KeyedHandler, Output, StateFormat
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    StartMarker,
)
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.state_layout import (
    RestoredState,
    entry_of,
)
from trimtab.apply.keys.task import ParkingLimits
from trimtab.apply.keys.task_round import TaskHandling, TaskLimits
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

HERE = 1
NO_HEADERS = ()


def joined(_key, state, record):
    """The values of a key one behind another, and one output for each of them."""
    if record.value == b"bad":
        raise ValueError("bad record")
    return (state or b"") + (record.value or b""), [Output("out", record.value)]


def joined_batch(key, state, records):
    outputs = []
    for record in records:
        state, more = joined(key, state, record)
        outputs += more
    return state, outputs


SINGLE = KeyedHandler(joined, codec=CODECS[StateFormat.BYTES])
BATCH = KeyedHandler(handle_batch=joined_batch, codec=CODECS[StateFormat.BYTES])


class Bench:
    """A task with its changelog; records get the next offset."""

    def __init__(self, handler=SINGLE, *, limit=1000, parked=100, stopped=False, topic_id=None):
        self.handler = handler
        self.limits = TaskLimits(max_state_bytes=limit, parking=ParkingLimits(parked, 10**6))
        self.stopped = stopped
        self.topic_id = topic_id
        self.now_s = 100.0
        self.state: dict[bytes, bytes | None] = {}
        self.offsets = counted(5)
        self.handover_offsets = counted(50)
        self.task = self.restored()

    def restored(self):
        """A task of what was written so far."""
        found = RestoredState()
        for key, value in self.state.items():
            found.add(key, value)
        found.finish()
        handling = TaskHandling(
            handler=self.handler,
            retry=Retry(attempts=2, first_s=0),
            stopped_within=lambda _pause_s: self.stopped,
            now_us=lambda: 7_000_000,
            clock=lambda: self.now_s,
        )
        return PartitionTask(
            TopicPartition("orders", HERE),
            found,
            handling,
            partitions=3,
            topic_id=self.topic_id,
            limits=self.limits,
        )

    def read(self, what, key=b"a", value=None):
        headers = what if isinstance(what, tuple) else headers_for(what)
        record = Record("orders", HERE, next(self.offsets), key, value, headers, 1)
        self.task.read(record)
        return record

    def plain(self, value, key=b"a"):
        return self.read(NO_HEADERS, key, value)

    def data(self, src, value=None, *, key=b"a", set_id=None, gen=1, shard=0):
        data = DataRecord(shard=shard, gen=gen, src=src, set_id=set_id)
        return self.read(data, key, b"%d" % src if value is None else value)

    def end(self, next_set, to=2, key=b"a"):
        return self.read(EndMarker(shard=0, gen=1, set_id=0, next_set=next_set, to=to), key)

    def start(self, set_id, key=b"a", source=0):
        marker = StartMarker(shard=0, gen=1, set_id=set_id, source=source, end_offset=40)
        return self.read(marker, key)

    def hand_over(self, set_id, value, key=b"a", *, limit=1000, chunks=None):
        """Reads a hand-over; `chunks` are the numbers of those that are read."""
        sent = KeyHandover(set_id=set_id, source=0, value=value, last_src=((0, set_id),))
        for number, (name, text) in enumerate(handover_writes(key, sent, limit)):
            if chunks is None or number in chunks:
                offset = next(self.handover_offsets)
                self.task.read_handover(Record("h", HERE, offset, name, text, (), 6_000))

    def replay(self, most=100):
        steps = iter(range(most))
        self.task.replay(lambda: next(steps, None) is None)

    def finish(self):
        finished = self.task.finish_round()
        self.state |= finished.state
        return finished

    def entry(self, key=b"a"):
        """The entry of a key as its changelog has it."""
        found = RestoredState()
        for name, value in self.state.items():
            found.add(name, value)
        found.finish()
        text = found.entries.get(key)
        return None if text is None else entry_of(text)

    def held(self):
        names = ("owned", "waiting", "left", "parked_records", "parked_bytes", "early")
        return {name: getattr(self.task.counts, name) for name in names}


both = pytest.mark.parametrize("handler", [SINGLE, BATCH], ids=["single", "batch"])
