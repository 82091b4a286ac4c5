"""Hypothesis strategies for Trimtab's values: inputs that planners must handle.

Needs `hypothesis`, which Trimtab itself does not; it is imported on first use of a strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits

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
