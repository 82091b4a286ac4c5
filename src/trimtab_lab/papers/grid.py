"""Cells of a sweep: parameters in, figures out, and a key that tells whether a result is current.

Why      Results of hundreds of runs are kept, but are invalid once the code has changed.
Promise  A cell's key is a hash of its parameters and of the source of every module that its result
         depends on; adding a planner does not change the keys of other planners. A cell that fails
         has an error instead of figures and does not affect the others.
Cost     Reading a few dozen source files once per set of modules.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trimtab.model.codec import dumps

Parameters = Mapping[str, Any]
"""Names with values that JSON can represent: numbers, strings or None."""

Work = Callable[[Parameters], dict[str, Any]]
"""The function that a cell runs: pure, and importable by other processes."""

_PACKAGE = "trimtab"
_LISTS = frozenset(  # import many modules, of which a cell needs one
    {"trimtab.plan.registry", "trimtab.simulate.keys.registry"}
)


@dataclass(frozen=True, slots=True)
class GridCell:
    """One run of a sweep: its parameters, and the version of the code it depends on."""

    parameters: Parameters
    code: str

    @property
    def key(self) -> str:
        """The key under which the result is kept."""
        text = json.dumps([self.code, dict(self.parameters)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The result of a cell: its figures, or the error with which it failed."""

    key: str
    parameters: Parameters
    figures: Mapping[str, Any] | None
    error: str | None
    seconds: float


def finished(cell: GridCell, work: Work) -> CellResult:
    """Runs a cell."""
    return run(cell.key, cell.parameters, work)


def run(key: str, parameters: Parameters, work: Work) -> CellResult:
    """Runs a cell whose key is known; errors are returned in the result."""
    began = time.perf_counter()
    figures, error = None, None
    try:
        figures = work(parameters)
        dumps(figures)  # figures that cannot be saved are an error of this cell, not of the sweep
    except Exception as fault:
        figures, error = None, f"{type(fault).__name__}: {fault}"
    return CellResult(
        key=key,
        parameters=parameters,
        figures=figures,
        error=error,
        seconds=time.perf_counter() - began,
    )


def run_here(
    cells: Sequence[GridCell], work: Work, *, on_cell: Callable[[int], None] | None = None
) -> dict[str, CellResult]:
    """Runs cells one after another in this process."""
    found = {}
    for count, cell in enumerate(cells, start=1):
        found[cell.key] = finished(cell, work)
        if on_cell is not None:
            on_cell(count)
    return found


def code_version(modules: Iterable[str]) -> str:
    """A hash of these modules and of all our modules that they import, also indirectly."""
    return _hashed(frozenset(modules))


@cache
def _hashed(modules: frozenset[str]) -> str:
    known: set[str] = set()
    ahead = sorted(modules)
    while ahead:
        name = ahead.pop()
        if name not in known:
            known.add(name)
            ahead += _imports(name)
    digest = hashlib.sha256()
    for name in sorted(known):
        digest.update(name.encode() + b"\0" + _source(name).encode() + b"\0")
    return digest.hexdigest()[:16]


@cache
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"module {module} not found")
    return Path(spec.origin).read_text(encoding="utf-8")


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Our modules that a module imports, including imports inside functions."""
    return tuple(sorted(set(_named(ast.walk(ast.parse(_source(module))))) - _LISTS))


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(_PACKAGE + "."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE + "."):
            yield str(node.module)
