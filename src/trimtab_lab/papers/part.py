"""A part of an experiment: its settings, its compared figures, and the data of its plots.

Parts are kept as JSON, so that page and plots can be made again without running anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import BadFile, PlanningError
from trimtab_lab.papers.grid import CellResult, GridCell, Work
from trimtab_lab.papers.verdict import VerdictRow, row_from

Runner = Callable[[Sequence[GridCell], Work, int], Mapping[str, CellResult]]
"""Runs cells (cells, work, cells per task), and returns the result of each by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: its settings, its rows, and figures by name."""

    settings: Mapping[str, Any]
    rows: tuple[VerdictRow, ...]
    figures: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The part as a JSON object."""
        return {
            "settings": dict(self.settings),
            "rows": [row.to_json() for row in self.rows],
            "figures": dict(self.figures),
        }


Parts = Mapping[str, Part]


def figures_of(
    cells: Sequence[GridCell], found: Mapping[str, CellResult]
) -> list[Mapping[str, Any]]:
    """The figures of each cell; raises if a cell failed, after the others were kept."""
    failed = [found[cell.key] for cell in cells if found[cell.key].error is not None]
    if failed:
        first = failed[0]
        parameters = ", ".join(f"{name} {value}" for name, value in first.parameters.items())
        raise PlanningError(
            f"{len(failed)} of {len(cells)} runs failed, "
            f"the first one ({parameters}) with {first.error}",
            hint="The other results are kept. Fix the cause, then run the experiment again.",
        )
    return [found[cell.key].figures or {} for cell in cells]


def part_from(value: Any) -> Part:
    """Reads a part from its JSON object."""
    return Part(
        settings=value["settings"],
        rows=tuple(row_from(row) for row in value["rows"]),
        figures=value["figures"],
    )


def read_parts(path: Path) -> dict[str, Part]:
    """The parts in a file of results; empty if the file does not exist."""
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["parts"]
        return {name: part_from(value) for name, value in kept.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(
            f"{path}: not a valid experiment result of this version: {error!r}",
            hint="Delete it, and run the experiment again; kept runs are not repeated.",
        ) from error


def parts_to(experiment: str, parts: Parts) -> dict[str, Any]:
    """The JSON object of a file of results."""
    return {
        "experiment": experiment,
        "parts": {name: part.to_json() for name, part in parts.items()},
    }
