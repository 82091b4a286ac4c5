"""A plan for keys while it is made: loads, places, and the last reason of each move."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.plan import KeyMove, KeyReason
from trimtab.plan.keys.planner import BalancedLoad, KeyContext, KeyDecision
from trimtab.plan.keys.tracking import TrackedKeys


class Draft:
    """The moves of one plan, in the order of their last decision, at most one per key.

    `totals` are all records by partition; `loads` is what the plan balances, either the same or
    the records of tracked keys. Both change with the moves. No more than `max_moves` keys move.
    """

    __slots__ = ("_most", "_moves", "busy", "loads", "routes", "skipped", "totals")

    def __init__(
        self,
        counts: KeyCounts,
        tracked: TrackedKeys,
        context: KeyContext,
        *,
        load: BalancedLoad,
        max_moves: int | None,
    ) -> None:
        self.totals = list(counts.partition_totals)
        self.loads = self.totals
        if load is BalancedLoad.HOT:
            self.loads = [0] * counts.partitions
            for key in tracked.known:
                self.loads[key.partition] += key.count
        self.routes = {key.key: key.partition for key in tracked.known}
        self.busy = context.busy
        self.skipped = sum(1 for key in tracked.tracked if key.key in self.busy)
        self.skipped += sum(1 for key, _ in tracked.cooled if key.key in self.busy)
        self._most = max_moves
        self._moves: dict[bytes, KeyMove] = {}

    def may_move(self, key: KeyCount, target: int) -> bool:
        """Whether this key may go there: its last move is finished, and the limit allows it."""
        if target == key.partition:
            return True
        within = self._most is None or len(self._moves) < self._most or key.key in self._moves
        return within and key.key not in self.busy

    def add(
        self, key: KeyCount, target: int, reason: KeyReason, numbers: Mapping[str, int]
    ) -> None:
        """Notes that a key goes to a partition, instead of what was noted before."""
        self._moves.pop(key.key, None)
        if target != key.partition:
            self._moves[key.key] = KeyMove(
                key=key.key,
                source=key.partition,
                target=target,
                count=key.count,
                reason=reason,
                numbers=numbers,
            )

    def shift_total(self, count: int, source: int, target: int) -> None:
        """Counts records at another partition, in the totals only."""
        self.totals[source] -= count
        self.totals[target] += count

    def decision(self) -> KeyDecision:
        """The moves and the routing table."""
        return KeyDecision(
            moves=tuple(self._moves.values()), routes=self.routes, skipped=self.skipped
        )
