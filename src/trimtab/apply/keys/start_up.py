"""The start of a gateway shard and of a task: the order of their steps.

Promise  A predecessor can write nothing more once the successor has read what it wrote. Any aborted
         transaction is a restart: routes, entries, counters and positions in memory are discarded
         and all steps are done again, since memory may know of what was rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from trimtab.apply.keys.key_route import GatewayShard
from trimtab.apply.keys.message_sets import FenceMarker


class GatewayStep(StrEnum):
    """A step of the start of a gateway shard."""

    FENCE_PREDECESSOR = "init_transactions with the shard's transactional.id"
    READ_ROUTES = "read .assign up to an end offset taken after fencing"
    FETCH_POSITION = "fetch the committed offset of the input"
    RAISE_GENERATION = "write the next generation to .assign"
    SEND_FENCES = "send FENCE to all partitions and wait for all acknowledgements"
    FINISH_PREPARED = "finish prepared migrations"


GATEWAY_START: tuple[GatewayStep, ...] = tuple(GatewayStep)
"""The order; RAISE_GENERATION and SEND_FENCES are one transaction in `exactly_once`."""


class TaskStep(StrEnum):
    """A step of the start of a task."""

    FENCE_PREDECESSOR = "init_transactions with the partition's transactional.id"
    RESTORE = "read .state up to an end offset taken after fencing"
    FETCH_POSITIONS = "fetch the committed offsets of the data and the hand-overs"


TASK_START: tuple[TaskStep, ...] = tuple(TaskStep)


def raise_generation(shard: GatewayShard) -> GatewayShard:
    """The shard with its next generation: done at every start, in both modes."""
    return replace(shard, gen=shard.gen + 1)


def fences(
    shard: GatewayShard, partitions: int, committed: int
) -> tuple[tuple[int, FenceMarker], ...]:
    """FENCE for each partition, with the committed offset: nothing below it is sent again."""
    marker = FenceMarker(shard=shard.shard, gen=shard.gen, committed=committed)
    return tuple((partition, marker) for partition in range(partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputIdentity:
    """The topics that the source offsets and the homes of keys belong to."""

    input_id: str
    shards: int
    output_id: str
    partitions: int


def identity_refusal(stored: InputIdentity | None, found: InputIdentity) -> str | None:
    """Why a gateway must not run on these topics; None if it may.

    The source offsets of a topic that was created again begin at 0: tasks would take new records
    for repeats.
    """
    if stored is None:
        return None
    if stored.input_id != found.input_id:
        return "The input topic was deleted and created again."
    if stored.shards != found.shards:
        return f"The input topic has {found.shards} partitions; it had {stored.shards}."
    if stored.output_id != found.output_id:
        return "The data topic was deleted and created again."
    if stored.partitions != found.partitions:
        return f"The data topic has {found.partitions} partitions; it had {stored.partitions}."
    return None
