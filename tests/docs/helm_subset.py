"""Renders our chart without Helm: the few forms of its templates and of its schema that we use.

A form or keyword that is not known here raises, so a chart that this renders uses nothing else.
That Helm itself takes the chart is not proved by it; Helm 3.16 did when this was written.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from tests import ROOT

CHART = ROOT / "deploy" / "helm" / "trimtab"

_WORD = re.compile(r'"(?:\\.|[^"\\])*"|[()|]|[^\s()|]+')
_ACTION = re.compile(r"(\s*\{\{-\s.*?\}\}|\{\{\s.*?\}\})", re.DOTALL)


# ---------------------------------------------------------------- templates


def rendered(text: str, scope: Mapping[str, Any]) -> str:
    """A template with its values."""
    parts = _ACTION.split(text)
    out, rest = _block(parts, _Scope(scope), scope)
    assert not rest, f"an end too many before {rest[:3]}"
    return out


class _Scope:
    """What a template can name: the values, and the variables set so far."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.variables: dict[str, Any] = {}

    def value(self, path: str, dot: Any) -> Any:
        if path == ".":
            return dot
        first, *names = path.split(".")
        found = self.variables[first] if first else self.root
        for name in names:
            found = None if found is None else found.get(name)
        return found


def _block(
    parts: list[str], scope: _Scope, dot: Any, *, live: bool = True
) -> tuple[str, list[str]]:
    """Renders up to the `end` or `else` of this block; returns the text and the rest.

    One that is not live is only passed over.
    """
    out = ""
    while parts:
        part, *parts = parts
        words = _WORD.findall(part.strip().strip("{}").strip("- ")) if "{{" in part else []
        match words:
            case []:
                out += part
            case ["end"] | ["else"]:
                return out, [part, *parts]
            case ["if", *test]:
                met = live and bool(_pipeline(test, scope, dot))
                yes, rest = _block(parts, scope, dot, live=met)
                no = ""
                if "else" in rest[0]:
                    no, rest = _block(rest[1:], scope, dot, live=live and not met)
                out += yes if met else no
                parts = rest[1:]
            case ["range", *items]:
                after = _block(parts, scope, None, live=False)[1]
                for item in (_pipeline(items, scope, dot) or ()) if live else ():
                    out += _block(parts, scope, item)[0]
                parts = after[1:]
            case _ if not live:
                pass
            case [name, ":=", *given] if name.startswith("$"):
                scope.variables[name] = _pipeline(given, scope, dot)
            case _:
                out += _shown(_pipeline(words, scope, dot))
    return out, []


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _pipeline(words: list[str], scope: _Scope, dot: Any) -> Any:
    """The value of an expression; what stands before a `|` is the last argument after it."""
    stack: list[list[Any]] = [[]]
    piped: list[list[Any]] = [[]]
    for word in words:
        match word:
            case "(":
                stack.append([])
                piped.append([])
            case ")":
                result = _called(stack.pop(), piped.pop())
                stack[-1].append(result)
            case "|":
                piped[-1] = [_called(stack[-1], piped[-1])]
                stack[-1] = []
            case _:
                stack[-1].append(_operand(word, scope, dot))
    return _called(stack[0], piped[0])


def _operand(word: str, scope: _Scope, dot: Any) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word[0] in ".$":
        return scope.value(word, dot)
    return int(word) if word.isdigit() else _FUNCTIONS[word]


def _called(words: list[Any], piped: list[Any]) -> Any:
    first, *rest = words
    if not callable(first):
        assert not rest, words
        return first
    return first(*rest, *piped)


class Refused(Exception):
    """What a template itself refuses."""


def _fail(what: str) -> None:
    raise Refused(what)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *all_: next((x for x in all_ if not x), all_[-1]),
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "default": lambda fallback, given: given or fallback,
    "eq": lambda a, b: a == b,
    "fail": _fail,
    "gt": lambda a, b: a > b,
    "int": int,
    "kindIs": lambda kind, value: {"invalid": value is None}[kind],
    "lookup": lambda *_: {},
    "nindent": lambda depth, text: "".join(f"\n{' ' * depth}{x}" for x in text.splitlines()),
    "not": lambda value: not value,
    "printf": lambda text, *given: text % given,
    "quote": lambda text: json.dumps(_shown(text)),
    "regexMatch": lambda pattern, text: re.search(pattern, text) is not None,
    "randAlphaNum": lambda length: "x" * length,
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
}


# ---------------------------------------------------------------- the chart

Documents = dict[tuple[str, str], dict[str, Any]]


def documents(texts: list[str]) -> Documents:
    """All objects by kind and name."""
    found = [part for text in texts for part in yaml.safe_load_all(text) if part]
    named = {(part["kind"], part["metadata"]["name"]): part for part in found}
    assert len(named) == len(found), "two objects of one name"
    return named


