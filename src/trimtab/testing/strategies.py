"""Hypothesis strategies for Trimtab's values: inputs that planners must handle.

Needs `hypothesis`, which Trimtab itself does not; it is imported on first use of a strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.load import GroupLimits
from trimtab.model.murmur2 import home

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingProblem:
    """The input of a packing planner."""

    loads: Mapping[TopicPartition, float]
    current: Assignment
    limits: GroupLimits
    dead: frozenset[int] = field(default_factory=frozenset)


def packing_problems(
    *, capacity: int = 100, most_partitions: int = 30, unequal: bool = True
) -> SearchStrategy[PackingProblem]:
    """Groups with empty and oversize partitions, arrivals, departures and dead consumers.

    Loads are integers, so that every sum is exact. With `unequal`, some groups have
    consumers of their own capacity.
    """
    from hypothesis import strategies as st

    names = st.builds(
        TopicPartition, st.sampled_from(["orders", "user_id", "a.b-c"]), st.integers(0, 20)
    )
    sizes = st.one_of(
        st.integers(0, capacity),
        st.integers(0, max(1, capacity // 10)),
        st.sampled_from([0, capacity // 2, capacity, capacity + 1]),
        st.integers(capacity + 1, 3 * capacity),
    )
    consumers = st.integers(0, max(1, most_partitions // 3))
    own = st.dictionaries(consumers, st.integers(1, 3 * capacity), max_size=6)

    def problem(**parts: Any) -> PackingProblem:
        # Each partition with a load has an owner, or None if it has just arrived.
        owners = {p: c for p, (_, c) in parts["present"].items() if c is not None}
        return PackingProblem(
            loads={p: load for p, (load, _) in parts["present"].items()},
            current=Assignment({**parts["departed"], **owners}),
            limits=GroupLimits(capacity=capacity, capacities=parts["own"] if unequal else {}),
            dead=parts["dead"],
        )

    owned = st.tuples(sizes, st.one_of(consumers, consumers, st.none()))
    return st.builds(
        problem,
        present=st.integers(0, most_partitions).flatmap(
            lambda n: st.dictionaries(names, owned, min_size=n, max_size=n)
        ),
        departed=st.dictionaries(names, consumers, max_size=3),
        own=st.one_of(st.just({}), own),
        dead=st.one_of(st.just(frozenset()), st.frozensets(consumers, max_size=3)),
    )


def key_windows(
    *, most_partitions: int = 8, most_keys: int = 30, exact: bool = False
) -> SearchStrategy[KeyCounts]:
    """Windows of counts with hot, warm and cold keys, some of them routed away from home.

    Totals include the records of other keys. Unless `exact`, some counts have an upper bound,
    and the threshold is above the error.
    """
    from hypothesis import strategies as st

    @st.composite
    def windows(draw: Any) -> KeyCounts:
        m = draw(st.integers(2, most_partitions))
        names = draw(st.sets(st.integers(0, 999), max_size=most_keys))
        threshold = draw(st.integers(6, 40))
        keys, totals = [], draw(st.lists(st.integers(0, 300), min_size=m, max_size=m))
        for name in sorted(names):
            key = b"%d" % name
            routed = draw(st.booleans())
            count = draw(st.one_of(st.integers(0, 60), st.sampled_from([20, 20, 200, 500])))
            error = None if exact else draw(st.one_of(st.none(), st.integers(0, 5)))
            at = draw(st.integers(0, m - 1)) if routed else home(key, m)
            keys.append(
                KeyCount(
                    key=key,
                    count=count,
                    partition=at,
                    routed=routed,
                    upper=None if error is None else count + error,
                )
            )
            totals[at] += count
        return KeyCounts(
            partitions=m,
            window_s=draw(st.sampled_from([1, 10])),
            threshold=threshold,
            keys=tuple(keys),
            partition_totals=tuple(totals),
        )

    return windows()
