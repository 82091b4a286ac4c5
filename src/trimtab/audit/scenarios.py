"""The failures to simulate: single brokers, several at once, racks and other domains.

Promise  Each set of brokers occurs once. If there are more sets than requested, single brokers
         and domains are kept and the others are sampled with the given seed; `sampled` is true.
Cost     O(sets that are kept).

>>> found = scenarios([1, 2, 3], up_to=2, domains={"rack a": [1, 2], "rack b": [3]})
>>> [(one.dead, one.what) for one in found.kept]
[((1,), ''), ((2,), ''), ((3,), 'rack b'), ((1, 2), 'rack a'), ((1, 3), ''), ((2, 3), '')]
>>> few = scenarios(range(100), up_to=2, most=103, seed=1)
>>> few.of, len(few.kept), few.sampled
(5050, 103, True)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from random import Random
from typing import NamedTuple

from trimtab.model.cluster import Broker, BrokerId

MOST_SCENARIOS = 20_000


class Scenario(NamedTuple):
    """Brokers that fail together, and the name of their failure domain, if any."""

    dead: tuple[BrokerId, ...]
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """The failures to simulate, and the number of all possible ones."""

    kept: tuple[Scenario, ...]
    of: int

    @property
    def sampled(self) -> bool:
        """Whether some were left out."""
        return len(self.kept) < self.of


def scenarios(
    brokers: Collection[int],
    *,
    up_to: int = 1,
    domains: Mapping[str, Collection[int]] | None = None,
    most: int = MOST_SCENARIOS,
    seed: int = 0,
) -> Scenarios:
    """All sets of up to `up_to` brokers, and each domain as one set."""
    if up_to < 0 or most < 1:
        raise ValueError(f"up_to must be at least 0 and most at least 1, not {up_to} and {most}")
    ids = tuple(BrokerId(broker) for broker in sorted(set(brokers)))
    names: dict[tuple[BrokerId, ...], str] = {}
    for name, members in (domains or {}).items():
        dead = tuple(broker for broker in ids if broker in set(members))
        if dead:
            names[dead] = f"{names[dead]}, {name}" if dead in names else name
    sizes = range(1, min(up_to, len(ids)) + 1)
    large = [dead for dead in names if len(dead) not in sizes]
    of = sum(comb(len(ids), size) for size in sizes) + len(large)
    if of <= most:
        sets = [dead for size in sizes for dead in combinations(ids, size)] + sorted(large)
    else:
        sets = list(_drawn(ids, sizes, sorted(names), most, Random(seed)))
    return Scenarios(kept=tuple(Scenario(dead, names.get(dead, "")) for dead in sets), of=of)


def _drawn(
    ids: tuple[BrokerId, ...],
    sizes: range,
    named: list[tuple[BrokerId, ...]],
    most: int,
    rng: Random,
) -> Iterator[tuple[BrokerId, ...]]:
    certain = [*(((broker,) for broker in ids) if sizes else ()), *named]
    certain = list(dict.fromkeys(certain))
    if len(certain) >= most:
        yield from (certain[at] for at in sorted(rng.sample(range(len(certain)), most)))
        return
    yield from certain
    kept = set(certain)
    larger = [size for size in sizes if size > 1]
    while len(kept) < most:
        (size,) = rng.choices(larger, [comb(len(ids), size) for size in larger])
        dead = tuple(sorted(rng.sample(ids, size)))
        if dead not in kept:
            kept.add(dead)
            yield dead


def racks(brokers: Collection[Broker]) -> dict[str, tuple[BrokerId, ...]]:
    """The brokers of each rack, by its name; brokers without a rack are left out."""
    found: dict[str, list[BrokerId]] = {}
    for broker in brokers:
        if broker.rack is not None:
            found.setdefault(f"rack {broker.rack}", []).append(broker.id)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}
