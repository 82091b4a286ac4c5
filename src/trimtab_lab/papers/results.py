"""The output folder of an experiment: results as JSON, plots, and a page made from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab.model.codec import dumps
from trimtab.model.files import write_atomically
from trimtab_lab.papers.pages import page
from trimtab_lab.papers.part import Parts, parts_to, read_parts
from trimtab_lab.papers.plots import Format, drawings, picture


def results_file(folder: Path, experiment: str) -> Path:
    """The path of an experiment's results."""
    return folder / "results" / f"{experiment}.json"


def check(folder: Path, experiment: str) -> None:
    """Raises if existing results cannot be read; called before anything runs."""
    read_parts(results_file(folder, experiment))


def keep(
    folder: Path, experiment: str, parts: Parts, *, forms: Sequence[Format] = ("svg",)
) -> Path:
    """Adds parts to the kept results, and makes page and plots again; returns the page's path."""
    together = {**read_parts(results_file(folder, experiment)), **parts}
    text = dumps(parts_to(experiment, together)) + "\n"
    write_atomically(results_file(folder, experiment), text)
    return renew(folder, experiment, forms=forms)


def renew(folder: Path, experiment: str, *, forms: Sequence[Format] = ("svg",)) -> Path:
    """Makes page and plots from the kept results."""
    parts = read_parts(results_file(folder, experiment))
    for name, draw in drawings(experiment, parts).items():
        for form in forms:
            write_atomically(folder / "plots" / f"{name}.{form}", picture(draw, form=form))
    place = folder / f"{experiment}.md"
    write_atomically(place, page(experiment, parts, remarks(folder, experiment)))
    return place


def remarks(folder: Path, experiment: str) -> str:
    """Hand-written remarks about the kept runs; empty if there are none."""
    place = folder / "results" / f"{experiment}.remarks.txt"
    return place.read_text(encoding="utf-8") if place.exists() else ""
