"""Real tasks under random schedules: their topics have no finding, at rest or in the middle.

The gateway crashes, sends records and markers again, and some of its predecessor's come late; tasks
die before their transactions and are restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.services.keyed_topics_world import PARTITIONS, RECEIPTS, KeyedTopicsWorld
from trimtab.apply.keys import partition_task, task
from trimtab.apply.keys.key_entry import SentHandover
from trimtab.apply.keys.message_sets import DataRecord, EndMarker
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.state_layout import RestoredState
from trimtab.evaluate.key_history import SetAudit, SetFindingKind
from trimtab.evaluate.key_sets import SetAuditRules
from trimtab.services.evaluate_sets import SetAuditRequest, audit_topics

KEYS = [b"a", b"b", b"c"]


def audit(world: KeyedTopicsWorld, *, at_rest: bool) -> SetAudit:
    rules = SetAuditRules(at_rest=at_rest)
    request = SetAuditRequest(topic="orders", group="pay", rules=rules)
    return audit_topics(world, request, receipts=RECEIPTS)


class ScheduledGateway:
    """Routes records and moves keys; a restart sends the newest records again."""

    def __init__(self, world: KeyedTopicsWorld, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.routes = {key: (key[0] % PARTITIONS, 0) for key in KEYS}
        self.next_set = 1

    def send(self, key: bytes) -> None:
        partition, set_id = self.routes[key]
        at_home = partition == key[0] % PARTITIONS  # such records carry no set
        bad = self.rng.random() < 0.05
        self.world.send(key, partition, None if at_home else set_id, value=b"bad" if bad else b"x")

    def move(self, key: bytes) -> None:
        source, old = self.routes[key]
        target = self.rng.choice([p for p in range(PARTITIONS) if p != source])
        new, self.next_set = self.next_set, self.next_set + 1
        fate = self.rng.random()
        if fate < 0.2:  # the gateway dies behind END
            end = EndMarker(shard=0, gen=self.world.gen, set_id=old, next_set=new, to=target)
            self.world.append("orders", source, key, None, headers_for(end))
            self.restart()
        elif fate < 0.3:  # it dies behind START
            self.world.move(key, source, target, new, old=old)
            self.restart()
        self.world.move(key, source, target, new, old=old)
        self.routes[key] = (target, new)

    def restart(self) -> None:
        self.world.restart_gateway()
        logs = self.world.logs["orders.in"]
        for log in logs:
            begin = max(0, len(log) - self.rng.randrange(4))
            for record in log[begin:]:
                key = record.key or b""
                partition, set_id = self.routes[key]
                for gen in (self.world.gen - 1, self.world.gen):  # the former is fenced
                    data = DataRecord(shard=0, gen=gen, src=record.offset, set_id=set_id)
                    headers = (*record.headers, *headers_for(data))
                    self.world.append("orders", partition, key, record.value, headers)


def scheduled(seed: int, *, steps: int = 50) -> tuple[KeyedTopicsWorld, ScheduledGateway]:
    """A world in the middle of its work; the first record was applied."""
    rng = Random(seed)
    world = KeyedTopicsWorld()
    gateway = ScheduledGateway(world, rng)
    gateway.send(KEYS[0])
    world.work_on(KEYS[0][0] % PARTITIONS)
    for _ in range(steps):
        chance, partition = rng.random(), rng.randrange(PARTITIONS)
        if chance < 0.4:
            gateway.send(rng.choice(KEYS))
        elif chance < 0.55:
            gateway.move(rng.choice(KEYS))
        elif chance < 0.9:
            world.work_on(partition, most=rng.choice([1, 3, None]))
        elif chance < 0.95:
            world.crash_task(partition)
        else:
            gateway.restart()
    return world, gateway


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_tasks_under_any_schedule_leave_no_finding(seed: int) -> None:
    world, gateway = scheduled(seed)
    assert audit(world, at_rest=False).findings == ()

    world.work()

    found = audit(world, at_rest=True)
    assert found.findings == ()
    assert found.sets == found.adoptions == gateway.next_set - 1
    assert audit(world, at_rest=False).unsettled == ()


# ------------------------------------------------------------ broken tasks


def no_left_mark(patch: pytest.MonkeyPatch) -> None:
    sound = task._process_end

    def forgetful(entry: Any, end: Any, partition: int) -> Any:
        after, effects = sound(entry, end, partition)
        gone = any(isinstance(effect, SentHandover) for effect in effects)
        return (task.ABSENT if gone else after), effects

    patch.setattr(task, "_process_end", forgetful)


def end_overtakes(patch: pytest.MonkeyPatch) -> None:
    def eager(entry: Any, record: Any, apply: Any, partition: int) -> Any:
        step = task.process_record if isinstance(record, EndMarker) else task.read_record
        return step(entry, record, apply, partition)

    patch.setattr(partition_task, "read_record", eager)


def parked_in_memory(patch: pytest.MonkeyPatch) -> None:
    sound = RestoredState.add

    def without_parked(state: RestoredState, key: bytes, value: bytes | None) -> None:
        if key[:1] != b"p":
            sound(state, key, value)

    patch.setattr(RestoredState, "add", without_parked)


def no_source_offsets(patch: pytest.MonkeyPatch) -> None:
    sound = task._process_data
    patch.setattr(
        task, "_process_data", lambda entry, *more: sound(replace(entry, last_src=()), *more)
    )


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (no_left_mark, SetFindingKind.WRONG_PARTITION),
        (end_overtakes, SetFindingKind.WRONG_CHAIN),
        (parked_in_memory, SetFindingKind.MISSING),
        (no_source_offsets, SetFindingKind.REPEATED),
    ],
)
def test_what_broken_tasks_do_is_found(
    spoil: Callable[[pytest.MonkeyPatch], None],
    kind: SetFindingKind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(monkeypatch)
    found = set()
    for seed in range(15):
        world, _ = scheduled(seed, steps=80)
        world.work()
        found |= {finding.kind for finding in audit(world, at_rest=True).findings}

    assert kind in found
