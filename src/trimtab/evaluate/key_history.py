"""What the set audit looks at, as values: source, receipts, markers, and the state at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from trimtab.model.codec import VERSION, Json
from trimtab.model.scalars import key_field


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReceipt:
    """A record that a keyed consumer has applied, in the order of the topic of receipts.

    `log_partition` and `log_offset` are the receipt's own place: the receipts of a key are in one
    partition, in the order of the transactions. `set_id` is None if the consumer was not keyed.
    """

    key: bytes
    seq: int | None
    set_id: int | None
    partition: int
    offset: int
    chain: str | None = None
    run: str = ""
    consumer: int = 0
    incarnation: str = ""
    started_ts: int = 0
    finished_ts: int = 0
    log_partition: int = 0
    log_offset: int = 0


class SetMarkerKind(StrEnum):
    """The markers of a data topic that the audit needs."""

    END = "end"
    START = "start"
    FENCE = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMarker:
    """END, START or FENCE at its place in the data topic.

    `set_id` is the set that begins: `tt-next` of END, `tt-set` of START. `old_set` is the set that
    END closes. `other` is the other partition of the move: `tt-to` of END, `tt-from` of START.
    `end_offset` is the offset of END that START names, -1 if unknown. FENCE has no key.
    """

    kind: SetMarkerKind
    partition: int
    offset: int
    shard: int
    gen: int
    key: bytes = b""
    set_id: int = 0
    old_set: int = 0
    other: int = -1
    end_offset: int = -1


class KeptStatus(StrEnum):
    """Whether a partition has the state of a key, as `.state` says it."""

    OWN = "own"
    WAIT = "wait"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEntry:
    """The entry of a key in `.state` of one partition; `chain` if its value has one."""

    partition: int
    key: bytes
    status: KeptStatus
    set_id: int
    has_value: bool = False
    chain: str | None = None


class KeySetPlace(NamedTuple):
    """A set of a key on a partition: of a hand-over, or of its adoption."""

    key: bytes
    set_id: int
    partition: int


class NumberedKey(NamedTuple):
    """A record by the number that its source gave it."""

    key: bytes
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """Everything that is known of the keys of a topic and a consumer group.

    Attributes:
        acknowledged: The numbers of each key's records, in the order of the source.
        receipts: Of this topic and group only, of all runs: the state of a key outlives a run.
        markers: As they were read, repeated and fenced ones included.
        entries: The newest of each key and partition.
        parked: The number of parked records, by partition and key.
        early: Hand-overs in `.state` whose START has not been read.
        handovers: Records of `.handover` without a tombstone.
        adopted: Tombstones of `.handover`.
        dead: Records in the dead letters.
        log_starts: The first offset of each partition of the data topic; 0 if not given.
        complete: Whether source and receipts are there from their beginnings. If not, a key is
            judged from its first receipt on.
    """

    acknowledged: Mapping[bytes, Sequence[int]]
    receipts: Sequence[SetReceipt]
    markers: Sequence[SetMarker] = ()
    entries: Sequence[KeptEntry] = ()
    parked: Mapping[tuple[int, bytes], int] = field(default_factory=dict)
    early: Collection[KeySetPlace] = ()
    handovers: Collection[KeySetPlace] = ()
    adopted: Collection[KeySetPlace] = ()
    dead: frozenset[NumberedKey] = frozenset()
    log_starts: Mapping[int, int] = field(default_factory=dict)
    complete: bool = True


class SetFindingKind(StrEnum):
    """The kinds of findings; `rule` is the invariant that each breaks.

    missing: A record of the source was not applied, and is not in the dead letters.
    repeated: A record was applied more often than the source has it.
    out_of_order: A record was applied after a later one of its key.
    unexpected: A record was applied that the source does not have.
    wrong_chain: The state of a key does not result from the records of its source, in order.
    two_states: Two partitions own the state of a key.
    no_owner: No partition owns the state of a key.
    old_owner: The owner has an earlier set than another partition knows of.
    no_value: The owner of a key with applied records has no value.
    waiting: A key waits for its state.
    parked: Records are parked.
    early_handover: A state came before its START and was not adopted.
    open_handover: A state is still on its way.
    end_alone: END without START.
    start_alone: START without END.
    markers_disagree: END and START name different places.
    not_adopted: A set was started and its state never adopted.
    adopted_twice: A set was adopted on more than one partition.
    adopted_unstarted: A set was adopted that no START opened.
    wrong_partition: Records were applied on another partition than the one of their set.
    sets_fell: An earlier set came after a later one of the same key.
    two_owners: Two consumer processes worked on a key at once.
    """

    MISSING = "missing"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out_of_order"
    UNEXPECTED = "unexpected"
    WRONG_CHAIN = "wrong_chain"
    TWO_STATES = "two_states"
    NO_OWNER = "no_owner"
    OLD_OWNER = "old_owner"
    NO_VALUE = "no_value"
    WAITING = "waiting"
    PARKED = "parked"
    EARLY_HANDOVER = "early_handover"
    OPEN_HANDOVER = "open_handover"
    END_ALONE = "end_alone"
    START_ALONE = "start_alone"
    MARKERS_DISAGREE = "markers_disagree"
    NOT_ADOPTED = "not_adopted"
    ADOPTED_TWICE = "adopted_twice"
    ADOPTED_UNSTARTED = "adopted_unstarted"
    WRONG_PARTITION = "wrong_partition"
    SETS_FELL = "sets_fell"
    TWO_OWNERS = "two_owners"

    @property
    def rule(self) -> SetRule:
        """The invariant that is broken."""
        return _RULES[self]


class SetRule(StrEnum):
    """What must hold for every key, whatever moves and whatever fails.

    V1: In the order of sets and offsets, the records of a key are applied exactly as in the source.
    V2: The chain of a key is the one computed from the source.
    V3: At rest each key has one owner with a value; nothing waits, is parked or on its way.
    V4: Each set is adopted once; END, START and adoption agree.
    V5: Records of a set are applied on the partition that its START is on.
    V6: The sets of a key rise.
    owners: One consumer process at a time works on a key.
    """

    V1 = "V1"
    V2 = "V2"
    V3 = "V3"
    V4 = "V4"
    V5 = "V5"
    V6 = "V6"
    OWNERS = "owners"


_K = SetFindingKind
_RULES = {
    kind: rule
    for rule, kinds in {
        SetRule.V1: (_K.MISSING, _K.REPEATED, _K.OUT_OF_ORDER, _K.UNEXPECTED),
        SetRule.V2: (_K.WRONG_CHAIN,),
        SetRule.V3: (
            *(_K.TWO_STATES, _K.NO_OWNER, _K.OLD_OWNER, _K.NO_VALUE),
            *(_K.WAITING, _K.PARKED, _K.EARLY_HANDOVER, _K.OPEN_HANDOVER),
        ),
        SetRule.V4: (
            *(_K.END_ALONE, _K.START_ALONE, _K.MARKERS_DISAGREE),
            *(_K.NOT_ADOPTED, _K.ADOPTED_TWICE, _K.ADOPTED_UNSTARTED),
        ),
        SetRule.V5: (_K.WRONG_PARTITION,),
        SetRule.V6: (_K.SETS_FELL,),
        SetRule.OWNERS: (_K.TWO_OWNERS,),
    }.items()
    for kind in kinds
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFinding:
    """One finding.

    `at` is the number of the record for V1, V2 and V5, else the id of the set; for `two_owners` the
    first offset of the second owner. `run` is that of the receipt, None if there is none.
    """

    kind: SetFindingKind
    key: bytes
    partition: int | None
    at: int
    detail: str
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAudit:
    """What was audited and what was found.

    Attributes:
        keys: Keys in the source or in the receipts.
        records: Records of the source.
        applied: Receipts of keyed consumers.
        unnumbered: Receipts and records without a number, which are not judged.
        sets: Sets above 0 that are known of, each with its key.
        adoptions: Those of them that were adopted.
        chains: Receipts with a chain. Without any, V2 has not been judged.
        dead: Records in the dead letters.
        unsettled: Keys that were not at rest: records to be applied, or a move under way.
        complete: Whether source and receipts were there from their beginnings.
        at_rest: Whether everything was judged to be at rest.
    """

    findings: tuple[SetFinding, ...]
    keys: int
    records: int
    applied: int
    unnumbered: int
    sets: int
    adoptions: int
    chains: int
    dead: int
    unsettled: tuple[bytes, ...]
    complete: bool
    at_rest: bool

    @property
    def counts(self) -> Mapping[SetFindingKind, int]:
        """The number of findings of each kind that occurs."""
        return Counter(finding.kind for finding in self.findings)


MOST_SHOWN = 20
"""Findings of each kind in a document."""


def set_audit_to(audit: SetAudit, *, topic: str, group: str) -> Json:
    """The document of `evaluate sets --json`; it has the first findings of each kind."""
    shown: Counter[SetFindingKind] = Counter()
    findings: list[Json] = []
    for f in audit.findings:
        shown[f.kind] += 1
        if shown[f.kind] <= MOST_SHOWN:
            findings.append(
                {
                    "rule": str(f.kind.rule),
                    "kind": str(f.kind),
                    **key_field(f.key),
                    "partition": f.partition,
                    "at": f.at,
                    "run": f.run,
                    "detail": f.detail,
                }
            )
    return {
        "v": VERSION,
        "kind": "sets",
        "topic": topic,
        "group": group,
        "at_rest": audit.at_rest,
        "complete": audit.complete,
        "keys": audit.keys,
        "records": audit.records,
        "applied": audit.applied,
        "unnumbered": audit.unnumbered,
        "chains": audit.chains,
        "dead": audit.dead,
        "sets": audit.sets,
        "adoptions": audit.adoptions,
        "unsettled": len(audit.unsettled),
        "counts": {str(kind): n for kind, n in sorted(audit.counts.items())},
        "findings": findings,
    }
