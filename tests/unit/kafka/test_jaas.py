"""The line of `sasl.jaas.config`."""

from __future__ import annotations

import pytest

from trimtab.errors import ConfigError
from trimtab.kafka.jaas import parse_jaas


@pytest.mark.parametrize(
    "line",
    [
        "",
        "M required",
        "M required;",
        "M required a=b",
        "M perhaps a=b;",
        "M required a=b; N required c=d;",
        "M required a b;",
        'M required a="b;',
    ],
)
def test_a_jaas_line_holds_one_module_and_ends_with_a_semicolon(line: str) -> None:
    if line == "M required;":
        assert parse_jaas(line, source="f").options == {}
    else:
        with pytest.raises(ConfigError, match=r"invalid sasl\.jaas\.config"):
            parse_jaas(line, source="f")


def test_jaas_text_may_hold_comments_and_escapes() -> None:
    login = parse_jaas(
        'a.B /* who */ required // what\n user="\\101\\t\\"" pass=\'it"s\';', source="f"
    )

    assert login.module == "a.B"
    assert login.options == {"user": 'A\t"', "pass": 'it"s'}
