"""Value ⇄ JSON, as the fields of the value declare it.

The type of a field says what is read and written: number, text, flag, choice, tuple, map or another
value. `Annotated` adds limits, other names and what may be left out. A field that has a default or
may be None may be absent or null. A map by partition is `{topic: {"0": …}}`, a map by number
`{"0": …}`; bytes are text under the name of their field, or base64 under `<name>_b64`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from trimtab.model.json_reader import Node
from trimtab.model.scalars import (
    Read,
    choice_reader,
    key_field,
    number_reader,
    read_any,
    read_base64,
    read_bytes,
    read_flag,
    read_text,
    tidied,
    tidy,
)

_T = TypeVar("_T")
_ReadObject = Callable[[Node, tuple[str, ...]], Any]
"""Reads an object; these names are known too, so they give no warning."""
_Write = Callable[[Any], Any]

# ---------------------------------------------------------------- declarations of fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What a field declares beside its type."""

    name: str | None = None  # in JSON, if it is not the field's
    before: str | None = None  # the field of a parent class before which it is written
    least: int | None = None  # the smallest number allowed
    above: int | None = None  # the number that it must be above
    noun: str | None = None  # what a choice of a newer release is called, or one of a sorted tuple
    sorted_by: str | None = None  # the attribute in which the values of a tuple differ
    rules: tuple[tuple[Callable[[Any], object], str], ...] = ()  # tests, with their messages
    required: bool = False  # it must be there although the field has a default
    omit_empty: bool = False  # it is left out if it is None, or empty and cannot be None
    not_written: bool = False  # it is neither read nor written
    any_json: bool = False  # it is read as it is
    tidy: bool = False  # whole floats are written as integers
    as_float: bool = False  # it is written as a float, also if it is an integer


Count = Annotated[int, Wire(least=0)]
Amount = Annotated[float, Wire(least=0)]
Positive = Annotated[float, Wire(above=0)]
OMIT_EMPTY, REQUIRED, TIDY = Wire(omit_empty=True), Wire(required=True), Wire(tidy=True)
NOT_WRITTEN = Wire(not_written=True)

# ---------------------------------------------------------------- reading and writing


def read(cls: type[_T], node: Node) -> _T:
    """Reads a value from a record; unknown fields are ignored."""
    value: _T = _compiled(cls, False).read(node, ())
    return value


def read_file(cls: type[_T], node: Node, *known: str) -> _T:
    """Reads a value from a file; adds a warning for every unknown field, also in values below."""
    value: _T = _compiled(cls, True).read(node, known)
    return value


def write(value: object) -> dict[str, Any]:
    """The value as JSON."""
    written: dict[str, Any] = _compiled(type(value), False).write(value)
    return written


def are_distinct(values: Collection[object]) -> bool:
    """Whether no value occurs twice."""
    return len(set(values)) == len(values)


def by_partition(values: Mapping[Any, Any]) -> dict[str, Any]:
    """`{topic: {"0": value}}`, in order."""
    out: dict[str, Any] = {}
    for partition in sorted(values):
        topic, number = partition
        out.setdefault(topic, {})[str(number)] = values[partition]
    return out


# ---------------------------------------------------------------- classes


class _Compiled(NamedTuple):
    """How a class is read and written."""

    read: _ReadObject
    write: _Write


class _Shape(NamedTuple):
    """How a type is read and written; `read` is not asked for the null of an optional type."""

    read: Read
    write: _Write | None = None
    optional: bool = False


class _Field(NamedTuple):
    """A field; `absent` gives its value if it is absent or null, None means the default."""

    attribute: str
    name: str
    shape: _Shape
    absent: Callable[[Node], Any] | None
    said: Wire

    @property
    def is_bytes(self) -> bool:
        """Whether it has another name as base64."""
        return self.shape.read is read_bytes


def _compile(cls: Any, warn: bool) -> _Compiled:
    declared = _declared(cls, warn=warn)
    return _Compiled(_reader(cls, declared, warn=warn), _writer(declared))


_compiled: Callable[[Any, bool], _Compiled] = cache(_compile)


