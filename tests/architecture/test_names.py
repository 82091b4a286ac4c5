"""One public name for one thing: no type of the product or the laboratory shares its name."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests import ROOT


def public_types() -> dict[str, list[str]]:
    """Every public class at the top of a module, and the modules that have one of that name."""
    found = defaultdict(list)
    for file in sorted((ROOT / "src").rglob("*.py")):
        if file.stem.endswith(("_pb2", "_pb2_grpc")):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(ROOT / "src")))
    return found


def test_a_public_type_has_a_name_of_its_own() -> None:
    types = public_types()

    assert len(types) > 300
    assert {name: files for name, files in types.items() if len(files) > 1} == {}
