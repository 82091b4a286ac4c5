"""The protocol of the keyed data path, explored; and every broken variant, found."""

from __future__ import annotations

import pytest

from trimtab.apply.keys.key_entry import EntryStatus, KeyEntry
from trimtab.apply.keys.key_route import GatewayMode
from trimtab.simulate.key_protocol.broken_variants import BROKEN_VARIANTS
from trimtab.simulate.key_protocol.compaction import CompactionModel, key_without_chunk
from trimtab.simulate.key_protocol.exploration import BadState, explore
from trimtab.simulate.key_protocol.model import KeyProtocolModel
from trimtab.simulate.key_protocol.narration import narrate
from trimtab.simulate.key_protocol.scenario import ProtocolScenario, TaskKind
from trimtab.simulate.key_protocol.world import KeyFacts, TaskMemory

EXACTLY_ONCE, LOW_LATENCY = GatewayMode.EXACTLY_ONCE, GatewayMode.LOW_LATENCY


def scenario(records, migrations, **others):
    return ProtocolScenario(records=records, migrations=migrations, **others)


def found_in(asked, **limits):
    return explore(KeyProtocolModel(asked), **limits)


SOUND = {
    "three partitions": scenario(3, 2, partitions=3),
    "two keys that park at most one record": scenario(
        2, 2, keys=2, mode=LOW_LATENCY, parked_limit=1
    ),
    "a gateway that crashes within its transactions": scenario(2, 2, gateway_crashes=1, batch=2),
    "a frozen gateway with an open transaction": scenario(2, 1, gateway_freezes=1),
    "low latency, a crash with records in flight": scenario(
        1, 1, mode=LOW_LATENCY, gateway_crashes=1
    ),
    "low latency, an application without state": scenario(
        1, 1, mode=LOW_LATENCY, gateway_crashes=1, stateless=True
    ),
    "from low latency to exactly once": scenario(
        1, 1, mode=LOW_LATENCY, mode_after=EXACTLY_ONCE, gateway_crashes=1
    ),
    "from exactly once to low latency": scenario(1, 1, mode_after=LOW_LATENCY, gateway_crashes=1),
    "moves from a topic": scenario(
        0, 0, mode=LOW_LATENCY, gateway_crashes=1, moves=((0, 1), (1, 0))
    ),
    "an input that is created again": scenario(2, 0, recreations=1),
    "a task that crashes within its transactions": scenario(
        2, 2, tasks=TaskKind.BATCHED, task_crashes=1
    ),
    "a frozen task": scenario(2, 1, tasks=TaskKind.BATCHED, task_freezes=1),
    "a task without transactions that crashes": scenario(
        2, 1, tasks=TaskKind.SIMPLE, task_crashes=1
    ),
    "a frozen task without transactions": scenario(2, 1, tasks=TaskKind.SIMPLE, task_freezes=1),
}


@pytest.mark.parametrize("asked", SOUND.values(), ids=SOUND)
def test_the_protocol_has_no_fault(asked):
    found = found_in(asked)

    assert found.fault is None
    assert found.is_complete
    assert found.ends > 0


def test_a_hundred_thousand_states_of_a_frozen_gateway_have_no_fault():
    found = found_in(scenario(1, 1, mode=LOW_LATENCY, gateway_freezes=1))

    assert found.fault is None
    assert found.is_complete
    assert found.states >= 100_000


@pytest.mark.parametrize("variant", BROKEN_VARIANTS, ids=lambda variant: variant.name)
def test_a_broken_variant_is_found(variant):
    model = KeyProtocolModel(variant.scenario, variant.protocol)
    found = explore(model)

    assert found.fault is not None
    assert found.fault.kind == variant.kind.name
    assert "  1. Gateway 1 starts" in narrate(found.fault, model.tables)


@pytest.mark.parametrize(
    "asked",
    {variant.scenario: variant.name for variant in BROKEN_VARIANTS},
    ids=list({variant.scenario: variant.name for variant in BROKEN_VARIANTS}.values()),
)
def test_the_scenarios_of_the_variants_are_sound_without_them(asked):
    assert found_in(asked, limit=1_500).fault is None


def test_the_variants_have_names_of_their_own():
    names = [variant.name for variant in BROKEN_VARIANTS]

    assert len(set(names)) == len(names) == 32
    assert all(variant.wrong for variant in BROKEN_VARIANTS)


def test_states_are_told_apart_by_their_hashes():
    """Counts the states by themselves, not by their hashes."""
    asked = scenario(2, 2, mode=LOW_LATENCY)
    model = KeyProtocolModel(asked)
    seen = {model.initial()}
    ahead = [model.initial()]
    while ahead:
        for _, after, _ in model.successors(ahead.pop()):
            assert not isinstance(after, BadState)
            if after not in seen:
                seen.add(after)
                ahead.append(after)

    assert len(seen) == found_in(asked).states


