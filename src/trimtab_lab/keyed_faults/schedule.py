"""What a scripted gateway does, step by step: records, forced migrations, and its own crashes.

Promise  Everything follows from the seed: each record has its number within its key (`tt-seq`) and
         its number within its shard (`tt-src`), so a step that is done again is the same step.
         About `moves_per_s` keys migrate in each second; some of them go A→B→A or A→B→C, in one
         step or in two successive ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from trimtab.model.murmur2 import home


class GatewayCrash(StrEnum):
    """Where a gateway ends without a word; `exactly_once` has no PREPARED."""

    PREPARED = "prepared"
    ENDED = "end-sent"
    STARTED = "start-sent"
    SENT = "records-sent"


@dataclass(frozen=True, slots=True)
class ScriptedRecord:
    """A record of the input: its key, its number within the key and within the shard."""

    key: bytes
    seq: int
    src: int


@dataclass(frozen=True, slots=True)
class ForcedMove:
    """A key and the partition it goes to; if it is there already, nothing happens."""

    key: bytes
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStep:
    """Moves, then records; moves of one key follow each other."""

    moves: tuple[ForcedMove, ...] = ()
    records: tuple[ScriptedRecord, ...] = ()
    crash: GatewayCrash | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRules:
    """How much happens in a schedule; `crash_every_s` is None for a gateway that never crashes."""

    seed: int = 0
    keys: int = 40
    partitions: int = 4
    shards: int = 2
    steps_per_s: int = 10
    records_per_s: int = 200
    moves_per_s: int = 24
    crash_every_s: float | None = 12.0

    def keys_of(self, shard: int) -> tuple[bytes, ...]:
        """The keys whose input belongs to a shard."""
        names = (b"key-%d" % number for number in range(self.keys))
        return tuple(name for name in names if home(name, self.shards) == shard)


@dataclass(slots=True)
class ShardSchedule:
    """The steps of one shard; they are made as they are asked for, and kept."""

    rules: ScheduleRules
    shard: int
    _steps: list[ScheduleStep] = field(default_factory=list)
    _numbers: Counter[bytes] = field(default_factory=Counter)
    _places: dict[bytes, int] = field(default_factory=dict)
    _src: int = 0
    _random: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        self._random = Random(f"{self.rules.seed}/{self.shard}")
        self._places = {
            key: home(key, self.rules.partitions) for key in self.rules.keys_of(self.shard)
        }

    def step(self, number: int) -> ScheduleStep:
        """The step of this number, from 0."""
        while len(self._steps) <= number:
            self._steps += self._second()
        return self._steps[number]

    def sent_before(self, number: int) -> Counter[bytes]:
        """How many records of each key the steps below this number have."""
        done = (self.step(n) for n in range(number))
        return Counter(record.key for step in done for record in step.records)

    def _second(self) -> list[ScheduleStep]:
        rules, per_s = self.rules, self.rules.steps_per_s
        moves: list[list[ForcedMove]] = [[] for _ in range(per_s)]
        mine = sorted(self._places)
        share = round(rules.moves_per_s * len(mine) / rules.keys)
        for key in self._random.sample(mine, min(share, len(mine))):
            self._add_moves(key, moves)
        steps = []
        for listed in moves:
            records = tuple(self._record(key) for key in self._speakers(mine))
            crash = self._crash() if listed else None
            steps.append(ScheduleStep(moves=tuple(listed), records=records, crash=crash))
        return steps

    def _add_moves(self, key: bytes, moves: list[list[ForcedMove]]) -> None:
        first = self._random.randrange(len(moves))
        here = self._places[key]
        others = [p for p in range(self.rules.partitions) if p != here]
        target = self._random.choice(others)
        moves[first].append(ForcedMove(key, target))
        self._places[key] = target
        kind = self._random.random()
        if kind >= 0.5 or len(others) < 2:
            return
        last = here if kind < 0.25 else self._random.choice([p for p in others if p != target])
        later = min(first + self._random.randrange(2), len(moves) - 1)
        moves[later].append(ForcedMove(key, last))
        self._places[key] = last

    def _speakers(self, mine: list[bytes]) -> list[bytes]:
        """The keys of a step's records; keys at the front of the list speak more often."""
        rules = self.rules
        count = round(rules.records_per_s * len(mine) / rules.keys / rules.steps_per_s)
        weights = [1 / (1 + rank) for rank in range(len(mine))]
        return self._random.choices(mine, weights, k=count) if mine else []

    def _record(self, key: bytes) -> ScriptedRecord:
        self._numbers[key] += 1
        self._src += 1
        return ScriptedRecord(key, self._numbers[key], self._src)

    def _crash(self) -> GatewayCrash | None:
        every_s = self.rules.crash_every_s
        if every_s is None or self._random.random() >= 1 / (every_s * self.rules.steps_per_s):
            return None
        return self._random.choice(list(GatewayCrash))
