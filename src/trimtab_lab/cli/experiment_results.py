"""Shared by all commands of `trimtab experiment`: where results are written, how they are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimtab.cli.options import output_folder
from trimtab.cli.output import result, result_json, say
from trimtab.cli.spark import Conf, Master
from trimtab.errors import ConfigError
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab_lab.papers.part import Part

Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        callback=output_folder,
        metavar="DIR",
        help="Folder for the results, plots and page. Default: reports/experiments/NAME under "
        "TRIMTAB_HOME.",
    ),
]
Png = Annotated[bool, typer.Option("--png", help="Also write each plot as PNG, not only as SVG.")]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where the results, plots and page are written, and the file formats of the plots."""

    into: Into = None
    png: Png = False

    @property
    def forms(self) -> tuple[Literal["svg", "png"], ...]:
        """The file formats of every plot."""
        return ("svg", "png") if self.png else ("svg",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an experiment runs on Spark, and where its results are written."""

    page: PageOptions
    master: Master = None
    conf: Conf = None


_MOST_ROWS = 40  # of a printed table; longer ones show only the rows outside their tolerance


def parts_option(known: Collection[str]) -> Any:
    """`--what`: which parts of an experiment to run."""
    return typer.Option(
        "--what",
        metavar="PART",
        help=f"Part to run: {', '.join(known)}. May be repeated. Default: all.",
    )


def results_folder(settings: Settings, into: Path | None, experiment: str) -> Path:
    """The folder for results and page; raises if the results in it cannot be read."""
    from trimtab_lab.papers.results import check

    folder = into or settings.reports / "experiments" / experiment
    check(folder, experiment)
    return folder


def show_results(experiment: str, found: Mapping[str, Part], page: Path, *, as_json: bool) -> None:
    """Prints the results of the parts, and the path of the page."""
    say(f"results, plots and page: {page}")
    if as_json:
        rows = [row.to_json() for part in found.values() for row in part.rows]
        result_json({"experiment": experiment, "rows": rows})
    else:
        _show(found)


def _show(found: Mapping[str, Part]) -> None:
    from rich import box

    from trimtab.report.columns import new_table
    from trimtab_lab.papers.markdown import COMPARED, figures_of
    from trimtab_lab.papers.verdict import RowVerdict, tally

    for name, part in found.items():
        counts = tally(part.rows)
        summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        rows = part.rows
        if len(rows) > _MOST_ROWS:
            rows = tuple(row for row in rows if row.verdict is RowVerdict.OUTSIDE)
            summary += "; all rows are on the page" + (
                "" if not rows else ", those outside are below"
            )
        if not rows:
            result(f"{name}: {summary}")
            continue
        columns = ("what", *COMPARED, "ours", "tolerance", "verdict")
        table = new_table(*columns, left=1, title=f"{name}: {summary}", box=box.SIMPLE_HEAD)
        table.columns[-1].justify = "left"
        for row in rows:
            style = "red" if row.verdict is RowVerdict.OUTSIDE else None
            table.add_row(row.what, *figures_of(row), str(row.verdict), style=style)
        result(table)


def chosen_parts(asked: Sequence[str] | None, known: Collection[str]) -> list[str]:
    """The requested parts, in the order of `known`; all of them if none is requested."""
    for name in asked or ():
        if name not in known:
            raise ConfigError(f'Unknown part "{name}".', hint=f"Parts: {', '.join(known)}.")
    return [name for name in known if not asked or name in asked]
