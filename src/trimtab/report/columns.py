"""Tables that never cut names or numbers, whatever the width of the terminal.

Why      Rich truncates what does not fit: `orders-with-a-lo…` and `1.2…` cannot be used.
Promise  Every cell is shown whole. Only `PROSE` columns are wrapped, between words. A table that
         is wider than the terminal is printed at its full width (`least_width`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

PROSE = frozenset({"why", "detail", "what"})
"""Columns of sentences, by their headers."""

_ROOMY = 10_000
_LEAST_PROSE = 24


def new_table(
    *columns: str,
    left: int | None = None,
    prose: Collection[str] = PROSE,
    **how: Any,
) -> Table:
    """A table with these columns; those from index `left` on are right-aligned."""
    table = _WholeTable(title_justify="left", caption_justify="left", **how)
    for at, name in enumerate(columns):
        table.add_column(
            name,
            justify="left" if left is None or at < left else "right",
            no_wrap=name not in prose,
        )
    return table


def least_width(value: RenderableType, console: Console) -> int:
    """The console width needed to show a value without cutting anything."""
    return Measurement.get(console, _roomy(console.options), value).minimum


class _WholeTable(Table):
    """A table that sets the minimum width of its columns before layout."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        self._claim(console, options)
        return super().__rich_measure__(console, options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._claim(console, options)
        yield from super().__rich_console__(console, options)

    def _claim(self, console: Console, options: ConsoleOptions) -> None:
        for column in self.columns:
            column.min_width = _need(column, console, _roomy(options))


def _need(column: Column, console: Console, options: ConsoleOptions) -> int:
    cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    whole = max(cell.maximum for cell in cells)
    if column.no_wrap:
        return whole
    return min(whole, max(_LEAST_PROSE, *(cell.minimum for cell in cells)))


def _roomy(options: ConsoleOptions) -> ConsoleOptions:
    return options.update(max_width=_ROOMY)
