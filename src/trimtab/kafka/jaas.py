"""Parses the JAAS line of `sasl.jaas.config`: one login module with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """A login module of a JAAS line, with its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)


_JAAS_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""  # separators
    r"""|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"""|(?P<sign>[=;])|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


def parse_jaas(line: str, *, source: str) -> JaasLogin:
    """Parses `module flag name="value" …;` with exactly one module."""
    wrong = ConfigError(
        f"{source}: invalid sasl.jaas.config.",
        hint='Expected: MODULE required username="…" password="…"; with the semicolon.',
    )
    tokens = list(_jaas_tokens(line, wrong))
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise wrong
    (_, module), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in {"required", "requisite", "sufficient", "optional"} or len(rest) % 3:
        raise wrong
    options = {}
    for name, sign, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if name[0] != "text" or sign != ("sign", "=") or value[0] != "text":
            raise wrong
        options[name[1]] = value[1]
    return JaasLogin(module, options)


def _jaas_tokens(line: str, wrong: ConfigError) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        token = _JAAS_TOKEN.match(line, at)
        if token is None:
            raise wrong
        at = token.end()
        if token["sign"]:
            yield "sign", token["sign"]
        elif token["word"]:
            yield "text", token["word"]
        else:
            quoted = token["double"] if token["double"] is not None else token["single"]
            if quoted is not None:
                yield "text", _JAAS_ESCAPE.sub(_jaas_escape, quoted)


def _jaas_escape(found: re.Match[str]) -> str:
    if found[1].isdigit() and found[1] not in "89":
        return chr(int(found[1], 8))
    return _JAAS_ESCAPES.get(found[1], found[1])