def test_a_fault_is_told_as_a_story():
    variant = next(one for one in BROKEN_VARIANTS if one.name == "routes-kept-after-abort")
    model = KeyProtocolModel(variant.scenario, variant.protocol)
    found = explore(model)
    assert found.fault is not None

    lines = narrate(found.fault, model.tables).splitlines()

    believes = "     Gateway 1 (exactly_once, generation 1) believes: key 0 is on partition 1"
    assert lines[0] == (
        "a record was applied on a partition that does not have its set (V5): Record 1 is applied "
        "on partition 1 in set 0; the key is on partition 0 in set 0."
    )
    assert lines[2].startswith("  1. Gateway 1 starts: init_transactions with the shard's")
    assert lines[8:] == [
        "  4. Gateway 1 begins to migrate key 0 to partition 1.",
        f"{believes} (set 1, done); next input offset 0.",
        "  5. Gateway 1 has its transaction aborted and goes on.",
        f"{believes} (set 1, done); next input offset 0.",
        "  6. Gateway 1 routes record 1 of key 0 (source 0, set 1, generation 1) to partition 1.",
        f"{believes} (set 1, done); next input offset 1.",
        "  7. Gateway 1 commits its transaction.",
        f"{believes} (set 1, done); next input offset 1.",
        "  8. The task of partition 1 reads FENCE of generation 1.",
        "     Partition 1 believes: set 0, empty state.",
        "  9. The task of partition 1 reads record 1 of key 0 (source 0, set 1, generation 1).",
    ]


def test_a_bad_end_says_what_the_tasks_believe():
    variant = next(one for one in BROKEN_VARIANTS if one.name == "early-handover-ignored")
    model = KeyProtocolModel(variant.scenario, variant.protocol)
    found = explore(model)
    assert found.fault is not None

    text = narrate(found.fault, model.tables)

    assert "At the end nothing more happens:" in text
    assert text.endswith(
        "  Partition 0 believes: has left with set 1.\n"
        "  Partition 1 believes: waits for the state of set 1."
    )


# ---------------------------------------------------------------- chunks


def test_states_in_chunks_survive_compaction():
    found = explore(CompactionModel())

    assert found.fault is None
    assert found.is_complete


def test_chunks_under_one_record_key_are_found():
    found = explore(CompactionModel(record_key=key_without_chunk))

    assert found.fault is not None
    assert found.fault.kind == "LOSS"


def test_surplus_chunks_that_stay_are_found():
    found = explore(CompactionModel(surplus=lambda before, after: range(0)))

    assert found.fault is not None
    assert found.fault.kind == "LOSS"


@pytest.mark.parametrize(
    "asked",
    [
        {"records": -1, "migrations": 0},
        {"records": 1, "migrations": 1, "partitions": 1},
        {"records": 1, "migrations": 1, "parked_limit": 0},
    ],
)
def test_a_scenario_without_sense_is_refused(asked):
    with pytest.raises(ValueError, match="at least"):
        ProtocolScenario(**asked)


# ---------------------------------------------------------------- what a good end is


OWNED = KeyEntry(value=(1, 2))
LEFT: KeyEntry[tuple[int, ...]] = KeyEntry(status=EntryStatus.LEFT, set_id=1)
WAITS: KeyEntry[tuple[int, ...]] = KeyEntry(status=EntryStatus.WAIT, set_id=1)


@pytest.mark.parametrize(
    ("entries", "parked", "applied", "live", "kind"),
    [
        ((OWNED, LEFT), (), 2, (), None),
        ((OWNED, WAITS), (), 2, (), "STUCK"),
        ((OWNED, LEFT), (1,), 2, (), "STUCK"),
        ((OWNED, LEFT), (), 1, (), "LOSS"),
        ((OWNED, OWNED), (), 2, (), "OWNERS"),
        ((LEFT, LEFT), (), 2, (), "OWNERS"),
        ((KeyEntry(value=(2,)), LEFT), (), 2, (), "OWNERS"),
        ((OWNED, LEFT), (), 2, ((1, 0, 1),), "HANDOVER_LEFT"),
    ],
)
def test_when_nothing_happens_any_more_all_is_in_its_place(entries, parked, applied, live, kind):
    model = KeyProtocolModel(scenario(2, 1))
    numbers = [model.tables.entries.number(entry) for entry in entries]
    state = model.initial()._replace(
        tasks=(TaskMemory((numbers[0],), (parked,)), TaskMemory((numbers[1],), ((),))),
        facts=(KeyFacts(applied, 0),),
        live=live,
    )

    bad = model.check_end(state)

    assert (None if bad is None else bad.kind) == kind