def _reader(cls: Any, declared: list[_Field], *, warn: bool) -> _ReadObject:
    reads = tuple((f.attribute, f.name, f.shape.read, f.absent) for f in declared)
    known = {f.name for f in declared} | {f"{f.name}_b64" for f in declared if f.is_bytes}

    def read(node: Node, more: tuple[str, ...]) -> Any:
        found = node.object()
        if warn and not found.keys() <= known:
            node.known(*known, *more)
        given = {}
        for attribute, name, read_one, absent in reads:
            value = found.get(name)
            if value is not None:
                given[attribute] = read_one(node, name, value)
            elif absent is not None:
                given[attribute] = absent(node)
        return cls(**given)

    return read


def _with_key(out: dict[str, Any], name: str) -> dict[str, Any]:
    """Writes bytes as text, or in the same place under the name for base64."""
    key = out[name]
    try:
        out[name] = None if key is None else key.decode()
    except UnicodeDecodeError:
        encoded = key_field(key, name)
        return {k: v for n in out for k, v in (encoded if n == name else {n: out[n]}).items()}
    return out


_EMPTY: tuple[Any, ...] = (None, "", [], {})


def _writer(unordered: list[_Field]) -> _Write:
    declared: list[_Field] = []
    for new in unordered:
        places = (i for i, other in enumerate(declared) if other.name == new.said.before)
        declared.insert(next(places, len(declared)), new)
    names = tuple(f.name for f in declared)
    values = attrgetter(*(f.attribute for f in declared), "__class__")  # a tuple also for one field
    writes = tuple((f.name, f.shape.write) for f in declared if f.shape.write is not None)
    omitted = tuple(
        (f.name, (None,) if f.shape.optional else _EMPTY) for f in declared if f.said.omit_empty
    )
    keys = tuple(f.name for f in declared if f.is_bytes)

    def write(value: Any) -> dict[str, Any]:
        out: dict[str, Any] = dict(zip(names, values(value), strict=False))
        for name, write_one in writes:
            out[name] = write_one(out[name])
        for name, empty in omitted:
            if out[name] in empty:
                del out[name]
        for name in keys:
            out = _with_key(out, name)
        return out

    return write


def _declared(cls: Any, *, warn: bool) -> list[_Field]:
    """The fields of a dataclass or a named tuple."""
    made: list[_Field] = []
    has_default = (
        dict.fromkeys(cls._fields, False)
        if issubclass(cls, tuple)
        else {f.name: (f.default, f.default_factory) != (MISSING, MISSING) for f in fields(cls)}
    )
    for attribute, hint in _hints(cls, has_default).items():
        said = _bare(hint)[1]
        if said.not_written:
            continue
        name, shape = said.name or attribute, _shape(hint, warn=warn)
        needed = said.required or shape.read is read_bytes or not has_default[attribute]
        absent = _absent(name, shape) if needed else None
        made.append(_Field(attribute, name, shape, absent, said))
    return made


def _hints(cls: Any, attributes: Iterable[str]) -> dict[str, Any]:
    """The types of the fields; type variables of a generic parent are replaced."""
    given: dict[Any, Any] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        parameters = getattr(get_origin(base), "__parameters__", ())
        given |= dict(zip(parameters, get_args(base), strict=False))
    hints = get_type_hints(cls, include_extras=True)
    for name, hint in hints.items():
        if isinstance(hint, TypeVar):
            hints[name] = given[hint]
        elif getattr(hint, "__parameters__", ()):
            hints[name] = hint[tuple(given[p] for p in hint.__parameters__)]
    return {name: hints[name] for name in attributes}


def _absent(name: str, shape: _Shape) -> Callable[[Node], Any]:
    def needed(node: Node) -> Any:
        return shape.read(node, name, node.need(name).value)

    if shape.read is read_bytes:
        return lambda node: read_base64(node, name, optional=shape.optional)
    return (lambda _: None) if shape.optional else needed


# ---------------------------------------------------------------- types of fields


_NOTHING = Wire()


def _bare(hint: Any) -> tuple[Any, Wire]:
    """The type itself, and all that is declared with it."""
    if isinstance(hint, NewType):
        return hint.__supertype__, _NOTHING
    if get_origin(hint) is not Annotated:
        return hint, _NOTHING
    kind, said = _bare(hint.__origin__)
    for more in hint.__metadata__:
        new = {f.name: getattr(more, f.name) for f in fields(Wire)}
        said = replace(said, **{n: v for n, v in new.items() if v != getattr(_NOTHING, n)})
    return kind, said


