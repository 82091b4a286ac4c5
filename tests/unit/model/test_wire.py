"""What a field can declare, and how it is then read, refused and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Generic, NewType, TypeVar

import pytest

from trimtab.errors import BadFile
from trimtab.model import wire
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import Broker, BrokerId, TopicPartition
from trimtab.model.json_reader import Node, parse
from trimtab.model.wire import (
    NOT_WRITTEN,
    OMIT_EMPTY,
    REQUIRED,
    TIDY,
    Amount,
    Count,
    Positive,
    Wire,
    are_distinct,
)

T = TypeVar("T")
Id = NewType("Id", int)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(StrEnum):
    S = "s"
    M = "m"
    L = "l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    id: Annotated[Id, Wire(least=0)]
    load: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent(Generic[T]):
    first: int
    last: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Parent[Inner]):
    source: Annotated[Count | None, Wire(name="from"), Wire(before="last")]
    window_s: Annotated[Positive, TIDY] = 1.0
    owners: Annotated[Assignment, OMIT_EMPTY] = field(default_factory=Assignment)
    by_number: Mapping[int, Inner] = field(default_factory=dict)
    lag: Annotated[Mapping[str, Count | None], REQUIRED] = field(default_factory=dict)
    key: bytes | None = None
    colour: Colour = Colour.RED
    size: Annotated[Size, Wire(noun="size")] = Size.M
    names: Annotated[tuple[str, ...], Wire(rules=((are_distinct, "has one twice"),))] = ()
    sorted: Annotated[tuple[Inner, ...], Wire(sorted_by="id", noun="part")] = ()
    gap: Annotated[float, Wire(as_float=True)] = 0
    more: Annotated[Mapping[str, Any], Wire(any_json=True)] = field(default_factory=dict)
    note: Annotated[frozenset[str], NOT_WRITTEN] = frozenset()


LEAST = {"first": 1, "lag": {}}


def node(**changes: Any) -> Node:
    return parse(json.dumps(LEAST | changes), origin="f.json")


def test_what_is_absent_or_null_is_the_default_or_none() -> None:
    assert wire.read(Outer, node()) == Outer(first=1, source=None)
    assert wire.read(Outer, node(names=None, gap=None, key=None)) == Outer(first=1, source=None)


def test_a_value_is_written_in_the_declared_order_and_read_again() -> None:
    value = Outer(
        first=1,
        last=(Inner(id=Id(4), load=2.0), Inner(id=Id(3))),
        source=7,
        window_s=30.0,
        owners=Assignment({TopicPartition("t", 10): 0, TopicPartition("t", 2): 1}),
        by_number={10: Inner(id=Id(1)), 2: Inner(id=Id(2))},
        lag={"g": 3, "h": None},
        key="größe".encode(),
        colour=Colour.BLUE,
        size=Size.L,
        names=("b", "a"),
        sorted=(Inner(id=Id(0)),),
        gap=2,
        more={"any": [1, None]},
    )
    written = wire.write(value)

    assert json.dumps(written, ensure_ascii=False) == (
        '{"first": 1, "from": 7, "last": [{"id": 4, "load": 2.0}, {"id": 3, "load": null}], '
        '"window_s": 30, "owners": {"t": {"2": 1, "10": 0}}, '
        '"by_number": {"2": {"id": 2, "load": null}, "10": {"id": 1, "load": null}}, '
        '"lag": {"g": 3, "h": null}, "key": "größe", "colour": "blue", "size": "l", '
        '"names": ["b", "a"], "sorted": [{"id": 0, "load": null}], "gap": 2.0, '
        '"more": {"any": [1, null]}}'
    )
    assert wire.read(Outer, parse(json.dumps(written), origin="f.json")) == value


def test_bytes_that_are_not_text_are_base64_in_the_same_place() -> None:
    written = wire.write(Outer(first=1, source=None, key=b"\xff"))

    assert list(written)[5:8] == ["lag", "key_b64", "colour"]
    assert wire.read(Outer, node(key_b64="/w==")).key == b"\xff"
    assert wire.write(Outer(first=1, source=None))["key"] is None


def test_what_is_empty_is_left_out_only_if_declared() -> None:
    written = wire.write(Outer(first=0, source=None))

    assert "owners" not in written
    assert (written["first"], written["from"], written["lag"]) == (0, None, {})


def test_an_empty_text_that_could_be_none_is_written() -> None:
    assert wire.write(Broker(id=BrokerId(1), rack=""))["rack"] == ""
    assert "rack" not in wire.write(Broker(id=BrokerId(1), rack=None))


def test_integers_stay_exact_and_whole_floats_are_integers_where_integers_are_wanted() -> None:
    found = wire.read(Outer, node(first=5.0, window_s=2**60 + 1))

    assert (repr(found.first), found.window_s) == ("5", 2**60 + 1)


def test_the_values_of_a_tuple_are_sorted_where_that_is_declared() -> None:
    found = wire.read(Outer, node(sorted=[{"id": 2}, {"id": 1}], last=[{"id": 2}, {"id": 1}]))

    assert [inner.id for inner in found.sorted] == [1, 2]
    assert [inner.id for inner in found.last] == [2, 1]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"first": "1"}, "first: should be a number, is text"),
        ({"first": None}, "first: should be a number, is null"),
        ({"first": 2**63}, f"first: is {2**63}, the maximum is {2**63 - 1}"),
        ({"from": -1}, "from: is negative: -1"),
        ({"window_s": 0}, "window_s: should be above 0, is 0"),
        ({"window_s": float("nan")}, "window_s: should be a finite number, is nan"),
        ({"lag": None}, "lag: should be an object, is null"),
        ({"lag": {"g": 0.5}}, "lag.g: should be a whole number, is 0.5"),
        ({"owners": {"t": {"01": 1}}}, 'owners.t: "01" is not an index such as 0, 1, 2'),
        ({"by_number": {"2": {}}}, 'by_number.2: has no "id"'),
        ({"last": {}}, "last: should be an array, is an object"),
        ({"last": [{"id": 1}, {"id": -1}]}, "last[1].id: is negative: -1"),
        ({"colour": "x"}, "colour: should be red or blue, is x"),
        ({"colour": []}, "colour: should be red or blue, is []"),
        ({"size": "xl"}, "size: unknown size xl; this release supports s, m, l"),
        ({"names": ["a", "a"]}, "names: has one twice"),
        ({"names": ["\ud800"]}, 'names[0]: "\\ud800" is not valid Unicode'),
        ({"sorted": [{"id": 1}, {"id": 1}]}, "sorted[1]: part 1 appears twice"),
        ({"key_b64": "?"}, "key_b64: is not valid base64"),
    ],
)
def test_an_error_names_the_file_the_place_and_what_was_wanted(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadFile) as raised:
        wire.read(Outer, node(**changes))

    assert raised.value.message == f"f.json: {complaint}"


def test_what_is_required_is_named_when_it_is_missing() -> None:
    with pytest.raises(BadFile, match=r'f\.json: has no "lag"'):
        wire.read(Outer, parse('{"first": 1}', origin="f.json"))


def test_unknown_fields_are_warnings_in_files_and_ignored_in_records() -> None:
    changes: dict[str, Any] = {"v": 1, "note": 1, "last": [{"id": 1, "lod": 2}], "key_b64": ""}
    file, record = node(**changes), node(**changes)

    wire.read_file(Outer, file, "v")
    wire.read(Outer, record)

    assert record.warnings == []
    assert file.warnings == [
        'f.json: field "note" is unknown and was ignored',
        'f.json: field "lod" in last[0] is unknown and was ignored',
    ]
