r"""The text of a Java properties file, as keys and values; errors name the file and the line.

`javaproperties` reads it as Java does. Refused beyond that, because it is a mistake in a file of
client properties: binary data, and a line without a key.

>>> parse_properties("# who\nuser : al\\\n   ice\nempty\n", source="f")
{'user': 'alice', 'empty': ''}
"""

from __future__ import annotations

import re

from trimtab.errors import BadFile

_LINE_END = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str, *, source: str) -> dict[str, str]:
    """The properties; of a repeated key the last value counts."""
    from javaproperties import InvalidUEscapeError, KeyValue, parse

    if (at := text.find("\0")) >= 0:
        raise BadFile(
            f"{source}, line {1 + _lines(text[:at])}: binary data.",
            hint="--command-config takes a text file of Kafka client properties.",
        )
    values: dict[str, str] = {}
    number = 1  # of the first line of the next element: the parser stops there if it fails
    try:
        for element in parse(text):
            if isinstance(element, KeyValue):
                if not element.key:
                    raise BadFile(f"{source}, line {number}: no key before the separator.")
                values[_valid(element.key)] = _valid(element.value)
            number += _lines(element.source)
    except InvalidUEscapeError:
        raise BadFile(
            f"{source}, line {number}: \\u is not followed by four hexadecimal digits.",
            hint="Write a literal backslash twice in a properties file.",
        ) from None  # it quotes a piece of the value, which may be a secret
    return values


def _lines(text: str) -> int:
    return len(_LINE_END.findall(text))


def _valid(text: str) -> str:
    """Half of a surrogate pair, which Java allows in a string, cannot be encoded: replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
