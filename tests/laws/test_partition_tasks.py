"""Tasks under random schedules: rounds, restores, chunks and parking keep order and state."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.task_world import TaskWorld, compacted
from trimtab.apply.keys.key_route import GatewayMode
from trimtab.apply.keys.state_layout import has_left
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.model.key_chain import chain_after

EXACTLY_ONCE, LOW_LATENCY = GatewayMode.EXACTLY_ONCE, GatewayMode.LOW_LATENCY
MODES = ([EXACTLY_ONCE], [LOW_LATENCY], [LOW_LATENCY, EXACTLY_ONCE])


def run(seed, *, steps=300, **rest):
    """A world after a random schedule, when everything was read."""
    random = Random(seed)
    world = TaskWorld(
        partitions=random.randint(2, 4),
        shards=random.randint(1, 2),
        keys=random.randint(1, 4),
        modes=random.choice(MODES),
        seed=seed,
        **rest,
    )
    for _ in range(steps):
        kind = random.random()
        if kind < 0.15:
            world.append(random.choice(world.keys))
            continue
        choices = world.expected()
        if kind < 0.25:
            choices = world.moves()
        elif kind < 0.32:
            choices = world.faults()
        if choices:
            random.choice(choices)()
    world.settle()
    return world


def check(world):
    """Each record once and in order, one owner per key, and nothing left behind."""
    for key, name in world.names.items():
        total = world.sent_of[key]
        receipts = world.receipts_of[name]
        assert [line[:3] for line in sorted(receipts, key=lambda line: line[:2])] == [
            line[:3] for line in receipts
        ]
        assert [number for _, _, number, _ in receipts] == list(range(1, total + 1))
        owned = world.owned(name)
        assert len(owned) == (1 if total else 0)
        for entry in owned:
            state = json.loads(entry.value)
            assert (state["count"], state["chain"]) == (total, chain_after(total))
    for seat in world.seats:
        counts = seat.task.counts
        assert (counts.waiting, counts.parked_records, counts.early) == (0, 0, 0)
        assert (counts.parked_bytes, counts.lost_states) == (0, 0)
        assert not seat.task.is_replaying
        assert not seat.task.is_paused
        assert not compacted([line for line in seat.handovers if line is not None])
        check_changelog(seat)


def check_changelog(seat):
    """Fences, the topic, and each entry in exactly as many chunks as it says."""
    stored = dict(compacted(seat.state))
    assert {key[:1] for key in stored} <= {b"k", b"\x00"}
    chunks = {key for key in stored if key.startswith(b"k")}
    named = set()
    for key in chunks:
        if key.endswith(bytes(4)):
            of = json.loads(stored[key] or b"").get("of", 1)
            named |= {key[:-4] + number.to_bytes(4, "big") for number in range(of)}
    assert chunks == named


@given(st.integers(0, 2**32), st.integers(0, 300), st.booleans())
@settings(max_examples=100, deadline=None)
def test_order_and_state_survive_any_schedule_of_tasks(seed, steps, batch):
    check(run(seed, steps=steps, batch=batch))


# ------------------------------------------------------------ planted faults


def without(kept):
    """A fault: records of `.state` for which `kept` is false are not written."""

    def spoil(finished, _seat):
        finished.state = {k: v for k, v in finished.state.items() if kept(k, v)}

    return spoil


def drop_handovers(dropped):
    """A fault: records of `.handover` for which `dropped` is true are not written."""

    def spoil(finished, _seat):
        finished.handovers = [write for write in finished.handovers if not dropped(write)]

    return spoil


def pass_incomplete(finished, seat):
    if finished.handover_offset is not None:
        finished.handover_offset = seat.handover_at


def skip_data(finished, seat):
    """The position of a reader that is ahead of the task."""
    if finished.data_offset is not None and seat.stopping:
        finished.data_offset += 1
        seat.data_at += 1


def is_later_chunk(key):
    return key.startswith(b"k") and not key.endswith(bytes(4))


FAULTS = {
    "LEFT is not written": without(lambda k, v: not (v and has_left(v))),
    "WAIT is not written": without(lambda k, v: not (v and b'"wait"' in v)),
    "parked records are only in memory": without(lambda k, v: not (k[:1] == b"p" and v)),
    "parked records are not removed": without(lambda k, v: not (k[:1] == b"p" and not v)),
    "early hand-overs are only in memory": without(lambda k, v: not (k[:1] == b"h" and v)),
    "chunks of early hand-overs are lost": without(lambda k, v: not (k[:1] == b"c" and v)),
    "early hand-overs are not removed": without(lambda k, v: not (k[:1] in b"hc" and not v)),
    "surplus chunks stay": without(lambda k, v: not (is_later_chunk(k) and not v)),
    "later chunks are not written": without(lambda k, v: not (is_later_chunk(k) and v)),
    "fences are only in memory": without(lambda k, v: k != b"\x00fence"),
    "hand-overs are not sent": drop_handovers(lambda write: write.value is not None),
    "a hand-over lacks its last chunk": drop_handovers(
        lambda write: write.value is not None and not write.key.endswith(bytes(4))
    ),
    "adoptions leave no tombstone": drop_handovers(lambda write: write.value is None),
    "adoptions remove one chunk only": drop_handovers(
        lambda write: write.value is None and not write.key.endswith(bytes(4))
    ),
    "the offset passes an incomplete hand-over": pass_incomplete,
    "a record that was not handled is passed": skip_data,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_law_finds_a_planted_fault(fault):
    assert any(fails(seed, FAULTS[fault]) for seed in range(150))


def fails(seed, spoil):
    try:
        check(run(seed, spoil=spoil, batch=bool(seed % 2)))
    except (AssertionError, BrokenState):
        return True
    return False
