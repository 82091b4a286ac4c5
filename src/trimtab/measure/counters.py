"""Counters of keys behind one protocol: exact, lossy, and Apache DataSketches' frequent items.

Why      Counters differ in memory per window; the questions asked of them are the same.
Promise  Every counter gives correct bounds, misses no hot key, and raises an error for a threshold
         so low that it might. Keys are any bytes. `hot_keys` accepts three forms of threshold:
         `Count` records per window; `Share` of all records; `Coverage`, the fewest top keys
         that together hold a share of all records (by lower bound, ties by key bytes).
Cost     `exact`: an entry per distinct key. `lossy`: see `trimtab.measure.lossy_counting`.
         `items`: at most `0.75 · 2^lg_max_k` entries, bounds at most `3.5 / 2^lg_max_k · n` apart.

>>> counter = COUNTERS["exact"](0.01)
>>> for key in (b"a", b"b", b"a", b"c", b"b", b"a"):
...     counter.add(key)
>>> hot_keys(Count(3), counter)
{b'a': Bounds(lower=3, upper=3)}
>>> sorted(hot_keys(Coverage(0.6), counter)), sorted(hot_keys(Share(0.3), counter))
([b'a', b'b'], [b'a', b'b'])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol, Self, assert_never

from trimtab.errors import ConfigError, MeasurementError
from trimtab.measure.lossy_counting import (
    Bounds,
    LossyCounter,
    Summary,
    check_threshold,
    packed,
    unpacked,
)


class HotKeyCounter(Protocol):
    """Counts the keys of one window, merges with counters of its kind, and finds hot keys."""

    @property
    def n(self) -> int:
        """The number of records seen."""
        ...

    @property
    def entries(self) -> int:
        """The number of keys tracked."""
        ...

    @property
    def max_error(self) -> int:
        """The most by which `upper` can exceed `lower`, and the count of any key not tracked."""
        ...

    def add(self, key: bytes, c: int = 1) -> None:
        """Counts `c` records of a key."""
        ...

    def merge(self, other: Self) -> HotKeyCounter:
        """Returns the count of both parts' records; both are unchanged."""
        ...

    def bounds(self, key: bytes) -> Bounds:
        """Returns the bounds of a key's true count."""
        ...

    def items(self) -> Iterator[tuple[bytes, Bounds]]:
        """Yields every tracked key with its bounds."""
        ...

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        """Returns every key that may have `threshold` records or more."""
        ...

    def to_bytes(self) -> bytes:
        """Returns a compact form, from which the module's `from_bytes` restores a counter."""
        ...


class ExactCounter:
    """A dictionary: the reference for the others, and the right choice for few keys."""

    __slots__ = ("_counts", "_n")

    def __init__(self, counts: Mapping[bytes, int] = MappingProxyType({})) -> None:
        self._counts = dict(counts)
        self._n = sum(self._counts.values())

    @property
    def n(self) -> int:
        """The number of records seen."""
        return self._n

    @property
    def entries(self) -> int:
        """The number of distinct keys."""
        return len(self._counts)

    @property
    def max_error(self) -> int:
        """Always 0."""
        return 0

    def add(self, key: bytes, c: int = 1) -> None:
        """Counts `c` records of a key."""
        _check_count(c)
        self._counts[key] = self._counts.get(key, 0) + c
        self._n += c

    def merge(self, other: ExactCounter) -> ExactCounter:
        """Returns the count of both parts' records."""
        _check_same_kind(self, other)
        merged = ExactCounter(self._counts)
        for key, c in other._counts.items():
            merged.add(key, c)
        return merged

    def bounds(self, key: bytes) -> Bounds:
        """Returns the true count as both bounds."""
        count = self._counts.get(key, 0)
        return Bounds(count, count)

    def items(self) -> Iterator[tuple[bytes, Bounds]]:
        """Yields every key with its count."""
        for key, count in self._counts.items():
            yield key, Bounds(count, count)

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        """Returns every key with `threshold` records or more."""
        check_threshold(0, threshold)
        return {key: bounds for key, bounds in self.items() if bounds.lower >= threshold}

    def to_bytes(self) -> bytes:
        """Returns a compact form; equal counts have equal bytes."""
        keys = sorted(self._counts)
        return packed(b"TTE1", (), keys, ([self._counts[key] for key in keys],))

    @classmethod
    def from_bytes(cls, data: bytes) -> ExactCounter:
        """Returns the counter that `to_bytes` wrote."""
        _, keys, (counts,) = unpacked(b"TTE1", data, numbers=0, columns=1)
        return cls(dict(zip(keys, counts, strict=True)))


