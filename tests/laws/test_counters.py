"""Every counter keeps its four promises on random streams: alone, merged, and on columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from random import Random
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.measure.columnar_counting import ArrowLossyCounter
from trimtab.measure.counters import COUNTERS, HotKeyCounter, from_bytes
from trimtab.measure.lossy_counting import Bounds, LossyCounter, Summary

untimed = settings(deadline=None)  # a loaded machine is no fault of the code

# Few distinct keys make heavy ones, many make entries come and go; both occur.
KEYS = st.one_of(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 60).map(lambda i: b"%d" % i))
EPSILONS = st.sampled_from([0.5, 0.3, 0.25, 0.1, 0.07, 0.04, 1 / 3])
STREAMS = st.lists(KEYS, max_size=250)
ADDITIONS = st.lists(st.tuples(KEYS, st.integers(1, 12)), max_size=120)
EDGE_KEYS = (b"", b"\x00", b"\xff\x00", b"never seen")


def check_bounds(counter: HotKeyCounter, true: Counter[bytes], *, epsilon: float) -> None:
    """Laws 1 to 3: bounds hold and are narrow, no hot key is missed, no cold one reported."""
    error = math.floor(Fraction(str(epsilon)) * true.total())
    assert counter.n == true.total()
    assert counter.max_error <= error
    for key in {*true, *EDGE_KEYS}:
        lower, upper = counter.bounds(key)
        assert lower <= true[key] <= upper, (key, lower, true[key], upper)
        assert upper - lower <= counter.max_error
    assert all(counter.bounds(key) == bounds for key, bounds in counter.items())
    for threshold in range(counter.max_error + 1, max(true.values(), default=1) + 2):
        hot = counter.hot(threshold)
        assert {key for key, count in true.items() if count >= threshold} <= set(hot)
        assert all(true[key] >= threshold - error for key in hot)


def check_size(entries: int, n: int, *, width: int) -> None:
    """Law 4; before the first bucket is complete, every record may be an entry."""
    most = n if n < width else width * (math.log(n / width) + 1)
    assert entries <= most + 1e-9, (entries, most)


AnyCounter = TypeVar("AnyCounter", bound=HotKeyCounter)


def counted(counter: AnyCounter, additions: Iterable[tuple[bytes, int]]) -> AnyCounter:
    for key, c in additions:
        counter.add(key, c)
    return counter


def total(additions: Iterable[tuple[bytes, int]]) -> Counter[bytes]:
    true: Counter[bytes] = Counter()
    for key, c in additions:
        true[key] += c
    return true


def on_columns(epsilon: float, keys: Sequence[bytes], *, buffer: int, batch: int) -> Summary:
    counter = ArrowLossyCounter(epsilon, buffer_rows=buffer)
    for start in range(0, len(keys), batch):
        counter.add_keys(pa.array(keys[start : start + batch], pa.binary()))
    return counter.summary()


def merged_in_random_order(parts: Sequence[Summary], rng: Random) -> Summary:
    left = list(parts)
    while len(left) > 1:
        one, other = (left.pop(rng.randrange(len(left))) for _ in range(2))
        left.append(one.merge(other))
    return left[0]


@pytest.mark.parametrize("name", COUNTERS)
@untimed
@given(additions=ADDITIONS, epsilon=EPSILONS)
def test_bounds_hold_and_no_hot_key_is_missed(name, additions, epsilon):
    counter = counted(COUNTERS[name](epsilon), additions)
    check_bounds(counter, total(additions), epsilon=epsilon)


@pytest.mark.parametrize("name", COUNTERS)
@untimed
@given(parts=st.lists(ADDITIONS, min_size=1, max_size=5), epsilon=EPSILONS)
def test_bounds_hold_for_merged_parts_under_the_same_epsilon(name, parts, epsilon):
    counters = [counted(COUNTERS[name](epsilon), part) for part in parts]
    merged = reduce(lambda one, other: one.merge(other), counters)
    check_bounds(merged, total(a for part in parts for a in part), epsilon=epsilon)


@pytest.mark.parametrize("name", COUNTERS)
@untimed
@given(additions=ADDITIONS, epsilon=EPSILONS)
def test_a_counter_survives_being_written_and_read(name, additions, epsilon):
    counter = counted(COUNTERS[name](epsilon), additions)
    again = from_bytes(counter.to_bytes())
    assert (again.n, again.max_error, again.entries) == (
        counter.n,
        counter.max_error,
        counter.entries,
    )
    assert dict(again.items()) == dict(counter.items())


@untimed
@given(keys=STREAMS, epsilon=EPSILONS)
def test_a_lossy_counter_stays_small_at_every_moment(keys, epsilon):
    counter = LossyCounter(epsilon)
    for key in keys:
        counter.add(key)
        check_size(counter.entries, counter.n, width=counter.width)


@untimed
@given(additions=ADDITIONS, epsilon=EPSILONS)
def test_a_lossy_counter_stays_small_when_counts_are_added(additions, epsilon):
    counter = LossyCounter(epsilon)
    for key, c in additions:
        counter.add(key, c)
        check_size(counter.entries, counter.n, width=counter.width)


@untimed
@given(keys=STREAMS, epsilon=EPSILONS, batch=st.integers(1, 90))
def test_counting_batches_keeps_all_four_laws(keys, epsilon, batch):
    counter = LossyCounter(epsilon)
    for start in range(0, len(keys), batch):
        counter.add_batch(keys[start : start + batch])
    check_bounds(counter, Counter(keys), epsilon=epsilon)
    check_size(counter.entries, counter.n, width=counter.width)


@untimed
@given(keys=STREAMS, epsilon=EPSILONS, buffer=st.integers(1, 90), batch=st.integers(1, 90))
def test_counting_columns_keeps_all_four_laws(keys, epsilon, buffer, batch):
    summary = on_columns(epsilon, keys, buffer=buffer, batch=batch)
    check_bounds(summary, Counter(keys), epsilon=epsilon)
    check_size(summary.entries, summary.n, width=summary.width)


@untimed
@given(keys=STREAMS, epsilon=EPSILONS, buffer=st.integers(1, 90))
def test_counting_columns_does_not_depend_on_how_batches_were_cut(keys, epsilon, buffer):
    one = on_columns(epsilon, keys, buffer=buffer, batch=7)
    other = on_columns(epsilon, keys, buffer=buffer, batch=1000)
    assert one == other


@untimed
@given(
    parts=st.lists(STREAMS, min_size=1, max_size=6),
    epsilon=EPSILONS,
    rng=st.randoms(use_true_random=False),
)
def test_any_tree_of_merges_gives_one_summary_and_keeps_the_laws(parts, epsilon, rng):
    summaries = [
        on_columns(epsilon, keys, buffer=31, batch=20)
        if rng.random() < 0.5
        else counted(LossyCounter(epsilon), [(key, 1) for key in keys]).summary()
        for keys in parts
    ]
    one, other = (merged_in_random_order(summaries, rng) for _ in range(2))
    assert one == other
    assert one.to_bytes() == other.to_bytes()
    true = Counter(key for keys in parts for key in keys)
    for summary in (one, one.pruned()):
        check_bounds(summary, true, epsilon=epsilon)
    assert one.entries <= sum(summary.entries for summary in summaries)


# Streams on which each planted fault shows; the sound counter passes the same ones below.

FILLERS = [b"x%d" % i for i in range(400)]
COMES_BACK = [b"a", *FILLERS[:19], b"a", b"a", *FILLERS[20:27]]


class PrunesTooMuch(LossyCounter):
    """Drops entries with f + d <= bucket + 1."""

    __slots__ = ()

    def add(self, key: bytes, c: int = 1) -> None:
        before = self._bucket
        super().add(key, c)
        if self._bucket > before:
            self._tracked = {k: e for k, e in self._tracked.items() if sum(e) > self._bucket}


class ForgetsWhatItMissed(LossyCounter):
    """Admits a key with d = 0, whatever may have gone before."""

    __slots__ = ()

    def add(self, key: bytes, c: int = 1) -> None:
        super().add(key, c)
        for entry in self._tracked.values():
            entry[1] = 0


class NeverPrunes(LossyCounter):
    """Completes its buckets and keeps every entry."""

    __slots__ = ()

    def add(self, key: bytes, c: int = 1) -> None:
        kept = self._tracked
        super().add(key, c)
        self._tracked = {**kept, **self._tracked}


class MissesHotKeys(LossyCounter):
    """Reports by the lower bound."""

    __slots__ = ()

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        return {k: b for k, b in super().hot(threshold).items() if b.lower >= threshold}


def judged(make: Callable[[float], LossyCounter], keys: Sequence[bytes]) -> None:
    counter = make(0.1)
    for key in keys:
        counter.add(key)
        check_size(counter.entries, counter.n, width=counter.width)
    check_bounds(counter, Counter(keys), epsilon=0.1)


PLANTED = {
    PrunesTooMuch: [b"a", b"a", *FILLERS[:8]],
    ForgetsWhatItMissed: COMES_BACK,
    NeverPrunes: FILLERS,
    MissesHotKeys: COMES_BACK,
}


@pytest.mark.parametrize("broken", PLANTED)
def test_the_laws_catch_a_planted_fault(broken):
    with pytest.raises(AssertionError):
        judged(broken, PLANTED[broken])


@pytest.mark.parametrize("broken", PLANTED)
def test_the_sound_counter_passes_where_a_fault_was_planted(broken):
    judged(LossyCounter, PLANTED[broken])


def test_the_laws_catch_a_merge_that_forgets_what_the_other_part_let_go():
    parts = [
        counted(LossyCounter(0.1), [(key, 1) for key in keys])
        for keys in ([b"a", *FILLERS[:9]], [b"a"] * 5)
    ]
    sound = parts[0].merge(parts[1])
    true = Counter([b"a", *FILLERS[:9], *[b"a"] * 5])
    check_bounds(sound, true, epsilon=0.1)
    broken = Summary(width=10, n=15, b=1, tracked={b"a": parts[1].summary().tracked[b"a"]})
    with pytest.raises(AssertionError):
        check_bounds(broken, true, epsilon=0.1)
