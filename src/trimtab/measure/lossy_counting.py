"""Lossy counting: finds the heavy keys of a window in little memory, with guaranteed bounds.

Promise  With `n` records seen and `b = ⌊n / width⌋ ≤ εn` complete buckets, for every key:
         1. `lower ≤ true ≤ upper`, tracked or not (not tracked: `0` and `b`);
         2. `upper − lower ≤ b ≤ ⌊εn⌋`;
         3. `hot(T)` misses no key of `T` or more records and reports none below `T − ⌊εn⌋`;
         4. once a bucket is complete, at most `width · (ln(n / width) + 1)` keys are tracked.
Cost     O(1) amortised per record and O(entries) per bucket; a merge is linear in the entries.
Paper    Bhattacharya & Wood, after Manku & Motwani (2002): one counter per tumbling window.
         Differs: an addition may be of many records, and summaries can be merged.

>>> counter = LossyCounter(0.25)
>>> for key in (b"a", b"b", b"a", b"c", b"a", b"d", b"a", b"e"):
...     counter.add(key)
>>> counter.bounds(b"a"), counter.bounds(b"b")
(Bounds(lower=4, upper=4), Bounds(lower=0, upper=2))
>>> counter.hot(4)
{b'a': Bounds(lower=4, upper=4)}
>>> counter.merge(counter).bounds(b"a")
Bounds(lower=8, upper=8)
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple, NoReturn, Protocol, runtime_checkable

from trimtab.errors import MeasurementError


class Bounds(NamedTuple):
    """Bounds of a key's true count: at least `lower`, at most `upper`."""

    lower: int
    upper: int


class Entry(NamedTuple):
    """A tracked key: `counted` since it was added, at most `missed` before."""

    counted: int
    missed: int