class ItemsCounter:
    """Apache DataSketches' frequent items, with a table of at most `2^lg_max_k` slots."""

    __slots__ = ("_sketch", "lg_max_k")

    def __init__(self, lg_max_k: int) -> None:
        from datasketches import frequent_strings_sketch

        if not 3 <= lg_max_k <= 26:
            raise ValueError(f"lg_max_k must be between 3 and 26, not {lg_max_k}")
        self.lg_max_k = lg_max_k
        self._sketch: Any = frequent_strings_sketch(lg_max_k)

    @classmethod
    def for_epsilon(cls, epsilon: float) -> ItemsCounter:
        """Returns the smallest sketch whose error stays within `epsilon · n`."""
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must be between 0 and 1, not {epsilon}")
        needed = Fraction(7, 2) / Fraction(str(epsilon))
        lg_max_k = max(3, (-(-needed.numerator // needed.denominator) - 1).bit_length())
        return cls(lg_max_k)

    @property
    def n(self) -> int:
        """The number of records seen."""
        return int(self._sketch.total_weight)

    @property
    def entries(self) -> int:
        """The number of keys tracked."""
        return int(self._sketch.num_active_items)

    @property
    def max_error(self) -> int:
        """The distance between any key's bounds: the sketch has one offset for all."""
        return int(self._sketch.get_upper_bound("") - self._sketch.get_lower_bound(""))

    def add(self, key: bytes, c: int = 1) -> None:
        """Counts `c` records of a key."""
        _check_count(c)
        self._sketch.update(_text(key), c)

    def merge(self, other: ItemsCounter) -> ItemsCounter:
        """Returns the count of both parts' records; its table is that of the smaller part."""
        _check_same_kind(self, other)
        merged = ItemsCounter(min(self.lg_max_k, other.lg_max_k))
        merged._sketch.merge(self._sketch)
        merged._sketch.merge(other._sketch)
        return merged

    def bounds(self, key: bytes) -> Bounds:
        """Returns the bounds of a key's true count."""
        text = _text(key)
        return Bounds(self._sketch.get_lower_bound(text), self._sketch.get_upper_bound(text))

    def items(self) -> Iterator[tuple[bytes, Bounds]]:
        """Yields every tracked key with its bounds, the most frequent first."""
        return self._above(0)

    def hot(self, threshold: int) -> dict[bytes, Bounds]:
        """Returns every key that may have `threshold` records or more."""
        # Below its own error the sketch would silently use that error as the threshold.
        check_threshold(self.max_error, threshold)
        return dict(self._above(threshold - 1))

    def _above(self, threshold: int) -> Iterator[tuple[bytes, Bounds]]:
        from datasketches import frequent_items_error_type

        rows = self._sketch.get_frequent_items(
            frequent_items_error_type.NO_FALSE_NEGATIVES, threshold
        )
        for text, _estimate, lower, upper in rows:
            yield text.encode("latin-1"), Bounds(lower, upper)

    def to_bytes(self) -> bytes:
        """Returns the sketch in DataSketches' own format, after a short header."""
        return b"TTI1" + bytes([self.lg_max_k]) + bytes(self._sketch.serialize())

    @classmethod
    def from_bytes(cls, data: bytes) -> ItemsCounter:
        """Returns the counter that `to_bytes` wrote."""
        from datasketches import frequent_strings_sketch

        if data[:4] != b"TTI1" or len(data) < 6:
            raise ValueError(f"not a TTI1 counter: it begins with {data[:4]!r}")
        counter = cls(data[4])
        try:
            counter._sketch = frequent_strings_sketch.deserialize(data[5:])
        except (RuntimeError, ValueError, IndexError) as damage:
            raise ValueError(f"a damaged TTI1 counter: {damage}") from damage
        return counter


COUNTERS: Mapping[str, Callable[[float], HotKeyCounter]] = MappingProxyType(
    {
        "exact": lambda _epsilon: ExactCounter(),
        "lossy": LossyCounter,
        "items": ItemsCounter.for_epsilon,
    }
)
"""By name, a function that creates an empty counter for an epsilon; `exact` ignores it."""


def from_bytes(data: bytes) -> HotKeyCounter:
    """Returns the counter or summary that any counter's `to_bytes` wrote."""
    match data[:4]:
        case b"TTE1":
            return ExactCounter.from_bytes(data)
        case b"TTL1":
            return Summary.from_bytes(data)
        case b"TTI1":
            return ItemsCounter.from_bytes(data)
        case other:
            raise ValueError(f"not a Trimtab counter: it begins with {other!r}")


@dataclass(frozen=True, slots=True)
class Count:
    """A key is hot if it has at least this many records per window."""

    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ValueError(f"a threshold must be at least 1 record, not {self.records}")


@dataclass(frozen=True, slots=True)
class Share:
    """A key is hot if it has at least this share of all records."""

    of_records: float

    def __post_init__(self) -> None:
        _check_share(self.of_records)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The hot keys are the fewest top keys that together have this share of all records."""

    of_records: float

    def __post_init__(self) -> None:
        _check_share(self.of_records)


Threshold = Count | Share | Coverage


_FORMS = "Write count:100, share:0.001 or coverage:0.1."


def parse_threshold(text: str) -> Threshold:
    """Returns the threshold that `count:N`, `share:F` or `coverage:F` names; `N` is a count.

    >>> parse_threshold("share:0.001"), parse_threshold("100")
    (Share(of_records=0.001), Count(records=100))
    """
    form, _, number = (f"count:{text}" if text.isdecimal() else text).partition(":")
    try:
        match form:
            case "count":
                return Count(int(number))
            case "share":
                return Share(float(number))
            case "coverage":
                return Coverage(float(number))
            case _:
                pass
    except ValueError as error:
        raise ConfigError(f"Invalid threshold {text!r}: {error}.", hint=_FORMS) from error
    raise ConfigError(f"Invalid threshold {text!r}.", hint=_FORMS)


def threshold_records(form: Count | Share, n: int) -> int:
    """Returns T, the smallest count of a hot key in a window of `n` records."""
    match form:
        case Count(records):
            return records
        case Share(share):
            return max(1, _records_of(share, n))
        case _:
            assert_never(form)


def hot_keys(form: Threshold, counter: HotKeyCounter) -> dict[bytes, Bounds]:
    """Returns the hot keys of a window under any form of threshold."""
    match form:
        case Count() | Share():
            return counter.hot(threshold_records(form, counter.n))
        case Coverage(share):
            return _covering(_records_of(share, counter.n), counter)
        case _:
            assert_never(form)


def _covering(wanted: int, counter: HotKeyCounter) -> dict[bytes, Bounds]:
    """Returns the fewest top keys whose lower bounds add up to `wanted` records."""
    hot: dict[bytes, Bounds] = {}
    covered = 0
    for key, bounds in sorted(counter.items(), key=lambda item: (-item[1].lower, item[0])):
        if covered >= wanted:
            break
        hot[key] = bounds
        covered += bounds.lower
    if covered < wanted:
        raise MeasurementError(
            f"The tracked keys cover only {covered} records for certain; {wanted} are required.",
            hint="Choose a smaller epsilon or a smaller coverage.",
        )
    return hot


def _records_of(share: float, n: int) -> int:
    # As a decimal number: 0.1 of 30 is 3, not a little more.
    records = Fraction(str(share)) * n
    return -(-records.numerator // records.denominator)


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"a share must be above 0 and at most 1, not {share}")


def _check_count(c: int) -> None:
    if c < 1:
        raise ValueError(f"a count must be at least 1, not {c}")


def _check_same_kind(one: object, other: object) -> None:
    if type(one) is not type(other):
        raise ValueError(f"cannot merge a {type(one).__name__} with a {type(other).__name__}")


def _text(key: bytes) -> str:
    # The sketch accepts only text; latin-1 maps every byte to one character.
    return key.decode("latin-1")