def _shape(hint: Any, *, warn: bool) -> _Shape:
    kind, said = _bare(hint)
    shape = _unmarked(kind, said, warn=warn)
    for test, message in said.rules:
        shape = shape._replace(read=_ruled(shape.read, test, message))
    if said.sorted_by:
        shape = shape._replace(read=_sorted(shape.read, said.sorted_by, said.noun))
    if said.any_json:
        shape = shape._replace(read=read_any)
    if said.tidy:
        shape = shape._replace(write=tidy if kind is float else tidied)
    return shape._replace(write=float) if said.as_float else shape


def _unmarked(kind: Any, said: Wire, *, warn: bool) -> _Shape:
    origin, args = get_origin(kind), get_args(kind)
    simple = {Any: read_any, str: read_text, bool: read_flag, bytes: read_bytes}
    if kind in (int, float):
        shape = _Shape(number_reader(said.least, said.above, whole=kind is int))
    elif kind in simple:
        shape = _Shape(simple[kind])
    elif origin in (Union, UnionType):
        shape = _optional(_shape(args[0], warn=warn))
    elif origin is tuple:
        shape = _tuple(_shape(args[0], warn=warn))
    elif origin is Mapping:
        shape = _mapping(args[0], _shape(args[1], warn=warn))
    elif issubclass(kind, StrEnum):
        shape = _Shape(choice_reader(kind, said.noun), str)
    elif issubclass(kind, Mapping):
        base = _shape(next(b for b in kind.__orig_bases__ if get_origin(b) is Mapping), warn=warn)
        shape = base._replace(read=lambda *at: kind(base.read(*at)))
    else:
        body = _compiled(kind, warn)
        shape = _Shape(lambda node, step, v: body.read(node.at(step, v), ()), body.write)
    return shape


def _optional(shape: _Shape) -> _Shape:
    to = shape.write
    write = None if to is None else lambda value: None if value is None else to(value)
    return _Shape(shape.read, write, optional=True)


def _ruled(read: Read, test: Callable[[Any], object], message: str) -> Read:
    def checked(parent: Node, step: str | int, value: Any) -> Any:
        found = read(parent, step, value)
        if not test(found):
            parent.at(step, value).fail(message)
        return found

    return checked


def _sorted(read: Read, attribute: str, noun: str | None) -> Read:
    def checked(parent: Node, step: str | int, value: Any) -> tuple[Any, ...]:
        found: dict[Any, Any] = {}
        for i, item in enumerate(read(parent, step, value)):
            name = getattr(item, attribute)
            if name in found:
                parent.at(step, value).at(i, item).fail(f"{noun} {name} appears twice")
            found[name] = item
        return tuple([found[name] for name in sorted(found)])

    return checked


def _tuple(item: _Shape) -> _Shape:
    def read(parent: Node, step: str | int, value: Any) -> tuple[Any, ...]:
        node = parent.at(step, value)
        if value.__class__ is not list:
            node.list()
        return tuple([item.read(node, i, v) for i, v in enumerate(value)])

    to = item.write
    return _Shape(read, list if to is None else lambda values: [to(v) for v in values])


def _mapping(key: Any, item: _Shape) -> _Shape:
    """A map by name, by number, or by topic and partition."""

    def read(parent: Node, step: str | int, value: Any) -> dict[Any, Any]:
        node, found = parent.at(step, value), {}
        for name, below in node.object().items():
            null = below is None and item.optional
            named = node.index(name) if key is int else name
            found[named] = None if null else item.read(node, name, below)
        return found

    def write(values: Mapping[Any, Any]) -> dict[str, Any]:
        made = values if to is None else {k: to(v) for k, v in values.items()}
        return {str(k): made[k] for k in sorted(made)} if key is int else by_partition(made)

    to = item.write
    if key is str:
        return _Shape(read, dict if to is None else lambda of: {k: to(v) for k, v in of.items()})
    if key is int:
        return _Shape(read, write)
    by_topic = _mapping(str, _mapping(int, item)).read
    return _Shape(
        lambda *at: {key(t, n): v for t, of in by_topic(*at).items() for n, v in of.items()}, write
    )
