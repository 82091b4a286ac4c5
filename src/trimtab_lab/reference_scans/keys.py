"""Reference version of SMALOPS, slow and simple: each choice scans all partitions.

Why      The fast greedy is easy to get wrong. This one follows the specification literally; the
         law tests compare every decision with it.
Promise  The same moves and routes as `smalops` without a test of moves, a limit or busy keys.
Cost     O(keys · partitions).
"""

from __future__ import annotations

import hashlib

from trimtab.model.key_counts import KeyCounts
from trimtab.model.murmur2 import home
from trimtab.plan.keys.planner import BalancedLoad, CoolBelow, InitialPlace
from trimtab.plan.keys.smalops import SmalopsOptions


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


def smalops_scan(
    counts: KeyCounts, options: SmalopsOptions, plan_number: int
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
    balanced = greedy_scan(loads, {k: (count[k], place[k]) for k in table})
    place |= {moved: target for moved, _, target in balanced}
    changed = {k.key: place[k.key] for k in counts.keys if place[k.key] != k.partition}
    return changed, {key: place[key] for key in table}
