"""The schedule of the scripted gateway: all of it follows from the seed."""

from __future__ import annotations

from collections import defaultdict

from trimtab.model.murmur2 import home
from trimtab_lab.keyed_faults.schedule import ScheduleRules, ShardSchedule

RULES = ScheduleRules(seed=5, crash_every_s=2.0)
SECONDS = 10


def shards(rules: ScheduleRules = RULES) -> list[ShardSchedule]:
    return [ShardSchedule(rules, shard) for shard in range(rules.shards)]


def steps(schedule: ShardSchedule, seconds: int = SECONDS):
    return [schedule.step(n) for n in range(seconds * RULES.steps_per_s)]


def test_equal_seeds_give_equal_steps_and_others_do_not() -> None:
    [first, _], [again, _] = shards(), shards()
    [other, _] = shards(ScheduleRules(seed=6))

    assert steps(first) == steps(again)
    assert steps(first) != steps(other)


def test_records_are_numbered_along_their_key_and_along_their_shard() -> None:
    for schedule in shards():
        records = [record for step in steps(schedule) for record in step.records]
        by_key = defaultdict(list)
        for record in records:
            by_key[record.key].append(record.seq)

        assert [record.src for record in records] == list(range(1, len(records) + 1))
        assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_key.values())
        counts = schedule.sent_before(SECONDS * RULES.steps_per_s)
        assert counts == {key: len(seqs) for key, seqs in by_key.items()}


def test_every_key_belongs_to_one_shard() -> None:
    listed = [key for shard in range(RULES.shards) for key in RULES.keys_of(shard)]

    assert len(listed) == len(set(listed)) == RULES.keys


def test_twenty_keys_move_in_every_second_and_some_of_them_twice() -> None:
    # A to B, then back to A, or on to C: within one second
    back, on = 0, 0
    places = {
        key: home(key, RULES.partitions) for s in range(RULES.shards) for key in RULES.keys_of(s)
    }
    both = shards()
    for second in range(SECONDS):
        moved = defaultdict(list)
        for schedule in both:
            for step in steps(schedule, second + 1)[second * RULES.steps_per_s :]:
                for move in step.moves:
                    moved[move.key].append(move.target)
        for key, targets in moved.items():
            assert targets[0] != places[key], "a move that is none"
            back += len(targets) == 2 and targets[1] == places[key]
            on += len(targets) == 2 and targets[1] != places[key]
            places[key] = targets[-1]
        assert len(moved) >= 20
    assert back
    assert on


def test_crashes_are_part_of_the_schedule_and_can_be_left_out() -> None:
    calm = shards(ScheduleRules(seed=5, crash_every_s=None))

    assert any(step.crash for schedule in shards() for step in steps(schedule))
    assert not any(step.crash for schedule in calm for step in steps(schedule))
