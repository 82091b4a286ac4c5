"""Verbs are short: they parse, call a service and print."""

from __future__ import annotations

import ast
from pathlib import Path

from tests import ROOT

LONGEST = 60


def long_functions(source: str) -> list[str]:
    """The functions of more than `LONGEST` lines."""
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > LONGEST
    ]


def modules() -> list[Path]:
    return [
        *(ROOT / "src/trimtab/cli").glob("*.py"),
        *(ROOT / "src/trimtab/services").glob("*.py"),
        *(ROOT / "src/trimtab_lab/cli").glob("*.py"),
    ]


def test_no_function_of_the_command_line_is_long() -> None:
    found = {str(file.relative_to(ROOT)): long_functions(file.read_text()) for file in modules()}

    assert len(found) > 30
    assert {file: long for file, long in found.items() if long} == {}


def test_a_long_function_would_be_noticed() -> None:
    body = "    x = 1\n" * LONGEST

    assert long_functions(f"def verb():\n{body}") == [f"verb: {LONGEST + 1}"]
    assert long_functions(f"def verb():\n{body[10:]}") == []
