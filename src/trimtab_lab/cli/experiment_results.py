"""What the verbs of `trimtab experiment` share: where results go, and how they are shown."""

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
        help="Folder for results, pictures and page. Default: reports/experiments/NAME under "
        "TRIMTAB_HOME.",
    ),
]
Png = Annotated[bool, typer.Option("--png", help="Draw every picture as PNG too, not only SVG.")]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where results, pictures and page go, and in which forms pictures are drawn."""

    into: Into = None
    png: Png = False

    @property
    def forms(self) -> tuple[Literal["svg", "png"], ...]:
        """The forms of every picture."""
        return ("svg", "png") if self.png else ("svg",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an experiment is run on Spark, and where its results go."""

    page: PageOptions
    master: Master = None
    conf: Conf = None


_MOST_ROWS = 40  # of a table for people; outside ones are always shown


def parts_option(known: Collection[str]) -> Any:
    """`--what`: which parts of an experiment are run."""
    return typer.Option(
        "--what",
        metavar="PART",
        help=f"Which part: {', '.join(known)}. May be repeated. Default: all.",
    )


def results_folder(settings: Settings, into: Path | None, experiment: str) -> Path:
    """The folder for results and page; results that cannot be added to are refused first."""
    from trimtab_lab.papers.kept import check

    folder = into or settings.reports / "experiments" / experiment
    check(folder, experiment)
    return folder


def tell(experiment: str, found: Mapping[str, Part], page: Path, *, as_json: bool) -> None:
    """Prints what the parts came to, and where the page is."""
    say(f"results, pictures and page: {page}")
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
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        rows = part.rows
        if len(rows) > _MOST_ROWS:
            rows = tuple(row for row in rows if row.verdict is RowVerdict.OUTSIDE)
            told += "; the page has all rows" + ("" if not rows else ", here are those outside")
        if not rows:
            result(f"{name}: {told}")
            continue
        columns = ("what", *COMPARED, "ours", "tolerance", "verdict")
        table = new_table(*columns, left=1, title=f"{name}: {told}", box=box.SIMPLE_HEAD)
        table.columns[-1].justify = "left"
        for row in rows:
            style = "red" if row.verdict is RowVerdict.OUTSIDE else None
            table.add_row(row.what, *figures_of(row), str(row.verdict), style=style)
        result(table)


def chosen_parts(asked: Sequence[str] | None, known: Collection[str]) -> list[str]:
    """The parts asked for, in the order of those known; all where none is."""
    for name in asked or ():
        if name not in known:
            raise ConfigError(f'There is no part "{name}".', hint=f"There are {', '.join(known)}.")
    return [name for name in known if not asked or name in asked]
