"""A policy of the keys simulation that asks a planner of Trimtab at the end of each window.

Why      The simulation must show what the planner would do, so it runs the planner itself.
Promise  The planner gets exact counts: the hot keys of the window and every key of the routing
         table. Keys whose migration is not finished are given as busy.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.plan.keys.planner import KeyContext, KeyPlanner
from trimtab.plan.keys.smoothing import smoothed
from trimtab.simulate.keys.policy import FinishedWindow, RoutingDecision
from trimtab.simulate.keys.routing import Routing


class PlannerPolicy:
    """Routes hot keys as a planner decides."""

    def __init__(self, planner: KeyPlanner, *, smooth: float | None = None) -> None:
        """With `smooth`, counts are averages over windows, with this weight of the last one."""
        self._planner = planner
        self._smooth = smooth
        self._earlier: KeyCounts | None = None

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Asks the planner."""
        context = KeyContext(
            plan_number=window.counts.number, busy=frozenset(b"%d" % key for key in window.busy)
        )
        counts = key_counts(window)
        if self._smooth is not None:
            counts = self._earlier = smoothed(counts, self._earlier, self._smooth)
        decision = self._planner(counts, context)
        return RoutingDecision(
            routing=Routing(table={int(key): p for key, p in decision.routes.items()}),
            moves=dict(Counter(str(move.reason) for move in decision.moves)),
            moved=np.array(sorted(int(move.key) for move in decision.moves), np.int64),
            skipped=decision.skipped,
        )


def key_counts(window: FinishedWindow) -> KeyCounts:
    """The counts of a window as a planner takes them."""
    table = window.routing.table
    keys = np.union1d(window.hot.keys, np.array(list(table), np.int64))
    rows = zip(
        keys.tolist(),
        window.counts.all_keys.of(keys).tolist(),
        window.routes(keys).tolist(),
        strict=True,
    )
    return KeyCounts(
        partitions=window.partitions,
        window_s=window.window_s,
        threshold=window.threshold,
        keys=tuple(
            KeyCount(key=b"%d" % key, count=count, partition=route, routed=key in table)
            for key, count, route in rows
        ),
        partition_totals=tuple(window.loads.tolist()),
    )
