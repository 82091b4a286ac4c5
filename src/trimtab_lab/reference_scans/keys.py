"""Reference version of SMALOPS, simple: each choice of the greedy scans all partitions.

Why      The fast greedy is easy to get wrong. This one follows the specification literally; the
         law tests compare every decision with it. `greedy_arrays` does the same scan in numpy, and
         is the rival in the speed benchmark.
Promise  The same moves and routes as `smalops` without a test of moves, a limit or busy keys.
Cost     O(keys · partitions).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from trimtab.model.key_counts import KeyCounts
from trimtab.model.murmur2 import home
from trimtab.plan.keys.planner import BalancedLoad, CoolBelow, InitialPlace
from trimtab.plan.keys.smalops import SmalopsOptions

Greedy = Callable[[list[int], dict[bytes, tuple[int, int]]], list[tuple[bytes, int, int]]]


def greedy_scan(
    loads: list[int], keys: dict[bytes, tuple[int, int]]
) -> list[tuple[bytes, int, int]]:
    """One greedy pass; `keys` are (count, partition). Returns (key, source, target), in order."""
    m, total = len(loads), sum(loads)
    moves = []
    over = sorted((p for p in range(m) if m * loads[p] > total), key=lambda p: (-loads[p], p))
    for p in over:
        for key in sorted((k for k in keys if keys[k][1] == p), key=lambda k: (keys[k][0], k)):
            if m * loads[p] <= total:
                break
            count = keys[key][0]
            candidates = [
                t for t in range(m) if m * loads[t] < total and 0 < count < loads[p] - loads[t]
            ]
            if not candidates:
                continue
            t = min(candidates, key=lambda t: (abs(m * (count + loads[t]) - total), loads[t], t))
            loads[p] -= count
            loads[t] += count
            moves.append((key, p, t))
    return moves


def greedy_arrays(
    loads: list[int], keys: dict[bytes, tuple[int, int]]
) -> list[tuple[bytes, int, int]]:
    """The same pass; partitions are scanned by numpy."""
    m, total = len(loads), sum(loads)
    load = np.array(loads, dtype=np.int64)
    numbers = np.arange(m)
    on: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for key, (count, p) in keys.items():
        on[p].append((count, key))
    moves = []
    over = sorted((p for p in range(m) if m * loads[p] > total), key=lambda p: (-loads[p], p))
    for p in over:
        for count, key in sorted(on[p]):
            if m * int(load[p]) <= total:
                break
            candidates = numbers[(m * load < total) & (count < load[p] - load)]
            if not candidates.size or count <= 0:
                continue
            distance = np.abs(m * (count + load[candidates]) - total)
            best = candidates[distance == distance.min()]
            t = int(best[np.argmin(load[best])])  # the first of the least loaded
            load[p] -= count
            load[t] += count
            moves.append((key, p, t))
    loads[:] = load.tolist()
    return moves


def smalops_scan(
    counts: KeyCounts, options: SmalopsOptions, plan_number: int, greedy: Greedy = greedy_scan
) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """The moved keys with their new partitions, and the routing table."""
    m = counts.partitions
    place = {key.key: key.partition for key in counts.keys}
    count = {key.key: key.count for key in counts.keys}
    loads = list(counts.partition_totals) if options.load is BalancedLoad.TOTAL else [0] * m
    total_load = options.load is BalancedLoad.TOTAL
    half = options.cool_below is CoolBelow.HALF
    table = set()
    fresh = []
    for key in sorted(counts.keys, key=lambda k: k.key):
        upper = key.count if key.upper is None else key.upper
        if key.routed and upper < counts.threshold / (2 if half else 1):
            if total_load:
                loads[key.partition] -= key.count
                loads[home(key.key, m)] += key.count
            place[key.key] = home(key.key, m)
        elif key.routed:
            table.add(key.key)
            loads[key.partition] += 0 if total_load else key.count
        elif upper >= counts.threshold:
            fresh.append(key)
    for key in sorted(fresh, key=lambda k: (-k.count, k.key)):
        if total_load:
            loads[key.partition] -= key.count
        if options.initial is InitialPlace.TWO_CHOICES:
            digest = hashlib.blake2b(
                key.key + plan_number.to_bytes(8, "big"), digest_size=16
            ).digest()
            a = int.from_bytes(digest[:8], "big") % m
            b = (a + 1 + int.from_bytes(digest[8:], "big") % (m - 1)) % m
            place[key.key] = min(a, b, key=lambda p: (loads[p], p))
        loads[place[key.key]] += key.count
        table.add(key.key)
    balanced = greedy(loads, {k: (count[k], place[k]) for k in table})
    place |= {moved: target for moved, _, target in balanced}
    changed = {k.key: place[k.key] for k in counts.keys if place[k.key] != k.partition}
    return changed, {key: place[key] for key in table}
