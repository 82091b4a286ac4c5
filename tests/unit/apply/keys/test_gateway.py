"""Routes, migrations and the start of a gateway shard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab.apply.keys.key_route import (
    GatewayMode,
    GatewayShard,
    KeyRoute,
    RoutePhase,
    committable,
    move_refusal,
    partition_of,
    routed,
)
from trimtab.apply.keys.message_sets import DataRecord, EndMarker, FenceMarker, StartMarker
from trimtab.apply.keys.migration import (
    MIGRATION_STAGES,
    MarkerSend,
    RouteWrite,
    StageWait,
    begin_migration,
    next_stage,
    resume_migration,
)
from trimtab.apply.keys.start_up import (
    GATEWAY_START,
    TASK_START,
    GatewayStep,
    InputIdentity,
    TaskStep,
    fences,
    identity_refusal,
    raise_generation,
)

SHARD = GatewayShard(shard=2, gen=4, next_set=17)
HOME = 3


def prepared(partition=5, source=3):
    return KeyRoute(partition, 17, RoutePhase.PREPARED, source)


def run(shard, migration):
    """All effects of a migration in order, with what is waited for behind each."""
    seen = []
    while migration.stages:
        migration, effects, wait = next_stage(shard, migration)
        seen += [*effects, *([] if wait is StageWait.NOTHING else [wait])]
    return seen


def end(gen=4, old=0, to=5):
    return EndMarker(shard=2, gen=gen, set_id=old, next_set=17, to=to)


def start(source=3):
    return StartMarker(shard=2, gen=4, set_id=17, source=source, end_offset=-1)


# ---------------------------------------------------------------- routes


def test_a_key_without_a_route_goes_home_without_a_set():
    found = routed(SHARD, None, HOME, src=8, payload="x")

    assert found is not None
    assert found.partition == HOME
    assert found.record == DataRecord(shard=2, gen=4, src=8, payload="x")


def test_a_routed_key_carries_its_set():
    found = routed(SHARD, KeyRoute(5, 16), HOME, src=8)

    assert found is not None
    assert (found.partition, found.record.set_id) == (5, 16)


def test_records_wait_while_their_key_migrates():
    assert routed(SHARD, prepared(), HOME, src=8) is None
    assert partition_of(prepared(), HOME) == 3


@pytest.mark.parametrize(
    ("route", "source", "target", "migrating", "why"),
    [
        (None, 3, 5, False, None),
        (KeyRoute(5, 16), 5, 3, False, None),
        (None, 4, 5, False, "the key is on partition 3, the move is from partition 4"),
        (None, 3, 3, False, "the key is there already"),
        (None, 3, 5, True, "the key is migrating"),
        (prepared(), 3, 5, False, "the key is migrating"),
    ],
)
def test_which_moves_are_skipped(route, source, target, migrating, why):
    found = move_refusal(route, HOME, source=source, target=target, migrating=migrating)

    assert found == why


def test_only_a_prepared_route_has_a_source():
    with pytest.raises(ValueError, match="source"):
        KeyRoute(5, 17, RoutePhase.PREPARED)
    with pytest.raises(ValueError, match="source"):
        KeyRoute(5, 17, RoutePhase.DONE, 3)


@pytest.mark.parametrize(
    ("unacknowledged", "waiting", "offset"), [(None, None, 9), (4, None, 4), (4, 2, 2)]
)
def test_offsets_are_committed_up_to_the_oldest_record_not_stored(unacknowledged, waiting, offset):
    assert committable(9, unacknowledged=unacknowledged, waiting=waiting) == offset


# ---------------------------------------------------------------- migrations


def test_a_migration_within_a_transaction():
    shard, migration = begin_migration(
        SHARD, KeyRoute(1, 9), HOME, 5, MIGRATION_STAGES[GatewayMode.EXACTLY_ONCE]
    )

    assert shard.next_set == 18
    assert run(shard, migration) == [
        MarkerSend(1, end(old=9)),
        StageWait.ACKS,
        MarkerSend(5, start(source=1)),
        RouteWrite(KeyRoute(5, 17), 18),
    ]


def test_a_migration_at_low_latency_is_in_the_routing_log_before_its_markers():
    shard, migration = begin_migration(
        SHARD, None, HOME, 5, MIGRATION_STAGES[GatewayMode.LOW_LATENCY]
    )

    assert run(shard, migration) == [
        RouteWrite(prepared(), 18),
        StageWait.COMMIT,
        MarkerSend(3, end()),
        StageWait.ACKS,
        MarkerSend(5, start()),
        StageWait.ACKS,
        RouteWrite(KeyRoute(5, 17), 18),
        StageWait.COMMIT,
    ]


def test_start_says_where_end_is():
    stages = MIGRATION_STAGES[GatewayMode.EXACTLY_ONCE]
    shard, migration = begin_migration(SHARD, None, HOME, 5, stages)

    migration, _, _ = next_stage(shard, migration)
    migration = replace(migration, end_offset=8)

    assert run(shard, migration)[0] == MarkerSend(5, replace(start(), end_offset=8))


def test_a_key_that_cools_down_migrates_home_and_loses_its_route():
    stages = MIGRATION_STAGES[GatewayMode.EXACTLY_ONCE]
    shard, migration = begin_migration(SHARD, KeyRoute(5, 16), HOME, HOME, stages)

    assert run(shard, migration)[-1] == RouteWrite(None, 18)


def test_a_prepared_migration_is_finished_with_the_same_set():
    stages = MIGRATION_STAGES[GatewayMode.LOW_LATENCY]
    resumed = resume_migration(prepared(), HOME, stages)

    assert resumed is not None
    assert run(SHARD, resumed) == [
        MarkerSend(3, end()),
        StageWait.ACKS,
        MarkerSend(5, start()),
        StageWait.ACKS,
        RouteWrite(KeyRoute(5, 17), 17),
        StageWait.COMMIT,
    ]
    assert resume_migration(KeyRoute(5, 17), HOME, stages) is None


# ---------------------------------------------------------------- start


def test_both_starts_fence_before_they_read():
    assert GATEWAY_START == (
        GatewayStep.FENCE_PREDECESSOR,
        GatewayStep.READ_ROUTES,
        GatewayStep.FETCH_POSITION,
        GatewayStep.RAISE_GENERATION,
        GatewayStep.SEND_FENCES,
        GatewayStep.FINISH_PREPARED,
    )
    assert TASK_START == (
        TaskStep.FENCE_PREDECESSOR,
        TaskStep.RESTORE,
        TaskStep.FETCH_POSITIONS,
    )


def test_every_start_raises_the_generation_and_fences_all_partitions():
    shard = raise_generation(SHARD)

    assert fences(shard, 2, 40) == (
        (0, FenceMarker(shard=2, gen=5, committed=40)),
        (1, FenceMarker(shard=2, gen=5, committed=40)),
    )


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"input_id": "z"}, "The input topic was deleted and created again."),
        ({"shards": 3}, "The input topic has 3 partitions; it had 2."),
        ({"output_id": "z"}, "The data topic was deleted and created again."),
        ({"partitions": 9}, "The data topic has 9 partitions; it had 8."),
        ({}, None),
    ],
)
def test_topics_that_were_created_again_or_grown_are_refused(found, says):
    stored = InputIdentity(input_id="a", shards=2, output_id="b", partitions=8)

    assert identity_refusal(stored, replace(stored, **found)) == says
    assert identity_refusal(None, stored) is None
