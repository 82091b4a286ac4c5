"""Joins the records of `trimtab.rates` into which the rates of a large topic are split.

Promise  A topic's rates are returned when all parts of the same `ts` have arrived, in any order;
         of a part that came twice the later one counts. Parts of different `ts`, or of different
         `of`, are never mixed. Until a set is complete nothing is returned, so the reader keeps
         the rates that it has. Incomplete sets older than complete rates are forgotten.
Cost     O(partitions) when a set is complete. At most four incomplete sets are kept per topic.
"""

from __future__ import annotations

from dataclasses import replace

from trimtab.model.control import PartitionRate, TopicRates

_MOST_OPEN = 4  # two publishers, and one set of each that was never ended

_Parts = dict[int, TopicRates]


class RateParts:
    """The parts that have arrived of rates which are not complete yet."""

    def __init__(self) -> None:
        self._open: dict[str, dict[tuple[int, int], _Parts]] = {}

    def joined(self, record: TopicRates) -> TopicRates | None:
        """The topic's rates, if this record completes them."""
        if record.of == 1:
            self._forget(record.topic, before=record.ts)
            return record
        open_sets = self._open.setdefault(record.topic, {})
        parts = open_sets.setdefault((record.ts, record.of), {})
        parts[record.part] = record  # a repeated part replaces the earlier one
        if len(parts) < record.of:
            for oldest in sorted(open_sets)[:-_MOST_OPEN]:
                del open_sets[oldest]
            return None
        del open_sets[record.ts, record.of]
        self._forget(record.topic, before=record.ts)
        partitions: dict[int, PartitionRate] = {}
        for part in sorted(parts):
            partitions |= parts[part].partitions
        return replace(record, partitions=partitions, part=0, of=1)

    def _forget(self, topic: str, *, before: int) -> None:
        """Removes incomplete sets that are older than complete rates."""
        open_sets = self._open.pop(topic, {})
        if kept := {at: parts for at, parts in open_sets.items() if at[0] >= before}:
            self._open[topic] = kept
