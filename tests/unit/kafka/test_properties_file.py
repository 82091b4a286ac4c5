"""The text of a Java properties file."""

from __future__ import annotations

import pytest

from trimtab.errors import BadFile
from trimtab.kafka.properties_file import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b ", {"a": "b "}),
        ("a\tb=c", {"a": "b=c"}),
        ("  a = b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("a=\nb:\n", {"a": "", "b": ""}),
        ("# a=1\n! b=2\n\n  # c=3\nd=4", {"d": "4"}),
        ("a=one,\\\n   two,\\\r\n\tthree\rb=2", {"a": "one,two,three", "b": "2"}),
        ("a=\\\n#not a comment", {"a": "#not a comment"}),
        ("# no continuation \\\na=1", {"a": "1"}),
        ("a=even\\\\\nb=1", {"a": "even\\", "b": "1"}),
        (r"a\ b\=c\:d=e", {"a b=c:d": "e"}),
        (r"a=tab\tnl\nq\"u\z", {"a": 'tab\tnl\nq"uz'}),
        (r"a=\u00e4\ud83d\ude00", {"a": "ä😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\", {"a": ""}),
        ("a=\x85b", {"a": "\x85b"}),
        (r"a=\ud83d!", {"a": "\ufffd!"}),
        (" \\\n  \\\r\n a=b", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, source="f") == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=1\nb=one,\\\n two\nc=\\u12", "f, line 4: \\\\u is not followed by four hexadecimal"),
        ("# c\r\n\r\n=value", "f, line 3: no key before the separator"),
        ("a=1\\\n2\nb=\0", "f, line 3: binary data"),
    ],
)
def test_an_error_names_the_file_and_the_line(text: str, complaint: str) -> None:
    with pytest.raises(BadFile, match=complaint):
        parse_properties(text, source="f")


def test_a_bad_escape_is_not_quoted_since_it_may_be_a_part_of_a_secret() -> None:
    with pytest.raises(BadFile) as caught:
        parse_properties("ssl.key.password=sesame\\uXYZW", source="f")

    assert "XYZ" not in caught.value.message
    assert caught.value.__suppress_context__  # the library's error quotes it
