"""Markdown for the pages under docs/papers: tables, figures, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab_lab.papers.part import Part
from trimtab_lab.papers.verdict import RowVerdict, VerdictRow, tally

COMPARED = ("paper", "model", "bar")
"""The columns with which our figures are compared, in every table of rows."""


def rows_table(rows: Sequence[VerdictRow]) -> str:
    """The number of rows with each verdict, then the rows as a table."""
    counts = tally(rows)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    lines = [
        f"{listed or 'Nothing to compare'}.\n",
        cells("what", *COMPARED, "ours", "tolerance", "verdict"),
        cells("---", *["---:"] * 5, "---"),
    ]
    for row in rows:
        bold = "**" if row.verdict is RowVerdict.OUTSIDE else ""
        lines.append(cells(row.what, *figures_of(row), f"{bold}{row.verdict}{bold}"))
    return "\n".join(lines)


def figures_of(row: VerdictRow) -> tuple[str, ...]:
    """The figures of a row as text, in the order of the columns."""
    return tuple(map(shown, (row.paper, row.model, row.bar, row.ours, row.tolerance)))


def conditions(part: Part) -> str:
    """The settings of a part as a sentence."""
    listed = ", ".join(f"{name} {_setting(value)}" for name, value in part.settings.items())
    return f"Conditions: {listed}.\n"


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " · ".join(_setting(each) for each in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shown(value: float | None) -> str:
    """A figure with three significant digits, or as an integer from 1000 on.

    >>> shown(0.0123456), shown(21.1667), shown(8263.19), shown(None)
    ('0.0123', '21.2', '8263', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(*values: str) -> str:
    """One row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in values) + " |"