def default_values() -> dict[str, Any]:
    """The values of the chart as shipped."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def merged(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others laid over them, as `helm --values` does."""
    both = dict(values)
    for name, value in changed.items():
        inner = both.get(name)
        deeper = isinstance(value, Mapping) and isinstance(inner, Mapping)
        both[name] = merged(inner, value) if deeper else value  # type: ignore[arg-type]
    return both


def chart(
    changed: Mapping[str, Any], *, release: str = "trimtab", namespace: str = "trimtab"
) -> Documents:
    """What the chart makes of these values, which must agree with its schema."""
    values = merged(default_values(), changed)
    wrong = refusals(values)
    assert not wrong, wrong
    scope = {"Values": values, "Release": {"Name": release, "Namespace": namespace}}
    templates = sorted((CHART / "templates").glob("*.yaml"))
    return documents([rendered(path.read_text(), scope) for path in templates])


# ---------------------------------------------------------------- the schema


def refusals(values: Any) -> list[str]:
    """What the schema of the chart says against these values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    return list(_refusals(values, schema, schema, "values"))


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def _refusals(value: Any, rule: Mapping[str, Any], root: Any, at: str) -> list[str]:
    assert "$ref" not in rule or len(rule) == 1, "Helm ignores what stands beside a $ref"
    found: list[str] = []
    for word, given in rule.items():
        found += _KEYWORDS[word](value, given, rule, root, at)
    return found


def _that(is_so: bool, at: str, what: str) -> list[str]:
    return [] if is_so else [f"{at}: {what}"]


def _ref(value: Any, given: str, _: Any, root: Any, at: str) -> list[str]:
    return _refusals(value, root["definitions"][given.rpartition("/")[2]], root, at)


def _type(value: Any, given: Any, _rule: Any, _root: Any, at: str) -> list[str]:
    kinds = given if isinstance(given, list) else [given]
    return _that(any(_TYPES[kind](value) for kind in kinds), at, f"is not {kinds}")


def _properties(value: Any, given: Any, _: Any, root: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    named = [n for n in given if n in value]
    return [x for n in named for x in _refusals(value[n], given[n], root, f"{at}.{n}")]


def _additional(value: Any, given: Any, rule: Any, root: Any, at: str) -> list[str]:
    more = [n for n in value if n not in rule.get("properties", {})]
    if given is False:
        return _that(not more, at, f"has no {more}")
    return [x for n in more for x in _refusals(value[n], given, root, f"{at}.{n}")]


def _items(value: Any, given: Any, _: Any, root: Any, at: str) -> list[str]:
    listed = value if isinstance(value, list) else []
    return [x for i, v in enumerate(listed) for x in _refusals(v, given, root, f"{at}[{i}]")]


def _number(check: Callable[[float, float], bool]) -> Callable[..., list[str]]:
    def checked(value: Any, given: Any, _rule: Any, _root: Any, at: str) -> list[str]:
        is_number = _TYPES["number"](value)
        return _that(not is_number or check(value, given), at, f"{value} against {given}")

    return checked


def _pattern(value: Any, given: str, _rule: Any, _root: Any, at: str) -> list[str]:
    fits = not isinstance(value, str) or re.search(given, value) is not None
    return _that(fits, at, f"{value!r} does not match {given}")


def _longer(value: Any, given: int, _rule: Any, _root: Any, at: str) -> list[str]:
    return _that(not isinstance(value, str | list) or len(value) >= given, at, "is too short")


def _if(value: Any, given: Any, rule: Any, root: Any, at: str) -> list[str]:
    return [] if _refusals(value, given, root, at) else _refusals(value, rule["then"], root, at)


_KEYWORDS: Mapping[str, Callable[..., list[str]]] = {
    "$schema": lambda *_: [],
    "title": lambda *_: [],
    "definitions": lambda *_: [],
    "$ref": _ref,
    "if": _if,
    "then": lambda *_: [],  # looked at with its `if`
    "type": _type,
    "enum": lambda v, given, _rule, _root, at: _that(v in given, at, f"{v!r} is not in {given}"),
    "required": lambda v, given, _rule, _root, at: _that(
        all(name in v for name in given), at, f"needs {given}"
    ),
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": lambda v, given, _rule, root, at: [
        x for name in v for x in _refusals(name, given, root, f"{at}.{name}")
    ],
    "items": _items,
    "pattern": _pattern,
    "minLength": _longer,
    "minItems": _longer,
    "minimum": _number(lambda v, least: v >= least),
    "maximum": _number(lambda v, most: v <= most),
    "exclusiveMinimum": _number(lambda v, least: v > least),
}
