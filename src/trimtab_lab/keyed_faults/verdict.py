"""The verdict on a campaign: the set audit, and the counted state of every key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trimtab.evaluate.key_history import KeyHistory, SetAudit
from trimtab.evaluate.key_sets import SetAuditRules, audit_sets
from trimtab.model.key_chain import chain_after


class Counted(Protocol):
    """The state of the counting handler."""

    @property
    def count(self) -> int:
        """How many records of the key were applied."""
        ...

    @property
    def chain(self) -> str:
        """The chain over their numbers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTimes:
    """Seconds that the keys of hand-overs were blocked; None if there were none."""

    number: int
    p50_s: float | None
    p99_s: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> BlockedTimes:
        """The quantiles of these times."""
        ordered = sorted(seconds)

        def at(share: float) -> float | None:
            return round(ordered[int(share * (len(ordered) - 1))], 3) if ordered else None

        return cls(number=len(ordered), p50_s=at(0.5), p99_s=at(0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignVerdict:
    """What was found in what a campaign left behind.

    Attributes:
        audit: The set audit, with everything at rest.
        wrong_states: Keys whose state differs from that of a single run over the input.
        unhealed: Faults after which the group did not go on in time, and waits at the end.
        blocked: From the START that was read to the adoption, by the consumers' clocks.
        from_end: From the time of END to the adoption's record.
        faults: How often each fault happened.
    """

    audit: SetAudit
    wrong_states: tuple[str, ...] = ()
    unhealed: tuple[str, ...] = ()
    blocked: BlockedTimes
    from_end: BlockedTimes
    faults: Mapping[str, int] = field(default_factory=dict)
    migrations: int = 0
    gateway_starts: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.audit.findings or self.wrong_states or self.unhealed)

    def lines(self) -> Iterator[str]:
        """The verdict as text."""
        audit = self.audit
        yield (
            f"{audit.records} records of {audit.keys} keys, {audit.applied} applied; "
            f"{self.migrations} migrations, {audit.adoptions} of {audit.sets} sets adopted; "
            f"{self.gateway_starts} starts of gateway shards; {audit.dead} dead letters"
        )
        yield "faults: " + ", ".join(f"{name} {n}" for name, n in sorted(self.faults.items()))
        for what, times in (("START read", self.blocked), ("END", self.from_end)):
            yield (
                f"blocked from {what} to adoption: p50 {times.p50_s} s, p99 {times.p99_s} s "
                f"({times.number} hand-overs)"
            )
        kinds = Counter(f"{one.kind.rule} {one.kind}" for one in audit.findings)
        yield from (f"FOUND {kind}: {number}" for kind, number in sorted(kinds.items()))
        for one in audit.findings[:10]:
            yield f"  {one.kind.rule} {one.kind} {one.key!r} at {one.at}: {one.detail}"
        yield from (f"FOUND state: {text}" for text in self.wrong_states[:10])
        yield from (f"FOUND not healed: {text}" for text in self.unhealed)
        if self.is_clean:
            yield "V1 to V6 hold, and every state equals that of a single run over the input."

    def node(self) -> dict[str, Any]:
        """The verdict for `--json`."""
        audit = self.audit
        return {
            "clean": self.is_clean,
            "keys": audit.keys,
            "records": audit.records,
            "applied": audit.applied,
            "migrations": self.migrations,
            "sets": audit.sets,
            "adoptions": audit.adoptions,
            "gateway_starts": self.gateway_starts,
            "faults": dict(self.faults),
            "findings": [
                {
                    "rule": str(one.kind.rule),
                    "kind": str(one.kind),
                    "key": one.key.decode(errors="replace"),
                    "at": one.at,
                    "detail": one.detail,
                }
                for one in audit.findings
            ],
            "wrong_states": list(self.wrong_states),
            "unhealed": list(self.unhealed),
            "blocked_from_start": _times(self.blocked),
            "blocked_from_end": _times(self.from_end),
        }


def _times(times: BlockedTimes) -> dict[str, Any]:
    return {"number": times.number, "p50_s": times.p50_s, "p99_s": times.p99_s}


def judged(history: KeyHistory) -> SetAudit:
    """The set audit of a campaign that has ended."""
    return audit_sets(history, SetAuditRules(at_rest=True))


def wrong_states(truth: Mapping[bytes, int], found: Mapping[bytes, Counted]) -> Iterator[str]:
    """Keys whose count or chain differs from a single run over the records 1 to n of the key."""
    for key, count in sorted(truth.items()):
        state = found.get(key)
        if state is None:
            yield f"{key.decode()} has no state, its input has {count} records"
        elif state.count != count:
            yield f"{key.decode()} counts {state.count} records, its input has {count}"
        elif state.chain != chain_after(count):
            yield f"{key.decode()} was not counted in the order of its input"
    for key in sorted(found.keys() - truth.keys()):
        yield f"{key.decode()} has a state and no input"
