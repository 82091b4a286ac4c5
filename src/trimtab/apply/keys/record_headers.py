"""The headers of a keyed topic ⇄ our values; names and numbers as in the contract.

Numbers are big-endian and have eight bytes; `tt-kind` has one. A FENCE that says below which offset
of its input nothing will be sent again has that offset in `tt-src`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import assert_never

from trimtab.apply.keys.message_sets import (
    CloseMarker,
    DataRecord,
    EndMarker,
    FenceMarker,
    KeyRecord,
    MarkerKind,
    OpenMarker,
    PartitionMarker,
    PlainRecord,
    StartMarker,
)
from trimtab.model.record import MARKER, Headers, Record

KIND, SHARD, GEN, SRC, SET = MARKER, "tt-shard", "tt-gen", "tt-src", "tt-set"
NEXT, TO, FROM, END = "tt-next", "tt-to", "tt-from", "tt-end"

_NUMBER = struct.Struct(">q")
_NAMES = frozenset({KIND, SHARD, GEN, SRC, SET, NEXT, TO, FROM, END})


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """A record whose headers cannot be read: it goes to the dead letters with this reason."""

    reason: str


def parse(record: Record) -> KeyRecord | PartitionMarker | MalformedRecord:
    """What a record of a keyed topic is; data carries the record itself as payload."""
    found = dict(record.headers)
    if KIND not in found and record.key is not None:
        try:  # almost every record: what is wrong with the others is told below
            (shard,) = _NUMBER.unpack(found[SHARD])
            (gen,) = _NUMBER.unpack(found[GEN])
            (src,) = _NUMBER.unpack(found[SRC])
            set_id = _NUMBER.unpack(found[SET])[0] if SET in found else None
            return DataRecord(shard=shard, gen=gen, src=src, set_id=set_id, payload=record)
        except (KeyError, TypeError, struct.error):
            pass
    if _NAMES.isdisjoint(found):
        return MalformedRecord("it has no key") if record.key is None else PlainRecord(record)
    try:
        return _parsed(record, found)
    except _BadHeader as bad:
        return MalformedRecord(str(bad))


class _BadHeader(Exception):
    pass


def _parsed(record: Record, found: dict[str, bytes]) -> KeyRecord | PartitionMarker:
    shard, gen = _number(found, SHARD), _number(found, GEN)
    if KIND not in found:
        set_id = _number(found, SET) if SET in found else None
        src = _number(found, SRC)
        _need_key(record)
        return DataRecord(shard=shard, gen=gen, src=src, set_id=set_id, payload=record)
    marker = _kind(found[KIND])
    match marker:
        case MarkerKind.END:
            _need_key(record)
            return EndMarker(
                shard=shard,
                gen=gen,
                set_id=_number(found, SET),
                next_set=_number(found, NEXT),
                to=_number(found, TO),
            )
        case MarkerKind.START:
            _need_key(record)
            return StartMarker(
                shard=shard,
                gen=gen,
                set_id=_number(found, SET),
                source=_number(found, FROM),
                end_offset=_number(found, END),
            )
        case MarkerKind.FENCE:
            committed = _number(found, SRC) if SRC in found else None
            return FenceMarker(shard=shard, gen=gen, committed=committed)
        case MarkerKind.CLOSE:
            return CloseMarker(shard, gen)
        case MarkerKind.OPEN:
            return OpenMarker(shard, gen)
        case _:
            assert_never(marker)


def _need_key(record: Record) -> None:
    if record.key is None:
        raise _BadHeader("it has no key")


def _kind(value: bytes) -> MarkerKind:
    try:
        (number,) = value
        return MarkerKind(number)
    except (TypeError, ValueError):  # a header may have a null value
        raise _BadHeader(f"{KIND} is {value!r}, which is no kind of marker") from None


def _number(found: dict[str, bytes], name: str) -> int:
    value = found.get(name)
    if value is None:
        raise _BadHeader(f"{name} is missing")
    if len(value) != 8:
        raise _BadHeader(f"{name} has {len(value)} bytes instead of 8")
    return int.from_bytes(value, "big", signed=True)


def headers_for(record: DataRecord | EndMarker | StartMarker | PartitionMarker) -> Headers:
    """The headers that a gateway adds to a record, or that a marker consists of."""
    common = ((SHARD, _bytes(record.shard)), (GEN, _bytes(record.gen)))
    match record:
        case DataRecord():
            src = (SRC, _bytes(record.src))
            return (*common, src) if record.set_id is None else (*common, src, _set(record.set_id))
        case EndMarker():
            place = ((NEXT, _bytes(record.next_set)), (TO, _bytes(record.to)))
            return (_kind_of(MarkerKind.END), *common, _set(record.set_id), *place)
        case StartMarker():
            place = ((FROM, _bytes(record.source)), (END, _bytes(record.end_offset)))
            return (_kind_of(MarkerKind.START), *common, _set(record.set_id), *place)
        case FenceMarker():
            committed = () if record.committed is None else ((SRC, _bytes(record.committed)),)
            return (_kind_of(MarkerKind.FENCE), *common, *committed)
        case CloseMarker():
            return (_kind_of(MarkerKind.CLOSE), *common)
        case OpenMarker():
            return (_kind_of(MarkerKind.OPEN), *common)
        case _:
            assert_never(record)


def _kind_of(kind: MarkerKind) -> tuple[str, bytes]:
    return (KIND, bytes([kind]))


def _set(set_id: int) -> tuple[str, bytes]:
    return (SET, _bytes(set_id))


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)