def bucket_width(epsilon: float) -> int:
    """Returns ⌈1/ε⌉, with ε taken as a decimal number."""
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be between 0 and 1, not {epsilon}")
    # 1e-6 as a binary float is a little less than a millionth: 1/ε would round up by one.
    inverse = 1 / Fraction(str(epsilon))
    return -(-inverse.numerator // inverse.denominator)


def check_threshold(error: int, threshold: int) -> None:
    """Raises an error unless the threshold is above the error bound."""
    if threshold <= error:
        raise MeasurementError(
            f"A threshold of {threshold} records is not above the error bound of {error}: "
            "keys that are not tracked could be hot.",
            hint="Choose a smaller epsilon or a higher threshold.",
        )


@runtime_checkable
class LossyCounts(Protocol):
    """A lossy counter or summary: it has a summary, and so can be merged."""

    def summary(self) -> Summary:
        """Returns the current summary."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of one or more lossy counters of the same bucket width over `n` records.

    Merging summaries of the same `ε` keeps guarantees 1–3 for the union of their records: a part
    that does not track a key has missed at most its own `b` records of it. Without `pruned`,
    merging is commutative and associative. A summary accepts no more records: it may combine the
    buckets of several streams, which do not end together.
    """

    width: int
    n: int
    b: int
    tracked: Mapping[bytes, Entry]

    def __post_init__(self) -> None:
        if self.width < 1 or not 0 <= self.b * self.width <= self.n:
            raise ValueError(
                f"{self.b} complete buckets of {self.width} do not match {self.n} records"
            )

    @property
    def entries(self) -> int:
        """The number of keys tracked."""
        return len(self.tracked)

    @property
    def max_error(self) -> int:
        """The most by which `upper` can exceed `lower`, and the count of any key not tracked."""
        return self.b

    def add(self, key: bytes, c: int = 1) -> NoReturn:
        """Raises an error: only a `LossyCounter` accepts records."""
        raise MeasurementError(
            f"A summary accepts no more records ({c} of {key!r}).",
            hint="Count them with another LossyCounter, and merge its summary.",
        )

    def summary(self) -> Summary:
        """Returns itself."""
        return self

    def merge(self, other: LossyCounts) -> Summary:
        """Returns the summary of both parts' records."""
        if not isinstance(other, LossyCounts):
            raise ValueError(f"cannot merge with a {type(other).__name__}")  # noqa: TRY004
        theirs = other.summary()
        if theirs.width != self.width:
            raise ValueError(
                f"cannot merge summaries of bucket widths {self.width} and {theirs.width}"
            )
        here, there = Entry(0, self.b), Entry(0, theirs.b)
        tracked: dict[bytes, Entry] = {}
        for key in {**self.tracked, **theirs.tracked}:  # not a set: its order varies
            f, d = self.tracked.get(key, here)
            more_f, more_d = theirs.tracked.get(key, there)
            tracked[key] = Entry(f + more_f, d + more_d)
        return Summary(width=self.width, n=self.n + theirs.n, b=self.b + theirs.b, tracked=tracked)

    def pruned(self) -> Summary:
        """Returns the summary without keys that need not be tracked; call it after all merges."""
        kept = {key: entry for key, entry in self.tracked.items() if sum(entry) > self.b}
        return Summary(width=self.width, n=self.n, b=self.b, tracked=kept)

    def bounds(self, key: bytes) -> Bounds:
        """Returns the bounds of a key's true count."""
        f, d = self.tracked.get(key, (0, self.b))
        return Bounds(f, f + d)

    def items(self) -> Iterator[tuple[bytes, Bounds]]:
        """Yields every tracked key with its bounds."""
        for key, (f, d) in self.tracked.items():
            yield key, Bounds(f, f + d)

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        """Returns every key that may have `threshold` records or more."""
        check_threshold(self.b, threshold)
        return {key: bounds for key, bounds in self.items() if bounds.upper >= threshold}

    def to_bytes(self) -> bytes:
        """Returns a compact form; equal summaries have equal bytes."""
        keys = sorted(self.tracked)
        entries = [self.tracked[key] for key in keys]
        columns = ([f for f, _ in entries], [d for _, d in entries])
        return packed(b"TTL1", (self.width, self.n, self.b), keys, columns)

    @classmethod
    def from_bytes(cls, data: bytes) -> Summary:
        """Returns the summary that `to_bytes` wrote."""
        (width, n, b), keys, (counted, missed) = unpacked(b"TTL1", data, numbers=3, columns=2)
        tracked = dict(zip(keys, map(Entry, counted, missed), strict=True))
        return cls(width=width, n=n, b=b, tracked=tracked)


class LossyCounter:
    """Counts the records of one window, one after another.

    The stream is divided into buckets of `width = ⌈1/ε⌉` records; an entry `(f, d)` means that a
    key was counted `f` times since it was last added and at most `d` times before. At the end of a
    bucket every entry with `f + d ≤ b` is dropped.
    """

    __slots__ = ("_bucket", "_n", "_tracked", "width")

    def __init__(self, epsilon: float) -> None:
        self.width = bucket_width(epsilon)
        self._n = 0
        self._bucket = 1
        self._tracked: dict[bytes, list[int]] = {}

    @property
    def n(self) -> int:
        """The number of records seen."""
        return self._n

    @property
    def entries(self) -> int:
        """The number of keys tracked."""
        return len(self._tracked)

    @property
    def max_error(self) -> int:
        """The number of complete buckets: no bound is wider, no untracked key more frequent."""
        return self._bucket - 1

    def add(self, key: bytes, c: int = 1) -> None:
        """Counts `c` records of a key."""
        if c < 1:
            raise ValueError(f"a count must be at least 1, not {c}")
        entry = self._tracked.get(key)
        if entry is None:
            self._tracked[key] = [c, self._bucket - 1]
        else:
            entry[0] += c
        self._n += c
        if self._n >= self._bucket * self.width:
            self._prune()

    def _prune(self) -> None:
        """Drops entries at the end of a bucket."""
        # A large count can complete many buckets; pruning after the last includes the others.
        complete = self._n // self.width
        self._tracked = {k: e for k, e in self._tracked.items() if e[0] + e[1] > complete}
        self._bucket = complete + 1

    def add_batch(self, keys: Sequence[bytes]) -> None:
        """Counts a batch of records, all of a key together: faster than one after another.

        It counts as if every key came first at the batch's first record. The guarantees hold for
        the same reason as in `trimtab.measure.columnar_counting`.
        """
        tracked, missed = self._tracked, self._bucket - 1
        for key, c in Counter(keys).items():
            entry = tracked.get(key)
            if entry is None:
                tracked[key] = [c, missed]
            else:
                entry[0] += c
        self._n += len(keys)
        if self._n >= self._bucket * self.width:
            self._prune()

    def summary(self) -> Summary:
        """Returns the current summary."""
        tracked = {key: Entry(f, d) for key, (f, d) in self._tracked.items()}
        return Summary(width=self.width, n=self._n, b=self._bucket - 1, tracked=tracked)

    def merge(self, other: LossyCounts) -> Summary:
        """Returns the summary of both counters' records; both are unchanged."""
        return self.summary().merge(other)

    def bounds(self, key: bytes) -> Bounds:
        """Returns the bounds of a key's true count."""
        f, d = self._tracked.get(key, (0, self._bucket - 1))
        return Bounds(f, f + d)

    def items(self) -> Iterator[tuple[bytes, Bounds]]:
        """Yields every tracked key with its bounds."""
        return self.summary().items()

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        """Returns every key that may have `threshold` records or more."""
        return self.summary().hot(threshold)

    def to_bytes(self) -> bytes:
        """Returns the summary in its compact form."""
        return self.summary().to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Summary:
        """Returns the stored summary: it can be merged and queried, but accepts no records."""
        return Summary.from_bytes(data)


def packed(
    kind: bytes, numbers: Sequence[int], keys: Sequence[bytes], columns: Sequence[Sequence[int]]
) -> bytes:
    """Packs a kind, some numbers, and a table of keys and counts into compressed bytes."""
    rows = len(keys)
    head = struct.pack(f"<{len(numbers) + 1}Q", *numbers, rows)
    lengths = struct.pack(f"<{rows}I", *map(len, keys))
    body = b"".join(struct.pack(f"<{rows}Q", *column) for column in columns)
    return kind + zlib.compress(head + lengths + body + b"".join(keys), 1)


def unpacked(
    kind: bytes, data: bytes, *, numbers: int, columns: int
) -> tuple[tuple[int, ...], list[bytes], list[tuple[int, ...]]]:
    """Reverses `packed`; raises ValueError for other or damaged bytes."""
    if data[: len(kind)] != kind:
        raise ValueError(f"not a {kind.decode()} counter: it begins with {data[: len(kind)]!r}")
    try:
        raw = zlib.decompress(data[len(kind) :])
        *head, rows = struct.unpack_from(f"<{numbers + 1}Q", raw)
        at = 8 * (numbers + 1)
        lengths = struct.unpack_from(f"<{rows}I", raw, at)
        at += 4 * rows
        counts = [struct.unpack_from(f"<{rows}Q", raw, at + 8 * rows * i) for i in range(columns)]
    except (zlib.error, struct.error) as damage:
        raise ValueError(f"a damaged {kind.decode()} counter: {damage}") from damage
    at += 8 * rows * columns
    keys = [raw[start:end] for start, end in pairwise(accumulate(lengths, initial=at))]
    return tuple(head), keys, counts
