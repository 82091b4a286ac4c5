"""Algorithms 1–3 as published: scans over all groups for each topic, and over all pairs of groups.

Why      The rival in the audit's benchmarks, and an independent check of its findings.
Promise  Only the definitions. N(t) is an ascending list of integers, as in the thesis, where it is
         compared, and a set where it is intersected, which is fastest in Python. Algorithm 1 adds
         to a group in place: assigning to the loop variable, as printed, would lose topics.
         Algorithm 3 iterates over the actual broker ids, which need not be 1 … n.
Cost     O(topics · groups · brokers), O(groups² · brokers), O(groups · brokers).
Paper    Burato, section 3.5.

>>> nodes = {"A": [1, 2], "B": [2, 3], "C": [2, 3]}
>>> groups = get_max_groups(nodes)
>>> groups, dpo(groups, nodes), dpo2(groups, nodes, [1, 2, 3])
([['A'], ['B', 'C']], [(0, 1, frozenset({2}))], [(2, [0, 1])])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trimtab.model.cluster import NO_LEADER, ClusterSnapshot

Nodes = Mapping[str, Sequence[int]]


def node_lists(
    snapshot: ClusterSnapshot, *, dead: frozenset[int] = frozenset()
) -> dict[str, list[int]]:
    """N(t) of every topic that has a leader, after the brokers in `dead` have failed."""
    found: dict[str, set[int]] = {}
    for p in snapshot.partitions:
        leader = p.leader
        if leader in dead:
            leader = next((b for b in p.replicas if b in p.isr and b not in dead), NO_LEADER)
        if leader != NO_LEADER:
            found.setdefault(p.topic, set()).add(leader)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def get_max_groups(nodes: Nodes) -> list[list[str]]:
    """Algorithm 1: the topics of each max group."""
    groups: list[list[str]] = []
    for topic, led in nodes.items():
        for group in groups:
            if nodes[group[0]] == led:
                group.append(topic)
                break
        else:
            groups.append([topic])
    return groups


def dpo(groups: Sequence[Sequence[str]], nodes: Nodes) -> list[tuple[int, int, frozenset[int]]]:
    """Algorithm 2, the variant that returns the brokers: all pairs of overlapping groups."""
    found = []
    of_group = [frozenset(nodes[group[0]]) for group in groups]
    for i, one in enumerate(of_group):
        for j in range(i + 1, len(of_group)):
            common = one & of_group[j]
            if common:
                found.append((i, j, common))
    return found


def dpo2(
    groups: Sequence[Sequence[str]], nodes: Nodes, brokers: Iterable[int]
) -> list[tuple[int, list[int]]]:
    """Algorithm 3: the groups on each broker that is shared by several groups."""
    touched: dict[int, list[int]] = {broker: [] for broker in brokers}
    for number, group in enumerate(groups):
        for node in nodes[group[0]]:
            touched[node].append(number)
    return [(broker, those) for broker, those in touched.items() if len(those) > 1]
