"""Makes docs/papers: a page per experiment from its kept results, failed comparisons included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trimtab_lab.papers import ezzeddine_page, landau_page
from trimtab_lab.papers.burato import page as burato_page
from trimtab_lab.papers.live import page as live_page
from trimtab_lab.papers.part import Part, Parts
from trimtab_lab.papers.plots import drawings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The pieces of a page; a section is a title and a function from its part to its text."""

    introduction: Callable[[Parts], str]
    sections: Mapping[str, tuple[str, Callable[[Part], str]]]
    deviations: str


def page(experiment: str, parts: Parts, remarks: str = "") -> str:
    """The text of a page, with a list of parts that were not run, and `remarks` on the runs."""
    template = _PAGES[experiment]
    made = f"<!-- Made by `trimtab experiment {experiment}`; changes here are lost. -->\n"
    body = [made, template.introduction(parts)]
    for name, (_, section) in template.sections.items():
        if name in parts:
            body += [section(parts[name]).rstrip() + "\n", *_pictures(experiment, name, parts)]
    if missing := [title for name, (title, _) in template.sections.items() if name not in parts]:
        body.append("## Not run yet\n\n" + "\n".join(f"- {title}" for title in missing) + "\n")
    if remarks:
        body.append(f"## Remarks on these runs\n\n{remarks.strip()}\n")
    body.append(template.deviations)
    return "\n".join(body).rstrip() + "\n"


def _pictures(experiment: str, part: str, parts: Parts) -> Iterable[str]:
    for name in drawings(experiment, {part: parts[part]}):
        yield f"![{name.replace('-', ' ')}](plots/{name}.svg)\n"


_PAGES: Mapping[str, _Page] = {
    "landau": _Page(
        introduction=lambda _: landau_page.INTRODUCTION,
        sections=landau_page.SECTIONS,
        deviations=landau_page.DEVIATIONS,
    ),
    "ezzeddine": _Page(
        introduction=lambda _: ezzeddine_page.INTRODUCTION,
        sections=ezzeddine_page.SECTIONS,
        deviations=ezzeddine_page.DEVIATIONS,
    ),
    "ezzeddine-live": _Page(
        introduction=lambda _: live_page.EZZEDDINE,
        sections=live_page.EZZEDDINE_SECTIONS,
        deviations=live_page.EZZEDDINE_DEVIATIONS,
    ),
    "landau-live": _Page(
        introduction=lambda _: live_page.LANDAU,
        sections=live_page.LANDAU_SECTIONS,
        deviations=live_page.LANDAU_DEVIATIONS,
    ),
    "burato": _Page(
        introduction=burato_page.introduction,
        sections=burato_page.SECTIONS,
        deviations=burato_page.DEVIATIONS,
    ),
}
