"""One kind of table: names and figures are never cut or broken, whatever the width.

Why      Rich shortens what does not fit: `orders-with-a-lo…` and `1.2…` cannot be used.
Promise  A column holds its cells whole. Only columns of `prose` are broken into lines, between
         words. A table that needs more room than there is takes it (`least_width`).
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
    """A table with these columns; from number `left` on they are aligned to the right."""
    table = _WholeTable(title_justify="left", caption_justify="left", **how)
    for at, name in enumerate(columns):
        table.add_column(
            name,
            justify="left" if left is None or at < left else "right",
            no_wrap=name not in prose,
        )
    return table


def least_width(value: RenderableType, console: Console) -> int:
    """How wide a console must be to show a value without cutting anything."""
    return Measurement.get(console, _roomy(console.options), value).minimum


class _WholeTable(Table):
    """A table whose columns know how much room they need before they are laid out."""

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
